"""What people and applications see of facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, get_args
from uuid import UUID

from pydantic import Field, TypeAdapter, ValidationError

from services.memory_store.again import again
from services.memory_store.cursors import Cursor
from services.memory_store.database import Connection, Database
from services.memory_store.facts import ledger, repository, rules
from services.memory_store.facts.repository import Wanted
from services.memory_store.facts.rules import Slots, State
from services.memory_store.facts.schemas import Fact, FactHistory, FactList, Filters, Limits, ScopeLimit
from shared.auth import Principal
from shared.events import Time
from shared.problems import Problem

_PAGES: Cursor[repository.Position] = Cursor(tuple[Time, Annotated[int, Field(ge=0, lt=2**63)], UUID])
_VERSIONS: Cursor[int] = Cursor(Annotated[int, Field(ge=0, lt=2**31)])
_TIME: TypeAdapter[datetime] = TypeAdapter(Time)
_STATES: frozenset[str] = frozenset(get_args(State))
# What was true then, though it is believed no longer or has been followed by something else.
_ONCE_TRUE = ("active", "superseded", "retired")


@dataclass(frozen=True, slots=True)
class Views:
    """Every method raises Problem not_found for what is not there or not the caller's."""

    database: Database

    @again
    async def page(self, who: Principal, filters: Filters) -> FactList:
        who.check_user(filters.user)
        who.check_workspace(filters.workspace)
        after = _PAGES.read(filters.cursor)
        true_from, true_to = _days(filters.valid_at)
        wanted = Wanted(
            workspace=filters.workspace,
            states=_states(filters.state) or (("active",) if true_from is None else _ONCE_TRUE),
            as_of=filters.as_of,
            true_from=true_from,
            true_to=true_to,
        )
        async with self.database.person(who.tenant, filters.user) as connection:
            found = await repository.page(connection, wanted, after, filters.limit + 1)
            limits = await _limits(connection, filters.workspace)
        page = found[: filters.limit]
        facts = [fact for _, fact in page]
        return FactList(
            global_=[fact for fact in facts if fact.workspace is None],
            workspace=[fact for fact in facts if fact.workspace is not None],
            limits=limits,
            next_cursor=_PAGES.write(page[-1][0]) if len(found) > len(page) else None,
        )

    @again
    async def one(self, who: Principal, fact_id: UUID) -> Fact:
        user = await owner_of(self.database, who, fact_id)
        async with self.database.person(who.tenant, user) as connection:
            return await _visible(connection, who, fact_id)

    @again
    async def history(self, who: Principal, fact_id: UUID, cursor: str | None, limit: int) -> FactHistory:
        after = _VERSIONS.read(cursor) or 0
        user = await owner_of(self.database, who, fact_id)
        async with self.database.person(who.tenant, user) as connection:
            await _visible(connection, who, fact_id)
            found = await repository.versions(connection, fact_id, after, limit + 1)
        items = found[:limit]
        return FactHistory(
            items=items, next_cursor=_VERSIONS.write(items[-1].version) if len(found) > len(items) else None
        )


async def owner_of(database: Database, who: Principal, fact_id: UUID) -> str:
    """Whose fact it is. A user token's own is looked for among its user's alone. Raises Problem not_found."""
    if who.user is not None:
        return who.user
    async with database.tenant(who.tenant) as connection:
        owner = await repository.owner(connection, fact_id)
    if owner is None:
        raise Problem("not_found")
    return owner


async def _visible(connection: Connection, who: Principal, fact_id: UUID) -> Fact:
    fact = await repository.one(connection, fact_id)
    if fact is None:
        raise Problem("not_found")
    who.check_workspace(fact.workspace)
    return fact


async def _limits(connection: Connection, workspace: str | None) -> Limits:
    return Limits(
        global_=_limit(await ledger.slots(connection, None)),
        workspace=None if workspace is None else _limit(await ledger.slots(connection, workspace)),
    )


def _limit(slots: Slots) -> ScopeLimit:
    return ScopeLimit(used=slots.used, max=slots.maximum, waiting=slots.waiting)


def _states(given: Sequence[str]) -> tuple[str, ...]:
    states = tuple(state for each in given for state in each.split(","))
    if not _STATES.issuperset(states):
        raise Problem("invalid", f"state: one or more of {', '.join(sorted(_STATES))}")
    return states


def _days(valid_at: str | None) -> tuple[str | None, str | None]:
    """First and last day of `2027`, `2027-05`, `2027-05-14`, or twice the UTC day of an RFC 3339 time."""
    if valid_at is None:
        return None, None
    try:
        return rules.first_day(valid_at).isoformat(), rules.last_day(valid_at).isoformat()
    except ValueError:
        pass
    try:
        day = _TIME.validate_python(valid_at).astimezone(UTC).date().isoformat()
    except ValidationError:
        raise Problem("invalid", "valid_at: a date (2027, 2027-05, 2027-05-14) or an RFC 3339 time") from None
    return day, day

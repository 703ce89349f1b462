"""What people and applications do with facts: every rule is asked under the person's lock, in the transaction that writes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from services.memory_store.again import again
from services.memory_store.database import Database
from services.memory_store.facts import ledger, repository, rules
from services.memory_store.facts.changes import Change, check_version
from services.memory_store.facts.ledger import Author, Held, NewFact
from services.memory_store.facts.reading import owner_of
from services.memory_store.facts.rules import Refused
from services.memory_store.facts.schemas import CreateFact, EditFact, Fact, Restore
from services.memory_store.gate import PersonGate
from shared.auth import Principal
from shared.ids import is_anonymous
from shared.problems import Problem
from shared.telemetry.tracing import current_traceparent


@dataclass(frozen=True, slots=True)
class Facts:
    """Each method answers the fact as it is afterwards, and raises Problem: not_found for what is not there or not the caller's."""

    database: Database
    stand_ins: Sequence[str]
    gate: PersonGate = field(default_factory=PersonGate)

    @again
    async def create(self, who: Principal, wanted: CreateFact) -> Fact:
        who.check_user(wanted.user)
        who.check_workspace(wanted.workspace)
        if is_anonymous(wanted.user, self.stand_ins):
            raise Problem("invalid", "nobody is signed in under this user")
        if wanted.workspace is None and wanted.scope == "workspace" and "scope" in wanted.model_fields_set:
            raise Problem("invalid", "a fact of a workspace needs one")
        target = wanted.workspace if wanted.scope == "workspace" else None
        async with self._writing(who, wanted.user) as change:
            content = rules.checked_content(wanted.content, wanted.origin)
            await change.give_way(wanted.replace, target)
            await change.check_same(target, content)
            if wanted.origin == "agent" and await ledger.tombstone(change.connection, target, content):
                raise Refused("forgotten", "the person put this away; only they bring it back")
            sources = await change.sources(wanted.evidence, wanted.workspace)
            await change.check_slot(target)
            new = NewFact(workspace=target, content=content, origin=wanted.origin, locked=wanted.origin == "person")
            return await change.shown(await ledger.insert(change.connection, change.author, new, sources))

    @again
    async def edit(self, who: Principal, fact_id: UUID, wanted: EditFact, expected: Sequence[int] | None) -> Fact:
        if wanted.content is None and wanted.locked is None:
            raise Problem("invalid", "nothing to change: content, locked")
        async with self._changing(who, fact_id) as (change, fact):
            check_version(fact, expected)
            rules.follow("edit", fact.state)
            content = fact.content if wanted.content is None else rules.checked_content(wanted.content, "person")
            worded = content is not None and content != fact.content
            if worded:
                await change.check_same(fact.workspace, str(content), but=fact)
            # Who words a fact stands for it: runs keep off it, unless told otherwise here.
            locked = wanted.locked if wanted.locked is not None else fact.locked or worded
            return await change.apply(fact, "fact.updated", content=content, locked=locked)

    @again
    async def delete(self, who: Principal, fact_id: UUID, expected: Sequence[int] | None) -> None:
        """What stays is a tombstone: it can be restored, and keeps the same fact from being learned again."""
        async with self._changing(who, fact_id) as (change, fact):
            check_version(fact, expected)
            await change.put_away(fact, "delete")

    @again
    async def move(self, who: Principal, fact_id: UUID, target: str | None, replace: str | None) -> Fact:
        """Into a workspace, or (None) global."""
        who.check_workspace(target)
        async with self._changing(who, fact_id) as (change, fact):
            to = rules.follow("move", fact.state)
            if fact.workspace == target:
                return await change.shown(fact)
            if target is not None and fact.workspace is not None:
                raise Refused("not_global", "only a global fact moves into a workspace")
            await change.give_way(replace, target)
            await change.check_same(target, str(fact.content), but=fact)
            if to == "active":
                await change.check_slot(target, fact.valid_to)
            return await change.apply(fact, "fact.updated", workspace=target)

    @again
    async def restore(self, who: Principal, fact_id: UUID, wanted: Restore) -> Fact:
        """Brings back what was put away, or an older wording of what is there."""
        async with self._changing(who, fact_id) as (change, fact):
            to = rules.follow("restore", fact.state)
            content = fact.content
            if wanted.version is not None:
                content = await repository.content_of(change.connection, fact_id, wanted.version)
            if content is None:
                raise Refused("invalid", "there is no such version, or its text has left")
            if to is None:
                await change.check_same(fact.workspace, content, but=fact)
                return await change.apply(fact, "fact.restored", content=content)
            await change.give_way(wanted.replace, fact.workspace)
            await change.check_same(fact.workspace, content, but=fact)
            valid_from, valid_to = await repository.was_true(change.connection, fact_id)
            await change.check_slot(fact.workspace, valid_to)
            back = {"content": content, "valid_from": valid_from, "valid_to": valid_to, "superseded_by": None}
            return await change.apply(fact, "fact.restored", state=to, **back)

    @again
    async def approve(self, who: Principal, fact_id: UUID, replace: str | None) -> Fact:
        """A pending fact becomes active; the fact that it contests is superseded by it."""
        async with self._changing(who, fact_id) as (change, fact):
            to = rules.follow("approve", fact.state)
            if to is None:
                return await change.shown(fact)
            if fact.contests is not None:
                await change.supersede(fact.contests, fact)
            await change.give_way(replace, fact.workspace)
            await change.check_slot(fact.workspace, fact.valid_to)
            return await change.apply(fact, "fact.approved", state=to, pending_reason=None, contests=None)

    @again
    async def reject(self, who: Principal, fact_id: UUID) -> Fact:
        """As deleting, and also against what is said later: only the person brings it back."""
        async with self._changing(who, fact_id) as (change, fact):
            return await change.put_away(fact, "reject")

    @asynccontextmanager
    async def _changing(self, who: Principal, fact_id: UUID) -> AsyncIterator[tuple[Change, Held]]:
        user = await owner_of(self.database, who, fact_id)
        async with self._writing(who, user) as change:
            yield change, await change.held(fact_id)

    @asynccontextmanager
    async def _writing(self, who: Principal, user: str) -> AsyncIterator[Change]:
        author = Author(who.actor, traceparent=current_traceparent())
        try:
            async with self.gate.hold(who.tenant, user), self.database.person(who.tenant, user) as connection:
                await ledger.lock_person(connection)
                yield Change(connection, who, author)
        except Refused as refused:
            extra: dict[str, Any] = {} if refused.existing is None else {"existing": str(refused.existing)}
            raise Problem(refused.code, refused.detail, **extra) from None

"""The steps that changes of facts are made of, in one transaction under the person's lock."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from services.memory_store.database import Connection
from services.memory_store.facts import ledger, repository, rules
from services.memory_store.facts.ledger import Author, Held, Source
from services.memory_store.facts.rules import Act, Refused
from services.memory_store.facts.schemas import Fact, GivenEvidence
from shared.auth import Principal
from shared.events import ChangeType
from shared.problems import Problem
from shared.text.normal import find_quote, fold_whitespace


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes what. Every step raises Refused where a rule says no, and Problem not_found for what the caller may not see."""

    connection: Connection
    who: Principal
    author: Author

    async def held(self, fact_id: UUID) -> Held:
        fact = await ledger.held(self.connection, fact_id)
        if fact is None or not (fact.workspace is None or self.who.sees_workspace(fact.workspace)):
            raise Problem("not_found")
        return fact

    async def apply(self, fact: Held, kind: ChangeType, *, reason: str | None = None, **belief: Any) -> Fact:
        """The next version; none where nothing would change."""
        changed = {name: value for name, value in belief.items() if getattr(fact, name) != value}
        if changed:
            fact = await ledger.change(self.connection, self.author, fact, kind, reason=reason, **changed)
        return await self.shown(fact)

    async def shown(self, fact: Held) -> Fact:
        shown = await repository.one(self.connection, fact.id)
        if shown is None:
            raise Problem("not_found")
        return shown

    async def put_away(self, fact: Held, act: Act, *, reason: str | None = None) -> Fact:
        to = rules.follow(act, fact.state)
        if to is None:
            return await self.shown(fact)
        return await self.apply(fact, rules.TRANSITIONS[act].change, reason=reason, state=to, pending_reason=None)

    async def give_way(self, replace: str | None, target: str | None) -> None:
        """The fact that `replace` names leaves its slot of the target scope; it can be restored."""
        if replace is None:
            return
        try:
            fact = await self.held(UUID(replace))
        except ValueError:
            raise Problem("not_found") from None
        if fact.state != "active":
            raise Refused("not_active", "only an active fact can give its slot")
        if fact.workspace != target:
            raise Refused("invalid", "replace: a fact of another scope")
        await self.put_away(fact, "delete", reason="replaced")

    async def supersede(self, fact_id: UUID, by: Held) -> None:
        """The old truth ends where the new one begins. Nothing to do where it is no longer believed."""
        old = await ledger.held(self.connection, fact_id)
        if old is not None and old.state == "active":
            ended = rules.truth_ended(by.valid_from, datetime.now(UTC).date())
            state = rules.follow("supersede", old.state)
            await self.apply(old, "fact.superseded", state=state, valid_to=ended, superseded_by=by.id)

    async def check_same(self, target: str | None, content: str, *, but: Held | None = None) -> None:
        existing = await ledger.same(self.connection, target, content)
        if existing is not None and (but is None or existing.id != but.id):
            raise Refused("duplicate", "another fact of this scope says the same", existing=existing.id)

    async def check_slot(self, target: str | None, valid_to: str | None = None) -> None:
        if not rules.is_past(valid_to, datetime.now(UTC).date()):  # what is past holds no slot
            rules.check_slot(await ledger.slots(self.connection, target))

    async def sources(self, given: Sequence[GivenEvidence], workspace: str | None) -> list[Source]:
        """The chats that were given as evidence, each checked to be the person's and to hold the quote in its prompt."""
        chats = await repository.chats(self.connection, [each.event_id for each in given]) if given else {}
        sources = []
        for each in given:
            chat = chats.get(each.event_id)
            if (
                chat is None
                or not self.who.sees_workspace(chat.workspace)
                or (workspace is not None and chat.workspace != workspace)
                or not find_quote(each.quote, chat.prompt)
            ):
                raise Refused("invalid", "evidence: no chat of this user and workspace has this quote in its prompt")
            sources.append(
                Source(
                    event_id=chat.event_id,
                    workspace=chat.workspace,
                    thread=chat.thread,
                    occurred_at=chat.occurred_at,
                    recorded_at=chat.recorded_at,
                    quote=fold_whitespace(each.quote),
                )
            )
        return sources


def check_version(fact: Held, expected: Sequence[int] | None) -> None:
    """`expected`: the versions of If-Match; None: whichever it is. Raises Problem version_conflict."""
    if expected is not None and fact.version not in expected:
        raise Problem(
            "version_conflict", "it has changed since", headers={"ETag": f'"{fact.version}"'}, version=fact.version
        )

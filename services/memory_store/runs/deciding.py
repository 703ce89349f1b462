"""What becomes of one decision of a run. Nothing the run says is trusted: targets, quotes, content, locks, slots and tombstones are asked
here, under the person's lock, in the transaction that writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from services.memory_store.database import Connection
from services.memory_store.facts import ledger, rules
from services.memory_store.facts.ledger import Author, Held, NewFact, Source
from services.memory_store.facts.rules import MAX_WAITING, Act, PendingReason, Refused
from services.memory_store.runs.lease_repository import Policy, WindowChat
from shared.rpc.messages import Candidate, CandidateRecord, Decision, DecisionResult
from shared.text.normal import find_quote, fold_whitespace


class NotApplied(Exception):
    """A decision is refused; `reason` is a code that stands on the run."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Deciding:
    """One run's decisions, applied in order. `window` are its chats that may still be read, by event id."""

    connection: Connection
    author: Author
    workspace: str
    policy: Policy
    window: Mapping[str, WindowChat]
    candidates: Sequence[CandidateRecord]
    decided: set[int] = field(default_factory=set)
    # Superseded by this very run: a later decision that was made before it was known means the new one.
    replaced: dict[UUID, UUID] = field(default_factory=dict)

    async def apply(self, decision: Decision) -> DecisionResult:
        try:
            return await self._apply(decision, self._candidate(decision))
        except NotApplied as refusal:
            return _result(decision, "refused", refusal.reason)
        except Refused as refusal:
            return _result(decision, "refused", refusal.code, refusal.existing)

    async def _apply(self, decision: Decision, candidate: Candidate) -> DecisionResult:
        if decision.action == "skip":
            return await self._skip(decision, candidate)
        sources = self._sources(candidate)
        if decision.action == "create":
            return await self._create(decision, candidate, sources)
        if decision.action == "update":
            return await self._update(decision, candidate, sources)
        if decision.action == "supersede":
            return await self._supersede(decision, candidate, sources)
        return await self._put_away(decision, candidate, sources)

    def _candidate(self, decision: Decision) -> Candidate:
        if (
            not 0 <= decision.candidate < len(self.candidates)
            or self.candidates[decision.candidate].dropped is not None
        ):
            raise NotApplied("no_candidate")
        if decision.candidate in self.decided:
            raise NotApplied("decided_twice")
        self.decided.add(decision.candidate)
        return self.candidates[decision.candidate].candidate

    def _sources(self, candidate: Candidate) -> list[Source]:
        """The candidate's evidence that holds: a chat of the window that may still be read, and a quote in its prompt."""
        sources = []
        gone = False
        for evidence in candidate.evidence:
            chat = self.window.get(evidence.event_id)
            if chat is None or chat.state != "pending" or chat.prompt is None:
                gone = gone or chat is not None
            elif find_quote(evidence.quote, chat.prompt):
                sources.append(
                    Source(
                        event_id=chat.event_id,
                        workspace=chat.workspace,
                        thread=chat.thread,
                        occurred_at=chat.occurred_at,
                        recorded_at=chat.recorded_at,
                        quote=fold_whitespace(evidence.quote),
                    )
                )
        if not sources:
            raise NotApplied("chat_gone" if gone else "quote_not_found")
        return sources

    async def _target(self, decision: Decision) -> Held:
        """The fact that the decision names: this person's, active, global or of this workspace."""
        try:
            fact_id = UUID(decision.target or "")
        except ValueError:
            raise NotApplied("unknown_target") from None
        fact = await ledger.held(self.connection, self.replaced.get(fact_id, fact_id))
        # Another person's is not even seen; another workspace's is none of this run's business.
        if fact is None or fact.workspace not in (None, self.workspace):
            raise NotApplied("unknown_target")
        if fact.state != "active":
            raise NotApplied("not_active")
        return fact

    async def _skip(self, decision: Decision, candidate: Candidate) -> DecisionResult:
        """Known already: the fact that says it gains the evidence."""
        try:
            target, sources = await self._target(decision), self._sources(candidate)
        except NotApplied:
            return _result(decision, "skipped")
        await ledger.add_evidence(self.connection, self.author, target, sources)
        return _result(decision, "skipped", "known", target.id)

    async def _create(self, decision: Decision, candidate: Candidate, sources: list[Source]) -> DecisionResult:
        scope = self.workspace if decision.scope == "workspace" or candidate.sensitive else None
        content = _content(decision, candidate)
        for place in (None, self.workspace):
            if (existing := await ledger.same(self.connection, place, content)) is not None:
                return await self._known(decision, existing, sources)
        sources = await self._fresh(scope, content, sources)
        waits = self._waits(candidate)
        new = self._new(candidate, content, scope, waits)
        # What is past holds no slot.
        if waits is None and not rules.is_past(new.valid_to, datetime.now(UTC).date()):
            slots = await ledger.slots(self.connection, scope)
            if slots.free == 0:
                new = replace(new, pending_reason="limit")
                for oldest in await ledger.oldest_waiting(
                    self.connection, scope, max(0, slots.waiting - MAX_WAITING + 1)
                ):
                    await self._leave(oldest, "waited_too_long")
        return await self._insert(decision, new, sources)

    async def _update(self, decision: Decision, candidate: Candidate, sources: list[Source]) -> DecisionResult:
        """A refinement: the next version of the same fact."""
        target = await self._target(decision)
        rules.check_lock("edit", locked=target.locked)
        content = _content(decision, candidate)
        if (existing := await ledger.same(self.connection, target.workspace, content)) is not None:
            return await self._known(decision, existing, sources)
        sources = await self._fresh(target.workspace, content, sources)
        if (waits := self._waits(candidate, target)) is not None:
            return await self._contest(
                decision, target, self._new(candidate, content, target.workspace, waits), sources
            )
        valid_from, valid_to = _dates(candidate)
        changed = await ledger.change(
            self.connection,
            self.author,
            target,
            "fact.updated",
            content=content,
            category=candidate.category,
            confidence=candidate.confidence,
            sensitive=target.sensitive or candidate.sensitive,
            valid_from=valid_from or target.valid_from,
            valid_to=valid_to or target.valid_to,
        )
        await ledger.add_evidence(self.connection, self.author, changed, sources)
        return _result(decision, "applied", None, changed.id)

    async def _supersede(self, decision: Decision, candidate: Candidate, sources: list[Source]) -> DecisionResult:
        """A changed truth: a new fact takes the slot of the old one, in the old one's scope."""
        target = await self._target(decision)
        content = _content(decision, candidate)
        existing = await ledger.same(self.connection, target.workspace, content)
        waits: PendingReason | None = "contested"
        if not rules.check_lock("supersede", locked=target.locked):
            waits = self._waits(candidate, target)
        # Nothing new, or something that waits for the person's word already.
        if existing is not None and (
            existing.id == target.id or waits is not None or existing.pending_reason not in (None, "limit")
        ):
            return await self._known(decision, existing, sources)
        sources = await self._fresh(target.workspace, content, sources)
        new = self._new(candidate, content, target.workspace, waits)
        if waits is not None:
            return await self._contest(decision, target, new, sources)
        old = await self._end(target, new, sources)
        successor = await self._succeed(existing, new, sources)
        await ledger.link_superseded(self.connection, old, successor)
        self.replaced[target.id] = successor.id
        return _result(decision, "applied", None, successor.id)

    async def _end(self, target: Held, new: NewFact, sources: list[Source]) -> Held:
        """The old truth leaves first, since the new one takes its slot. It ended where the new one began, or when that was said."""
        ended = rules.truth_ended(new.valid_from, self._day(sources))
        if target.valid_to is not None and rules.last_day(target.valid_to) <= rules.last_day(ended):
            ended = target.valid_to
        state = rules.follow("supersede", target.state)
        return await ledger.change(self.connection, self.author, target, "fact.superseded", state=state, valid_to=ended)

    async def _succeed(self, existing: Held | None, new: NewFact, sources: list[Source]) -> Held:
        """The fact that says the same already, now certainly active, or the new one."""
        if existing is None:
            return await ledger.insert(self.connection, self.author, new, sources)
        if existing.state == "pending":
            existing = await ledger.change(
                self.connection, self.author, existing, "fact.approved", state="active", pending_reason=None
            )
        await ledger.add_evidence(self.connection, self.author, existing, sources)
        return existing

    async def _put_away(self, decision: Decision, candidate: Candidate, sources: list[Source]) -> DecisionResult:
        """`retire`: it is true no longer. `delete`: the person asked to forget it; a tombstone stays."""
        target = await self._target(decision)
        act: Act = "retire" if decision.action == "retire" else "delete"
        rules.check_lock(act, locked=target.locked)
        belief: dict[str, Any] = {"state": rules.follow(act, target.state)}
        if act == "retire":
            belief["valid_to"] = _dates(candidate)[1] or rules.truth_ended(None, self._day(sources))
        gone = await ledger.change(self.connection, self.author, target, rules.TRANSITIONS[act].change, **belief)
        await ledger.insert_sources(self.connection, self.author, gone, sources)
        return _result(decision, "applied", None, gone.id)

    async def _contest(self, decision: Decision, target: Held, new: NewFact, sources: list[Source]) -> DecisionResult:
        """Waits for the person's word; approved, it supersedes the target. A newer one takes the place of one that waits."""
        for older in await ledger.contesting(self.connection, target.id):
            await self._leave(older, "contested_anew")
        # What is sensitive never becomes global by extraction, not even in the place of what is.
        scope = self.workspace if new.sensitive else new.workspace
        return await self._insert(decision, replace(new, workspace=scope, contests=target.id), sources)

    async def _insert(self, decision: Decision, new: NewFact, sources: list[Source]) -> DecisionResult:
        fact = await ledger.insert(self.connection, self.author, new, sources)
        return _result(decision, "applied" if new.pending_reason is None else "pending", new.pending_reason, fact.id)

    async def _known(self, decision: Decision, existing: Held, sources: list[Source]) -> DecisionResult:
        await ledger.add_evidence(self.connection, self.author, existing, sources)
        return _result(decision, "skipped", "duplicate", existing.id)

    async def _leave(self, fact: Held, reason: str) -> None:
        """A pending fact makes room for a newer one."""
        state = rules.follow("retire", fact.state)
        await ledger.change(
            self.connection, self.author, fact, "fact.retired", reason=reason, state=state, pending_reason=None
        )

    async def _fresh(self, scope: str | None, content: str, sources: list[Source]) -> list[Source]:
        """What a tombstone of the same content lets through: of a deletion the chats after it, of a rejection none."""
        grave = await ledger.tombstone(self.connection, scope, content)
        if grave is None:
            return sources
        later = [source for source in sources if grave.state == "deleted" and source.recorded_at > grave.updated_at]
        if not later:
            raise NotApplied("forgotten" if grave.state == "deleted" else "rejected")
        return later

    def _waits(self, candidate: Candidate, target: Held | None = None) -> PendingReason | None:
        if candidate.sensitive and self.policy.sensitive == "skip":
            raise NotApplied("sensitive")
        if candidate.sensitive and (self.policy.sensitive == "approve" or (target and target.workspace is None)):
            return "sensitive"
        return "approval" if self.policy.require_approval else None

    def _new(self, candidate: Candidate, content: str, scope: str | None, waits: PendingReason | None) -> NewFact:
        valid_from, valid_to = _dates(candidate)
        return NewFact(
            workspace=scope,
            content=content,
            origin="extraction",
            category=candidate.category,
            sensitive=candidate.sensitive,
            confidence=candidate.confidence,
            valid_from=valid_from,
            valid_to=valid_to,
            pending_reason=waits,
        )

    def _day(self, sources: Sequence[Source]) -> date:
        """The person's day when it was last said."""
        return max(self.window[source.event_id].said_at for source in sources).date()


def _content(decision: Decision, candidate: Candidate) -> str:
    return rules.checked_content(decision.content or candidate.content, "extraction")


def _dates(candidate: Candidate) -> tuple[str | None, str | None]:
    """The candidate's stated dates, without what is none."""
    valid_from, valid_to = (_stated(day) for day in (candidate.valid_from, candidate.valid_to))
    if valid_from and valid_to and rules.first_day(valid_from) > rules.last_day(valid_to):
        return valid_from, None
    return valid_from, valid_to


def _stated(day: str | None) -> str | None:
    try:
        rules.last_day(day or "")
    except ValueError:
        return None
    return day


def _result(decision: Decision, result: str, reason: str | None = None, fact_id: UUID | None = None) -> DecisionResult:
    return DecisionResult.model_validate(
        {
            "candidate": decision.candidate,
            "action": decision.action,
            "result": result,
            "reason": reason,
            "fact_id": fact_id,
        }
    )

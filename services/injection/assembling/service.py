"""Assembles a prompt: the store is asked while the message is being encoded, and nothing waits for what it does not need."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog

from services.injection.assembling import block
from services.injection.assembling.choosing import best_first, in_block_order, newest_first, within_tokens
from services.injection.assembling.history import said
from services.injection.assembling.schemas import (
    AssembleReply,
    AssembleRequest,
    Degraded,
    InjectedFact,
    Ranking,
    Reason,
)
from services.injection.assembling.threads import ThreadKey, ThreadMemory
from services.injection.authenticating import NOBODY
from services.injection.background import BackgroundWrites
from services.injection.ranking.ranker import Ranker, Reading
from services.injection.settings import InjectionSettings
from shared.auth import Principal
from shared.encoder import EncoderBusyError, ModelUnavailableError, estimate_tokens
from shared.ids import is_anonymous
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.telemetry.metrics import ASSEMBLE_SECONDS, ASSEMBLED

log = structlog.get_logger()

# Kept back from the deadline for writing the answer.
_RESERVE_S = 0.02


@dataclass(frozen=True, slots=True)
class Choice:
    """`workspace` has the best first, else the newest. `scores` only where they were ranked."""

    globals_: Sequence[m.InjectableFact]
    workspace: Sequence[m.InjectableFact]
    ranking: Ranking
    reason: Reason | None = None
    degraded: Degraded | None = None
    scores: Mapping[UUID, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One assemble on its way. `ends` is the loop's time by which it must be answered."""

    ask: AssembleRequest
    listing: m.ListFacts
    reading: Reading | None
    ends: float


class Assembler:
    def __init__(
        self, settings: InjectionSettings, store: MemoryStoreClient, ranker: Ranker | None, writes: BackgroundWrites
    ) -> None:
        self._stand_ins = frozenset(name.casefold() for name in settings.anonymous_users)
        self._deadline_s = settings.assemble_deadline_ms / 1000
        self._rank_deadline_s = settings.rank_deadline_ms / 1000
        self._sticky_margin = settings.sticky_margin
        self._store = store
        self._ranker = ranker
        self._writes = writes
        self._threads = ThreadMemory()

    async def assemble(self, ask: AssembleRequest, who: Principal, *, started: float) -> AssembleReply:
        """The answer within the deadline, counted from `started` (the loop's time), whatever is away.

        Raises Problem not_found for a user or workspace that is not the caller's.
        """
        reply = await self._assemble(ask, who, started + max(self._deadline_s - _RESERVE_S, self._deadline_s / 2))
        ASSEMBLE_SECONDS.observe(asyncio.get_running_loop().time() - started)
        ASSEMBLED.labels(reply.ranking, reply.degraded or "none").inc()
        return reply

    async def _assemble(self, ask: AssembleRequest, who: Principal, ends: float) -> AssembleReply:
        user = ask.user
        if user is None or is_anonymous(user, self._stand_ins):
            return _unchanged(ask, reason="anonymous")
        if who is NOBODY:
            return _unchanged(ask, degraded="store_unavailable")
        who.check_user(user)
        who.check_workspace(ask.workspace)
        listing = m.ListFacts(tenant=who.tenant, user=user, workspace=ask.workspace)
        request = Request(ask, listing, self._start_reading(ask), ends)
        # The encoding starts before the request to the store is built.
        await asyncio.sleep(0)
        try:
            listed = await self._store.list_facts(listing, timeout=ends - asyncio.get_running_loop().time())
            if listed.withheld is not None or not listed.facts:
                return _unchanged(ask, reason=listed.withheld or "no_facts")
            choice = await self._choose(request, listed)
        except RpcError as error:
            if error.code not in ("unavailable", "deadline_exceeded"):
                log.error("list_facts_failed", code=error.code)
            return _unchanged(ask, degraded="store_unavailable")
        finally:
            if request.reading is not None:
                request.reading.cancel()
        return self._answer(request, listed.heading, choice)

    def _start_reading(self, ask: AssembleRequest) -> Reading | None:
        if self._ranker is None or ask.limit == 0:
            return None
        words = said(ask.message, ask.history)
        return self._ranker.start_reading(words.message, words.turns) if words else None

    async def _choose(self, request: Request, listed: m.ListFactsReply) -> Choice:
        limit, budget = request.ask.limit, request.ask.max_tokens
        globals_ = [fact for fact in listed.facts if fact.scope == "global"]
        workspace = [fact for fact in listed.facts if fact.scope != "global"] if limit else []
        if len(workspace) <= limit:
            choice = Choice(globals_, newest_first(workspace), "all" if globals_ or workspace else "none")
            if budget is None:
                return choice
            cut = await self._within_tokens(request, listed.heading, choice, budget)
            if len(cut.workspace) in (0, len(workspace)):
                return cut
            # Some must go, so that it matters which.
        choice = await self._ranked(request, globals_, workspace)
        return choice if budget is None else await self._within_tokens(request, listed.heading, choice, budget)

    async def _ranked(
        self, request: Request, globals_: Sequence[m.InjectableFact], workspace: Sequence[m.InjectableFact]
    ) -> Choice:
        ask = request.ask
        newest = Choice(globals_, newest_first(workspace)[: ask.limit], "newest")
        if self._ranker is None:
            return replace(newest, degraded="ranker_unavailable") if said(ask.message, ask.history) else newest
        if request.reading is None:
            return newest
        until = min(asyncio.get_running_loop().time() + self._rank_deadline_s, request.ends)
        ranked = await self._ranker.rank(request.reading, workspace, request.listing, until=until)
        if isinstance(ranked, str):
            return replace(newest, degraded=ranked)
        if len(workspace) > ask.limit and not ranked.relevant:
            return Choice(globals_, (), "reranked", reason="below_floor")
        scores = {fact.id: float(score) for fact, score in zip(workspace, ranked.scores, strict=True)}
        best = best_first(workspace, scores, previous=self._previous(request), margin=self._sticky_margin)
        return Choice(globals_, best[: ask.limit], "reranked", scores=scores)

    def _previous(self, request: Request) -> frozenset[UUID]:
        if request.ask.previous is not None:
            return frozenset(filter(None, map(_as_uuid, request.ask.previous)))
        key = _thread_key(request)
        return self._threads.recall(key) if key else frozenset()

    async def _within_tokens(self, request: Request, heading: str, choice: Choice, budget: int) -> Choice:
        facts = [*choice.globals_, *choice.workspace]
        lines = [block.heading_line(heading), *(block.bullet(fact.content) for fact in facts)]
        heading_tokens, *counts = await self._count_tokens(lines, request.ends)
        tokens = {fact.id: count for fact, count in zip(facts, counts, strict=True)}
        globals_, workspace = within_tokens(
            choice.globals_,
            choice.workspace,
            budget=budget,
            heading_tokens=heading_tokens,
            tokens=lambda fact: tokens[fact.id],
        )
        return replace(choice, globals_=globals_, workspace=workspace)

    async def _count_tokens(self, lines: Sequence[str], ends: float) -> list[int]:
        """An upper estimate where the ranker cannot be asked: the budget holds, though it may hold fewer facts."""
        if self._ranker is not None:
            try:
                async with asyncio.timeout_at(ends):
                    return await self._ranker.encoder.count_tokens(lines)
            except (TimeoutError, EncoderBusyError, ModelUnavailableError):
                pass
        return [estimate_tokens(line) for line in lines]

    def _answer(self, request: Request, heading: str, choice: Choice) -> AssembleReply:
        ask, listing = request.ask, request.listing
        facts = in_block_order([*choice.globals_, *choice.workspace])
        key = _thread_key(request)
        if key and choice.workspace:
            self._threads.keep(key, [fact.id for fact in choice.workspace])
        if facts:
            self._writes.used(listing.tenant, listing.user, [fact.id for fact in facts])
        text = block.render(heading, (fact.content for fact in facts))
        return AssembleReply(
            system_prompt=block.append(ask.system_prompt, text),
            block=text,
            facts=[
                InjectedFact(id=fact.id, content=fact.content, scope=fact.scope, score=_rounded(choice.scores, fact.id))
                for fact in facts
            ],
            ranking=choice.ranking,
            reason=choice.reason,
            degraded=choice.degraded,
        )


def _unchanged(
    ask: AssembleRequest, *, reason: Reason | None = None, degraded: Degraded | None = None
) -> AssembleReply:
    return AssembleReply(
        system_prompt=ask.system_prompt or "", block="", facts=[], ranking="none", reason=reason, degraded=degraded
    )


def _thread_key(request: Request) -> ThreadKey | None:
    listing, thread = request.listing, request.ask.thread
    return None if thread is None else (listing.tenant, listing.user, listing.workspace, thread)


def _rounded(scores: Mapping[UUID, float], fact: UUID) -> float | None:
    score = scores.get(fact)
    return None if score is None else round(score, 4)


def _as_uuid(value: str) -> UUID | None:
    try:
        return UUID(value)
    except ValueError:
        return None

"""Finds a user's facts for an agent that looks something up."""

import asyncio

from services.injection.assembling.choosing import best_first, newest_first
from services.injection.assembling.schemas import FoundFact, SearchReply, SearchRequest
from services.injection.authenticating import NOBODY
from services.injection.ranking.ranker import Ranker
from shared.auth import Principal
from shared.problems import unavailable
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient

# An agent that looks something up waits longer than a chat does.
_RANK_DEADLINE_S = 1.0


class Search:
    def __init__(self, store: MemoryStoreClient, ranker: Ranker | None) -> None:
        self._store = store
        self._ranker = ranker

    async def search(self, ask: SearchRequest, who: Principal) -> SearchReply:
        """All active facts of the user, global and of the workspace, best first.

        Raises Problem not_found for another's, unavailable; RpcError.
        """
        if who is NOBODY:
            raise unavailable("memory-store does not answer")
        who.check_user(ask.user)
        who.check_workspace(ask.workspace)
        listing = m.ListFacts(tenant=who.tenant, user=ask.user, workspace=ask.workspace)
        reading = self._ranker.start_reading(ask.query.strip()) if self._ranker else None
        listed = await self._store.list_facts(listing)
        if listed.withheld is not None or not listed.facts:
            return SearchReply(items=[], degraded=None)
        newest = newest_first(listed.facts)[: ask.limit]
        if self._ranker is None or reading is None:
            return SearchReply(items=[_found(fact, None) for fact in newest], degraded="ranker_unavailable")
        until = asyncio.get_running_loop().time() + _RANK_DEADLINE_S
        ranked = await self._ranker.rank(reading, listed.facts, listing, until=until)
        if isinstance(ranked, str):
            return SearchReply(items=[_found(fact, None) for fact in newest], degraded=ranked)
        scores = {fact.id: float(score) for fact, score in zip(listed.facts, ranked.scores, strict=True)}
        best = best_first(listed.facts, scores)[: ask.limit]
        return SearchReply(items=[_found(fact, scores[fact.id]) for fact in best], degraded=None)


def _found(fact: m.InjectableFact, score: float | None) -> FoundFact:
    return FoundFact(
        id=fact.id, content=fact.content, scope=fact.scope, score=None if score is None else round(score, 4)
    )

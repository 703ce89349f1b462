"""What an answer leaves to write: uses and new vectors, sent to the store after the answer."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import structlog

from shared.encoder import Vector
from shared.encoder.vectors import pack
from shared.loops import Loops
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError

log = structlog.get_logger()
T = TypeVar("T")

PAUSE_S = 1.0
MAX_QUEUED = 5_000
MAX_PER_CALL = 200
_LOOP = "background_writes"


class BackgroundWrites:
    """Bounded, the oldest dropped; what the store does not take at once is lost. A lost use or vector costs nothing but itself."""

    def __init__(self, store: MemoryStoreClient, loops: Loops) -> None:
        self._store = store
        self._loops = loops
        self._uses: deque[tuple[str, str, UUID]] = deque(maxlen=MAX_QUEUED)
        self._vectors: deque[tuple[str, str, str, m.FactVector]] = deque(maxlen=MAX_QUEUED)
        loops.register(_LOOP, bound_s=30)

    def used(self, tenant: str, user: str, facts: Iterable[UUID]) -> None:
        self._uses.extend((tenant, user, fact) for fact in facts)

    def computed(self, tenant: str, user: str, encoder: str, fact: m.InjectableFact, vector: Vector) -> None:
        kept = m.FactVector(fact_id=fact.id, version=fact.version, vector=pack(vector))
        self._vectors.append((tenant, user, encoder, kept))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            self._loops.beat(_LOOP)
            await self.flush()

    async def flush(self) -> None:
        """Sends what is queued now."""
        vectors, uses = list(self._vectors), list(self._uses)
        self._vectors.clear()
        self._uses.clear()
        try:
            for puts in _puts(vectors):
                self._loops.beat(_LOOP)
                await self._store.put_vectors(puts, timeout=2.0)
            for use in _records(uses):
                self._loops.beat(_LOOP)
                await self._store.record_use(use, timeout=2.0)
        except RpcError as error:
            log.warning("background_writes_lost", code=error.code)


def _puts(queued: Iterable[tuple[str, str, str, m.FactVector]]) -> Iterator[m.PutVectors]:
    of_person: defaultdict[tuple[str, str, str], list[m.FactVector]] = defaultdict(list)
    for tenant, user, encoder, vector in queued:
        of_person[tenant, user, encoder].append(vector)
    for (tenant, user, encoder), vectors in of_person.items():
        for some in _pages(vectors):
            yield m.PutVectors(tenant=tenant, user=user, encoder=encoder, vectors=some)


def _records(queued: Iterable[tuple[str, str, UUID]]) -> Iterator[m.RecordUse]:
    of_person: defaultdict[tuple[str, str], list[UUID]] = defaultdict(list)
    for tenant, user, fact in queued:
        of_person[tenant, user].append(fact)
    at = datetime.now(UTC)
    for (tenant, user), facts in of_person.items():
        for some in _pages(facts):
            yield m.RecordUse(tenant=tenant, user=user, fact_ids=some, at=at)


def _pages(items: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), MAX_PER_CALL):
        yield items[start : start + MAX_PER_CALL]

"""Vectors of facts and turns: kept in this process, else asked from the store, else computed once and put there."""

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from services.injection.background import BackgroundWrites
from services.injection.ranking.scripts import covers
from shared.encoder import MAX_TEXT, Encoder, Vector
from shared.encoder.vectors import unpack
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Keys = tuple[tuple[UUID, int], ...]


class Recent(Generic[K, V]):
    """The `size` entries that were used last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: K, entry: V) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Known:
    """What is kept of a fact's text: its vector, and whether the ranker reads its language."""

    vector: Vector
    covered: bool


class FactVectors:
    """10,000 facts are 20 MB with 512 values each. Holds no text, so that an erased fact leaves none here."""

    def __init__(
        self,
        encoder: Encoder,
        store: MemoryStoreClient,
        writes: BackgroundWrites,
        scripts: frozenset[str],
        *,
        size: int = 10_000,
    ) -> None:
        self._encoder = encoder
        self._store = store
        self._writes = writes
        self._scripts = scripts
        self._known: Recent[tuple[UUID, int], Known] = Recent(size)
        self._filling: dict[Keys, asyncio.Task[list[Known]]] = {}

    async def of(self, facts: Sequence[m.InjectableFact], listing: m.ListFacts) -> list[Known]:
        """One per fact of `listing`. What a caller does not wait for is made all the same, once for all who ask, and is there next time.

        Raises EncoderBusyError, ModelUnavailableError.
        """
        keys = tuple((fact.id, fact.version) for fact in facts)
        known = [self._known.get(key) for key in keys]
        if None not in known:
            return [one for one in known if one is not None]
        filling = self._filling.get(keys)
        if filling is None:
            filling = self._filling[keys] = asyncio.create_task(self._fill(facts, listing))
            filling.add_done_callback(lambda done: self._filled(keys, done))
        return await asyncio.shield(filling)

    def _filled(self, keys: Keys, done: "asyncio.Task[list[Known]]") -> None:
        del self._filling[keys]
        if not done.cancelled():
            done.exception()  # Its callers may have gone.

    async def _fill(self, facts: Sequence[m.InjectableFact], listing: m.ListFacts) -> list[Known]:
        await self._take_stored(listing)
        known = {fact.id: self._known.get((fact.id, fact.version)) for fact in facts}
        for some in _by_size([fact for fact in facts if known[fact.id] is None]):
            vectors = await self._encoder.encode_passages([fact.content for fact in some])
            for fact, vector in zip(some, vectors, strict=True):
                self._writes.computed(listing.tenant, listing.user, self._encoder.model.name, fact, vector)
                known[fact.id] = self._keep(fact, vector)
        return [one for fact in facts if (one := known[fact.id]) is not None]

    async def _take_stored(self, listing: m.ListFacts) -> None:
        asking = listing.model_copy(update={"encoder": self._encoder.model.name, "vectors": True})
        try:
            stored = await self._store.list_facts(asking)
        except RpcError:
            return  # They can be computed.
        for fact in stored.facts:
            if fact.vector is not None:
                # The store took it from a PutVectors of this encoder; one that is broken is computed again.
                with contextlib.suppress(ValueError):
                    self._keep(fact, unpack(fact.vector))

    def _keep(self, fact: m.InjectableFact, vector: Vector) -> Known:
        known = Known(vector, covers(self._scripts, fact.content))
        self._known.put((fact.id, fact.version), known)
        return known


def _by_size(facts: Iterable[m.InjectableFact]) -> Iterator[list[m.InjectableFact]]:
    """Pages that take the encoder about as long as the longest message does."""
    page: list[m.InjectableFact] = []
    size = 0
    for fact in facts:
        if page and size + len(fact.content) > MAX_TEXT:
            yield page
            page, size = [], 0
        page.append(fact)
        size += len(fact.content)
    if page:
        yield page


class QueryVectors:
    """Vectors of messages: each is the last turn of the next request. Known by the text's hash, so that no text stays here."""

    def __init__(self, encoder: Encoder, *, size: int = 4_000) -> None:
        self._encoder = encoder
        self._known: Recent[bytes, Vector] = Recent(size)

    async def of(self, texts: Iterable[str]) -> list[Vector]:
        return [await self._one(text) for text in texts]

    async def _one(self, text: str) -> Vector:
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        vector = self._known.get(key)
        if vector is None:
            vector = await self._encoder.encode_query(text)
            self._known.put(key, vector)
        return vector

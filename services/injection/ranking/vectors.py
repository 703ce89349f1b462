"""Vectors of facts and turns: kept in this process, else asked from the store, else computed once and put there."""

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from services.injection.background import BackgroundWrites
from services.injection.ranking.scripts import covers
from shared.encoder import Encoder, Vector
from shared.encoder.vectors import unpack
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The `size` entries that were used last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._entries

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

    def __init__(self, encoder: Encoder, scripts: frozenset[str], *, size: int = 10_000) -> None:
        self._encoder = encoder
        self._scripts = scripts
        self._known: Recent[tuple[UUID, int], Known] = Recent(size)

    async def of(
        self,
        facts: Sequence[m.InjectableFact],
        store: MemoryStoreClient,
        writes: BackgroundWrites,
        listing: m.ListFacts,
    ) -> list[Known]:
        """One per fact of `listing`. A caller that gives up leaves the vectors made so far, here and for the store.

        Raises EncoderBusyError, ModelUnavailableError.
        """
        if any((fact.id, fact.version) not in self._known for fact in facts):
            await self._take_stored(store, listing)
        known: list[Known] = []
        for fact in facts:
            one = self._known.get((fact.id, fact.version))
            if one is None:
                vector = await self._encoder.encode_passage(fact.content)
                writes.computed(listing.tenant, listing.user, self._encoder.model.name, fact, vector)
                one = self._keep(fact, vector)
            known.append(one)
        return known

    async def _take_stored(self, store: MemoryStoreClient, listing: m.ListFacts) -> None:
        asking = listing.model_copy(update={"encoder": self._encoder.model.name, "vectors": True})
        try:
            stored = await store.list_facts(asking)
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

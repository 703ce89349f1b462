"""The service on a store in memory and a model of words, so that a test decides what each of them does."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from services.injection.assembling.schemas import AssembleReply, AssembleRequest
from services.injection.assembling.service import Assembler
from services.injection.background import BackgroundWrites
from services.injection.ranking.ranker import Ranker
from services.injection.settings import InjectionSettings
from shared.auth import Principal
from shared.encoder import Encoder, Vector
from shared.loops import Loops
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError

OPERATOR = Principal("default", "operator", frozenset(), operator=True)


class StoreInMemory(MemoryStoreClient):
    """Facts by user. `error` or `delay_s` is what every call meets."""

    def __init__(self) -> None:
        super().__init__("http://store.invalid", "key")
        self.facts: dict[str, list[m.InjectableFact]] = {}
        self.withheld: Any = None
        self.heading = "## Things I Remember About You"
        self.error: RpcError | None = None
        self.delay_s = 0.0
        self.vectors: dict[tuple[str, int, int], str] = {}
        self.listed: list[m.ListFacts] = []
        self.puts: list[m.PutVectors] = []
        self.uses: list[m.RecordUse] = []

    async def list_facts(self, request: m.ListFacts, *, timeout: float = 1.0) -> m.ListFactsReply:
        self.listed.append(request)
        await self._meet(timeout)
        facts = [] if self.withheld else self.facts.get(request.user, [])
        if request.vectors:
            facts = [
                one.model_copy(update={"vector": self.vectors.get((request.encoder or "", one.id.int, one.version))})
                for one in facts
            ]
        return m.ListFactsReply(facts=facts, withheld=self.withheld, heading=self.heading)

    async def put_vectors(self, request: m.PutVectors, *, timeout: float = 1.0) -> m.Done:
        await self._meet(timeout)
        self.puts.append(request)
        for one in request.vectors:
            self.vectors[request.encoder, one.fact_id.int, one.version] = one.vector
        return m.Done()

    async def record_use(self, request: m.RecordUse, *, timeout: float = 1.0) -> m.Done:
        await self._meet(timeout)
        self.uses.append(request)
        return m.Done()

    async def _meet(self, timeout: float) -> None:
        if self.error:
            raise self.error
        if self.delay_s > timeout:
            await asyncio.sleep(timeout)
            raise RpcError("deadline_exceeded")
        await asyncio.sleep(self.delay_s)


class WordModel:
    """A text's vector counts the words it shares with `WORDS`; a text without one points elsewhere. Counts a token per word."""

    WORDS = ("tea", "job", "dog", "car", "music", "city", "food", "code")

    def __init__(self, languages: tuple[str, ...] = ("en",)) -> None:
        self.name = "words"
        self.ranker = SimpleNamespace(languages=list(languages), floor=0.2)
        self.encoded: list[str] = []
        self.failing: Exception | None = None

    def encode_query(self, text: str) -> Vector:
        self.encoded.append(text)
        if self.failing:
            raise self.failing
        counts = [float(text.lower().count(word)) for word in self.WORDS]
        vector = np.array([*counts, 0.0 if any(counts) else 1.0], dtype=np.float32)
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)

    def encode_passages(self, texts: list[str]) -> list[Vector]:
        return [self.encode_query(text) for text in texts]

    def count_tokens(self, texts: list[str]) -> list[int]:
        return [len(text.split()) for text in texts]


class Service:
    """`assemble(…)` with what a request has; user ada unless another is named."""

    def __init__(self, store: StoreInMemory, model: WordModel | None, **settings: Any) -> None:
        made = InjectionSettings(service_key=SecretStr("key"), **settings)
        stand_in: Any = model
        self.store = store
        self.model = model
        self.writes = BackgroundWrites(store, Loops())
        self.encoder = Encoder(stand_in) if model else None
        self.ranker = Ranker(self.encoder, store, self.writes, made) if self.encoder else None
        self.assembler = Assembler(made, store, self.ranker, self.writes)

    async def assemble(self, who: Principal = OPERATOR, **ask: Any) -> AssembleReply:
        started = asyncio.get_running_loop().time()
        return await self.assembler.assemble(
            AssembleRequest.model_validate({"user": "ada"} | ask), who, started=started
        )

    def close(self) -> None:
        if self.encoder:
            self.encoder.close()


@pytest.fixture
def store() -> StoreInMemory:
    return StoreInMemory()


@pytest.fixture
def make(store: StoreInMemory) -> Iterator[Any]:
    made: list[Service] = []

    def service(model: WordModel | None, **settings: Any) -> Service:
        made.append(Service(store, model, **settings))
        return made[-1]

    yield service
    for one in made:
        one.close()


@pytest.fixture
def model() -> WordModel:
    return WordModel()


@pytest.fixture
def service(make: Any, model: WordModel) -> Service:
    ready: Service = make(model)
    return ready

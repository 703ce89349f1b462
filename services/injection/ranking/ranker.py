"""Ranks facts for what was said, with a bi-encoder's vectors."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import structlog

from services.injection.background import BackgroundWrites
from services.injection.ranking.english import is_english
from services.injection.ranking.first_person import third_person
from services.injection.ranking.scoring import fit
from services.injection.ranking.scripts import covers, scripts_of
from services.injection.ranking.vectors import FactVectors, QueryVectors
from services.injection.settings import InjectionSettings
from shared.encoder import Encoder, EncoderBusyError, ModelUnavailableError, Vector, load_model
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.telemetry.metrics import RANK_DROPPED, RANK_QUEUE, RANK_SECONDS

log = structlog.get_logger()

RankFailure = Literal["ranker_timeout", "ranker_unavailable", "language"]


@dataclass(frozen=True, slots=True)
class Read:
    """Vectors of a message and of the turns before it. `floor` None: nothing is too far from the message."""

    message: Vector
    turns: list[Vector]
    floor: float | None


Reading = asyncio.Task[Read]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A score per fact, and whether the best reaches the floor."""

    scores: Vector
    relevant: bool


class LanguageNotReadError(Exception):
    """What was said, or most of the facts, is in a script that the ranker was not trained on."""


class Ranker:
    """Belongs to one event loop; `close` ends its thread."""

    def __init__(
        self, encoder: Encoder, store: MemoryStoreClient, writes: BackgroundWrites, settings: InjectionSettings
    ) -> None:
        ranker = encoder.model.ranker
        self.encoder = encoder
        self._floor = settings.min_relevance
        # On- and off-topic lie apart in English alone (AUC 0.99; Spanish, Chinese and Arabic 0.6 to 0.8): elsewhere a floor that
        # nobody asked for would take away more than it keeps clean.
        self._english_floor = ranker.floor
        self._weight = settings.history_weight
        self._scripts = scripts_of(ranker.languages)
        self._english = "en" in ranker.languages
        self._facts = FactVectors(encoder, store, writes, self._scripts)
        self._queries = QueryVectors(encoder)
        RANK_QUEUE.set_function(lambda: encoder.waiting)

    def start_reading(self, message: str, turns: Sequence[str] = ()) -> Reading:
        reading = asyncio.create_task(self._read(message, turns))
        # One that nobody needs any more may fail unheard.
        reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return reading

    async def _read(self, message: str, turns: Sequence[str]) -> Read:
        if not covers(self._scripts, message):
            raise LanguageNotReadError
        texts = [message, *(turn for turn in turns if covers(self._scripts, turn))]
        vectors = await self._queries.of(third_person(text) if self._english else text for text in texts)
        floor = self._english_floor if self._floor is None and is_english(message) else self._floor
        return Read(vectors[0], vectors[1:], floor)

    async def rank(
        self, reading: Reading, facts: Sequence[m.InjectableFact], listing: m.ListFacts, *, until: float
    ) -> Ranked | RankFailure:
        """How well each fact fits, or what kept the ranker from saying so by `until` (the loop's time).

        Vectors that neither this process nor the store has are computed, also when time runs out: the next answer has them.
        """
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(until):
                known = await self._facts.of(facts, listing)
                if sum(one.covered for one in known) * 2 < len(known):
                    return "language"
                read = await reading
        except LanguageNotReadError:
            return "language"
        except (TimeoutError, EncoderBusyError):
            RANK_DROPPED.inc()
            return "ranker_timeout"
        except ModelUnavailableError:
            return "ranker_unavailable"
        fits = fit(np.stack([one.vector for one in known]), read.message, read.turns, weight=self._weight)
        RANK_SECONDS.observe(asyncio.get_running_loop().time() - started)
        return Ranked(fits.score, read.floor is None or bool(fits.relevance.max() >= read.floor))


async def load_encoder(folder: Path) -> Encoder | None:
    """None, with one warning, where the model is missing or broken: the newest facts serve."""
    try:
        model = await asyncio.to_thread(load_model, folder)
    except ModelUnavailableError as error:
        log.warning(
            "ranker_unavailable", problem=str(error), fix="python -m deploy models fetch, then KEEPSAKE_RANKER_MODEL"
        )
        return None
    log.info("ranker_loaded", encoder=model.name)
    return Encoder(model)

"""From a claimed window to candidates and decisions: with the run's model, or offline where none is configured."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.extraction import offline
from services.extraction.models.faults import TryFailed
from services.extraction.models.gate import Turn
from services.extraction.observer.candidates import select
from services.extraction.observer.observe import Shorten, observe
from services.extraction.observer.own_words import without_memory_blocks
from services.extraction.prompts import VERSION
from services.extraction.reflector.reflect import reflect
from shared.rpc.messages import Candidate, CandidateRecord, ClaimedRun, CompleteRun, Decision, FailRun

if TYPE_CHECKING:
    from services.extraction.models.client import ModelClient


@dataclass(slots=True)
class Extraction:
    """What a try has found so far. `candidates` begin with those that were kept, so that their indexes are the run's."""

    run: ClaimedRun
    max_candidates: int
    candidates: list[CandidateRecord] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def kept(self) -> list[Candidate]:
        return [record.candidate for record in self.candidates if record.dropped is None]

    async def work(self, models: "Mapping[str, ModelClient]", turn: Turn, shorten: Shorten) -> None:
        """Raises TryFailed."""
        if self.run.model is None:
            await asyncio.to_thread(self._offline)
            return
        model = models.get(self.run.model)
        if model is None:
            raise TryFailed("released", "unknown_model")
        self.candidates = await observe(self.run, model, turn, self.max_candidates, shorten)
        if self.kept:
            self.decisions = await reflect(self.run, self.kept, model, turn)

    def _offline(self) -> None:
        heading = self.run.heading
        prompts = {chat.event_id: chat.prompt for chat in self.run.chats}
        found = offline.observe(
            [
                chat.model_copy(update={"prompt": without_memory_blocks(chat.prompt, heading)})
                for chat in self.run.chats
            ],
            self.run.zone,
        )
        self.candidates = select([candidate.model_dump() for candidate in found], prompts, self.max_candidates, heading)
        if self.kept:
            self.decisions = offline.reflect(self.kept, self.run.facts, self.run.free)

    def completion(self) -> CompleteRun:
        return CompleteRun(
            run_id=self.run.run_id,
            extractor="offline" if self.run.model is None else "model",
            model=self.run.model,
            prompt_version=VERSION if self.run.model else None,
            candidates=self.candidates,
            decisions=self.decisions,
        )

    def failure(self, failed: TryFailed, *, retry_after_ms: int = 0) -> FailRun:
        return FailRun(
            run_id=self.run.run_id,
            outcome=failed.outcome,
            reason=failed.reason,
            retry_after_ms=retry_after_ms,
            extractor="offline" if self.run.model is None else "model",
            model=self.run.model,
            prompt_version=VERSION if self.run.model else None,
            candidates=self.candidates,
        )

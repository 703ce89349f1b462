"""The breaker of one model entry at work: who may ask, and what a failed try comes to."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import structlog

from services.extraction.models.breaker import BatchKey, Breaker
from services.extraction.models.faults import ModelFault, TryFailed, TryOutcome
from shared.telemetry.metrics import BREAKER_STATE

log = structlog.get_logger()

OUTCOMES: dict[str, TryOutcome] = {
    "down": "released",
    "unsupported": "model_unsupported",
    "server": "model_failed",
    "timeout": "timed_out",
    "rejected": "model_failed",
    "unreadable": "unreadable",
}
# Looks for other batches that find none, before one batch's failure is taken for its own.
LOOKS = 2


@dataclass(frozen=True, slots=True)
class Turn:
    """A run's dealings with its entry. `aside` gives the worker's slot away while it is entered."""

    batch: BatchKey
    probe: bool
    aside: Callable[[], AbstractContextManager[None]]


class Gate:
    """A try that met a 5xx or a timeout is a *suspect*: whether it failed or the provider did shows when other batches ask. It keeps
    its lease and waits for that, outside the worker's slots: until the provider answers someone (it failed), the breaker opens (it is
    released), nobody else is there to ask, or `patience_s` is over (it failed).
    """

    def __init__(self, name: str, *, probe_s: float, patience_s: float) -> None:
        self.name = name
        self.breaker = Breaker(probe_s)
        self.asking = 0
        self._patience_s = patience_s
        self._suspects: list[asyncio.Future[bool]] = []
        self._looks = 0
        BREAKER_STATE.labels(name).set(0)

    def admits(self) -> bool:
        was = self.breaker.state
        admits = self.breaker.admits(time.monotonic())
        self._tell(was)
        return admits

    def start_probe_if_due(self) -> bool:
        now = time.monotonic()
        due = self.breaker.probe_due(now)
        if due:
            self.breaker.start_probe(now)
        return due

    def no_probe(self) -> None:
        self.breaker.no_probe(time.monotonic())

    async def enter(self, turn: Turn) -> None:
        """Before each request. Raises TryFailed released where the entry has been found out of service meanwhile."""
        if turn.probe:
            await asyncio.sleep(max(0.0, self.breaker.settles_in(time.monotonic())))
        elif not self.admits():
            raise TryFailed("released", self.breaker.reason)

    def answered(self, turn: Turn) -> None:
        self.breaker.answered(time.monotonic(), probe=turn.probe)
        self._judge(outage=False)

    async def failed(self, fault: ModelFault, turn: Turn) -> TryFailed:
        """What the try comes to; a suspect's answer takes until others have asked."""
        was = self.breaker.state
        self.breaker.failed(fault.kind, fault.reason, turn.batch, time.monotonic(), probe=turn.probe)
        self._tell(was)
        outcome = OUTCOMES[fault.kind]
        if fault.kind in ("rejected", "unreadable"):
            self._judge(outage=False)
        elif self.breaker.state != "closed":
            self._judge(outage=True)
            outcome = outcome if outcome == "model_unsupported" else "released"
        elif await self._suspect(turn):
            outcome = "released"
        return TryFailed(outcome, fault.reason)

    def nobody_else(self) -> None:
        """A look for due batches found none."""
        self._looks += 1
        if self._looks >= LOOKS and not self.asking:
            self._judge(outage=False)

    def give_up(self) -> None:
        """No more looks for other batches: who waits for a verdict is given the benefit of the doubt."""
        self._judge(outage=True)

    async def _suspect(self, turn: Turn) -> bool:
        verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._suspects.append(verdict)
        self._looks = 0
        self.asking -= 1
        try:
            with turn.aside():
                async with asyncio.timeout(self._patience_s):
                    return await verdict
        except TimeoutError:
            return False
        finally:
            self.asking += 1
            if verdict in self._suspects:
                self._suspects.remove(verdict)

    def _judge(self, *, outage: bool) -> None:
        for verdict in self._suspects:
            if not verdict.done():
                verdict.set_result(outage)
        self._suspects.clear()

    def _tell(self, was: str) -> None:
        closed = self.breaker.state == "closed"
        BREAKER_STATE.labels(self.name).set(0 if closed else 1)
        if was == "closed" and not closed:
            log.warning("model_out", model=self.name, reason=self.breaker.reason)
        elif was != "closed" and closed:
            log.info("model_back", model=self.name)

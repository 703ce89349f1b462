"""A breaker per model entry: a provider outage burns nobody's attempts. Pure: time is given, nothing waits here.

    closed ──down, unsupported, or the third batch in a row──► open ──probe due──► probing ──answer──► settling ──1 s──► closed
                                                                ▲                     │
                                                                └────outage again─────┘

While it is not closed, batches of the entry are not claimed, but for one probe run every `probe_s`. A probe that got its answer lets
the others in a second later, so that a provider that comes back is met by one request and not by all who waited. What runs that
were under way before still report while it is not closed changes nothing.
"""

from dataclasses import dataclass, field
from typing import Literal

from services.extraction.models.faults import FaultKind

BATCHES_IN_A_ROW = 3
SETTLE_S = 1.0

State = Literal["closed", "open", "probing", "settling"]
BatchKey = tuple[str, str, str]


@dataclass(slots=True)
class Breaker:
    probe_s: float
    state: State = "closed"
    reason: str = ""
    _since: float = 0.0
    _in_a_row: set[BatchKey] = field(default_factory=set)

    def admits(self, now: float) -> bool:
        """Whether batches of this entry may be claimed."""
        if self.state == "settling" and self.settles_in(now) <= 0:
            self._to("closed", now)
        return self.state == "closed"

    def settles_in(self, now: float) -> float:
        """Seconds until a further request is welcome."""
        return self._since + SETTLE_S - now if self.state == "settling" else 0.0

    def probe_due(self, now: float) -> bool:
        return self.state == "open" and now - self._since >= self.probe_s

    def start_probe(self, now: float) -> None:
        self._to("probing", now)

    def no_probe(self, now: float) -> None:
        """There was nothing to probe with, or the run ended without asking the model: try again after `probe_s`."""
        if self.state == "probing":
            self._to("open", now)

    def answered(self, now: float, *, probe: bool = False) -> None:
        """The provider serves: it replied, readable or not, or refused this one request."""
        self._in_a_row.clear()
        if probe and self.state == "probing":
            self._to("settling", now)

    def failed(self, kind: FaultKind, reason: str, batch: BatchKey, now: float, *, probe: bool = False) -> None:
        if kind in ("rejected", "unreadable"):
            self.answered(now, probe=probe)
            return
        if self.state != "closed" and not probe:
            return
        self._in_a_row.add(batch)
        if probe or kind in ("down", "unsupported") or len(self._in_a_row) >= BATCHES_IN_A_ROW:
            self._in_a_row.clear()
            self.reason = reason
            self._to("open", now)

    def _to(self, state: State, now: float) -> None:
        self.state, self._since = state, now

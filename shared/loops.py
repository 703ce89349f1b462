"""The heartbeat of a service's loops: a service is alive while each of them moves."""

import time
from dataclasses import dataclass

from shared.telemetry.metrics import LOOP_LAST_PROGRESS


@dataclass(slots=True)
class _Loop:
    bound_s: float
    last: float


class Loops:
    """Each loop says once how often it moves at the slowest (`bound_s`) and then `beat`s. Waiting for a dependency in bounded
    pauses is moving: liveness never depends on another service."""

    def __init__(self) -> None:
        self._loops: dict[str, _Loop] = {}

    def register(self, name: str, *, bound_s: float) -> None:
        self._loops[name] = _Loop(bound_s, 0.0)
        self.beat(name)

    def beat(self, name: str) -> None:
        self._loops[name].last = time.monotonic()
        LOOP_LAST_PROGRESS.labels(name).set_to_current_time()

    def unregister(self, name: str) -> None:
        self._loops.pop(name, None)

    def stalled(self) -> list[str]:
        """Loops that have not moved for twice their bound."""
        now = time.monotonic()
        return [name for name, loop in self._loops.items() if now - loop.last > 2 * loop.bound_s]

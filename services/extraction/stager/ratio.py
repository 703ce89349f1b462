"""The guard against a release that finds everything bad: too large a share of dead letters stops the stager."""

from collections import deque
from collections.abc import Iterable

WINDOW = 200


class DeadRatio:
    """The share of dead letters among the last 200 records since start."""

    def __init__(self, limit: float) -> None:
        self._limit = limit * WINDOW
        self._last: deque[bool] = deque(maxlen=WINDOW)
        self._dead = 0

    def crossed_by(self, dead: Iterable[bool]) -> bool:
        """Counts one poll's records; True where more than the limit were dead at any of them."""
        crossed = False
        for record in dead:
            if len(self._last) == WINDOW and self._last[0]:
                self._dead -= 1
            self._last.append(record)
            self._dead += record
            crossed = crossed or self._dead > self._limit
        return crossed

"""Growing, jittered pauses between tries."""

import random


def jittered(seconds: float) -> float:
    """Between half of `seconds` and `seconds`, so that many who failed together do not come back together."""
    return seconds * (0.5 + random.random() / 2)  # noqa: S311 (spreads load, guards nothing)


class Backoff:
    """Doubles from `base` to `maximum` seconds with each `next_pause`; `reset` after a success."""

    def __init__(self, base: float, maximum: float) -> None:
        self._base = base
        self._maximum = maximum
        self._failures = 0

    def next_pause(self) -> float:
        pause = min(self._base * 2.0 ** min(self._failures, 30), self._maximum)
        self._failures += 1
        return jittered(pause)

    def reset(self) -> None:
        self._failures = 0

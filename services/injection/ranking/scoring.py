"""How well each fact fits what was said. Vectors are normalised, so that a product is a cosine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.encoder import Vector

DECAY = 0.4
"""What a turn counts beside the one after it. Measured: 0.3, 0.4 and 0.6 differ by 0.02 or less in recall."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Per fact: `score` orders, `relevance` (a cosine) is what the floor is compared with."""

    score: Vector
    relevance: Vector


def fit(facts: npt.NDArray[np.float32], message: Vector, turns: Sequence[Vector], *, weight: float) -> Fit:
    """score = cos(message) + weight · max over turns of 0.4^age · cos(turn); age 0 is the last turn.

    Message and turns apart: joined into one text a change of topic costs 0.1 to 0.25 of recall. With weight 0.6 and
    use-multilingual-v3: recall@5 0.81 after a change of topic, 0.82 for "tell me more"; 0.85 without history. Relevance takes
    the better of message and turns, not their sum, so that "tell me more" passes the floor by the turn it follows (95 % do, by
    the sum 66 %).
    """
    by_message = facts @ message
    if not turns:
        return Fit(by_message, by_message)
    by_turns = (facts @ np.stack(turns, axis=1)) * (DECAY ** np.arange(len(turns), dtype=np.float32))
    best = by_turns.max(axis=1)
    return Fit(by_message + np.float32(weight) * best, np.maximum(by_message, best))

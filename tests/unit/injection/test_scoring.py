import numpy as np
import pytest

from services.injection.ranking.scoring import fit
from shared.encoder import Vector

# Three facts along three axes.
FACTS = np.eye(3, dtype=np.float32)


def along(*parts: float) -> Vector:
    return np.array(parts, dtype=np.float32)


def test_without_turns_the_score_is_the_cosine() -> None:
    ranked = fit(FACTS, along(0.6, 0.8, 0), [], weight=0.6)
    assert ranked.score.tolist() == pytest.approx([0.6, 0.8, 0])
    assert ranked.relevance.tolist() == pytest.approx([0.6, 0.8, 0])


def test_a_turn_counts_less_with_each_turn_after_it() -> None:
    turns = [along(0, 1, 0), along(0, 0, 1), along(1, 0, 0)]
    ranked = fit(FACTS, along(0, 0, 0), turns, weight=0.5)
    assert ranked.score.tolist() == pytest.approx([0.5 * 0.16, 0.5, 0.5 * 0.4])


def test_the_best_turn_counts_not_their_sum() -> None:
    ranked = fit(FACTS, along(1, 0, 0), [along(0, 0.5, 0), along(0, 0.5, 0)], weight=1.0)
    assert ranked.score.tolist() == pytest.approx([1, 0.5, 0])


def test_relevance_of_a_vague_message_comes_from_the_turn_before() -> None:
    ranked = fit(FACTS, along(0.1, 0.1, 0.1), [along(0, 1, 0)], weight=0.6)
    assert ranked.relevance.tolist() == pytest.approx([0.1, 1, 0.1])

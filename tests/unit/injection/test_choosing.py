from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from services.injection.assembling.choosing import best_first, in_block_order, newest_first, within_tokens
from shared.rpc import messages as m
from tests.unit.injection.facts import DAY_ONE, fact, numbers

FACTS = [fact(number) for number in range(1, 7)]


def scored(*scores: float) -> dict[UUID, float]:
    return {one.id: score for one, score in zip(FACTS, scores, strict=True)}


def test_newest_is_the_last_changed_or_confirmed() -> None:
    old_but_confirmed = fact(0, newest_at=FACTS[-1].newest_at.replace(year=2028))
    assert numbers(newest_first([*FACTS, old_but_confirmed])) == [0, 6, 5, 4, 3, 2, 1]


def test_use_decides_only_between_equally_new_facts() -> None:
    facts = [fact(1, use_count=50), fact(2, newest_at=fact(1).newest_at), fact(3)]
    assert numbers(newest_first(facts)) == [3, 1, 2]


def test_best_first() -> None:
    assert numbers(best_first(FACTS, scored(0.1, 0.6, 0.2, 0.5, 0.3, 0.4))) == [2, 4, 6, 5, 3, 1]


def test_of_equal_scores_the_newest_is_first() -> None:
    assert numbers(best_first(FACTS, scored(*[0.5] * 6))) == [6, 5, 4, 3, 2, 1]


def test_fact_of_the_thread_stays_within_the_margin_and_goes_beyond_it() -> None:
    previous = {FACTS[0].id}
    near, far = scored(0.40, 0.42, 0, 0, 0, 0), scored(0.40, 0.44, 0, 0, 0, 0)
    assert numbers(best_first(FACTS, near, previous=previous, margin=0.03))[:1] == [1]
    assert numbers(best_first(FACTS, far, previous=previous, margin=0.03))[:1] == [2]


def test_fact_that_is_gone_does_not_come_back_as_previous() -> None:
    assert 99 not in numbers(best_first(FACTS, scored(*[0.1] * 6), previous={UUID(int=99)}, margin=1))


@given(st.permutations(FACTS))
def test_order_in_the_block_depends_on_the_set_alone(facts: list[m.InjectableFact]) -> None:
    globals_ = [fact(8, scope="global"), fact(7, scope="global")]
    assert numbers(in_block_order([*facts, *globals_])) == [7, 8, 1, 2, 3, 4, 5, 6]


def test_facts_created_together_are_ordered_by_id() -> None:
    assert numbers(in_block_order([fact(2, created_at=DAY_ONE), fact(1, created_at=DAY_ONE)])) == [1, 2]


def fitting(budget: int) -> tuple[list[int], list[int]]:
    """Two globals of 10 tokens, three ranked facts of 5, a heading of 4: 39 in all."""
    globals_, ranked = within_tokens(
        [fact(12, scope="global"), fact(11, scope="global")],
        [FACTS[2], FACTS[0], FACTS[1]],
        budget=budget,
        heading_tokens=4,
        tokens=lambda one: 10 if one.scope == "global" else 5,
    )
    return numbers(globals_), numbers(ranked)


def test_lowest_scored_workspace_fact_leaves_first_then_the_oldest_global() -> None:
    assert fitting(39) == ([11, 12], [3, 1, 2])
    assert fitting(38) == ([11, 12], [3, 1])
    assert fitting(29) == ([11, 12], [3])
    assert fitting(24) == ([11, 12], [])
    assert fitting(23) == ([12], [])
    assert fitting(13) == ([], [])
    assert fitting(0) == ([], [])

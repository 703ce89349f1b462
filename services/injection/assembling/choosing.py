"""Which facts a prompt gets, and in which order. Pure functions over facts and their scores."""

from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from shared.rpc.messages import InjectableFact

Scores = Mapping[UUID, float]


def newest_first(facts: Sequence[InjectableFact]) -> list[InjectableFact]:
    """Last change or confirmation first; ties by use, then id, as memory-store lists them."""
    return sorted(facts, key=lambda fact: (fact.newest_at, fact.use_count, fact.id), reverse=True)


def best_first(
    facts: Sequence[InjectableFact], scores: Scores, *, previous: Collection[UUID] = (), margin: float = 0.0
) -> list[InjectableFact]:
    """Highest score first; a `previous` fact gives way only to one that scores more than `margin` above it. Ties: the newest."""
    lead = {fact.id: margin if fact.id in previous else 0.0 for fact in facts}
    return sorted(newest_first(facts), key=lambda fact: scores[fact.id] + lead[fact.id], reverse=True)


def in_block_order(facts: Sequence[InjectableFact]) -> list[InjectableFact]:
    """Globals, then the others, each oldest created first, then id: the same set gives the same block whatever the message."""
    return sorted(facts, key=lambda fact: (fact.scope != "global", fact.created_at, fact.id))


def within_tokens(
    globals_: Sequence[InjectableFact],
    ranked: Sequence[InjectableFact],
    *,
    budget: int,
    heading_tokens: int,
    tokens: Callable[[InjectableFact], int],
) -> tuple[list[InjectableFact], list[InjectableFact]]:
    """What fits: the last of `ranked` leaves first, then the oldest global. No fact is cut."""
    kept_globals, kept = in_block_order(globals_), list(ranked)
    total = heading_tokens + sum(map(tokens, kept_globals)) + sum(map(tokens, kept))
    while total > budget and (kept or kept_globals):
        total -= tokens(kept.pop() if kept else kept_globals.pop(0))
    return kept_globals, kept

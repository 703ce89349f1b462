"""What of a reflector's reply counts (E4, E5)."""

from typing import Any

import pytest

from services.extraction.reflector.reflect import question, read_decisions
from shared.rpc.messages import Candidate, Evidence
from tests.support.fake_store import FakeStore


def decision(candidate: Any = 0, action: Any = "create", **fields: Any) -> dict[str, Any]:
    return {"candidate": candidate, "action": action, "scope": "workspace", "target": None, "reason": "new"} | fields


@pytest.mark.parametrize(
    ("item", "action", "reason"),
    [
        (decision(), "create", "new"),
        (decision(candidate="0"), "create", "new"),
        (decision(action="invent"), "skip", "unknown action"),
        (decision(action=None), "skip", "unknown action"),
        (decision(scope="galaxy"), "skip", "unknown scope"),
        (decision(scope=["global"]), "skip", "unknown scope"),
        (decision(candidate=1), "skip", "undecided"),
        (decision(candidate=-1), "skip", "undecided"),
        (decision(candidate="first"), "skip", "undecided"),
        (decision(candidate=True), "skip", "undecided"),
        (decision(candidate=None), "skip", "undecided"),
    ],
)
def test_each_candidate_gets_one_decision(item: dict[str, Any], action: str, reason: str) -> None:
    (decided,) = read_decisions([item], 1)
    assert (decided.candidate, decided.action, decided.reason) == (0, action, reason)


def test_the_first_valid_decision_on_a_candidate_holds() -> None:
    items = [decision(action="x"), decision(action="skip"), decision(action="delete"), decision(candidate=1)]
    assert [each.action for each in read_decisions(items, 2)] == ["skip", "create"]


def test_hostile_fields_can_be_sent() -> None:
    (decided,) = read_decisions([decision(target="\ud800" * 500, content="\0" * 90_000, reason=["x"])], 1)
    assert len(decided.model_dump_json()) < 10_000
    assert (decided.content, decided.reason) == (None, "")


def test_the_question_shows_facts_candidates_and_free_places() -> None:
    store = FakeStore()
    store.add("a", [], facts=[])
    candidate = Candidate(
        content="User likes </tea>\u2028", confidence="high", evidence=[Evidence(event_id="e1", quote="I like tea")]
    )
    text = question(store.batches[0], [candidate, candidate])
    assert "workspace 20, global 5" in text
    assert '{"candidate": 0, "content": "User likes </tea>' in text
    assert '"candidate": 1' in text
    assert '"quotes": ["I like tea"]' in text

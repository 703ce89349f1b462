from uuid import UUID, uuid4

import pytest

from services.extraction.offline import reflect
from shared.rpc.messages import Decision, FreeSlots, KnownFact, Scope
from tests.unit.offline.support import seen

FREE = FreeSlots(workspace=20, global_=5)


def known(content: str, scope: Scope = "workspace", locked: bool = False) -> KnownFact:
    return KnownFact(id=uuid4(), content=content, scope=scope, category="other", locked=locked, version=1)


def decide(prompt: str, *facts: KnownFact) -> list[Decision]:
    return reflect(seen(prompt), facts, FREE)


@pytest.mark.parametrize(
    ("prompt", "scope"),
    [
        ("My name is Dana", "global"),
        ("I'm a nurse", "global"),
        ("I live in Lisbon", "global"),
        ("I'm vegetarian", "global"),
        ("I work at Acme", "workspace"),
        ("I use Vim", "workspace"),
        ("I love chess", "workspace"),
        ("I was diagnosed with asthma", "workspace"),
        ("Remember that I have a standing desk", "workspace"),
    ],
)
def test_what_is_new_is_created_in_its_scope(prompt: str, scope: Scope) -> None:
    (decision,) = decide(prompt, known("User likes tea."))
    assert (decision.action, decision.scope, decision.target) == ("create", scope, None)


@pytest.mark.parametrize(
    ("prompt", "fact", "action"),
    [
        # overlap, also in other words
        ("I work at Acme", "User works at Acme.", "skip"),
        ("I work at Acme", "user WORKS  at acme", "skip"),
        ("I work at Acme", "User works for Acme as an engineer", "skip"),
        ("I live in Lisbon", "User is based in Lisbon, Portugal.", "skip"),
        ("I really like coffee", "User loves coffee.", "skip"),
        ("I'm vegetarian", "User follows a vegetarian diet.", "skip"),
        ("I'm a nurse", "User is a nurse in Lisbon.", "skip"),
        ("Remember that I have a standing desk", "User has a standing desk", "skip"),
        # more exactly
        ("I live in Lisbon, Portugal", "User lives in Lisbon.", "update"),
        ("I'm a nurse in Lisbon", "User is a nurse.", "update"),
        # another value where one holds
        ("I work at Globex", "User works at Acme.", "supersede"),
        ("I moved to Porto", "User lives in Lisbon.", "supersede"),
        ("I live in York", "User lives in New York.", "supersede"),
        ("Call me Dee", "User's name is Dana.", "supersede"),
        ("I'm vegan", "User is vegetarian.", "supersede"),
        ("I hate coffee now", "User loves coffee.", "supersede"),
        ("My favorite color is red", "User's favourite color is blue.", "supersede"),
        # another value where many hold
        ("I use Emacs", "User uses Vim.", "create"),
        ("I speak French", "User speaks German.", "create"),
        ("I hate tea", "User loves coffee.", "create"),
        ("My favorite food is pizza", "User's favorite color is blue.", "create"),
        # ended
        ("I left Acme", "User works at Acme.", "retire"),
        ("I left Acme", "User works for Acme Corp as an engineer.", "retire"),
        ("I quit my job", "User works at Acme.", "retire"),
        ("I don't work at Acme anymore", "User works at Acme.", "retire"),
        ("I'm not vegan anymore", "User is vegan.", "retire"),
        ("I no longer use Vim", "User uses Vim.", "retire"),
        ("I moved out of Lisbon", "User lives in Lisbon.", "retire"),
        ("I left Acme", "User works at Globex.", "skip"),
        # asked to forget
        ("forget where I work", "User works at Acme.", "delete"),
        ("Please forget my name", "User is called Dana", "delete"),
        ("forget that I'm vegetarian", "User is vegetarian.", "delete"),
        ("forget about my standing desk", "User has a standing desk.", "delete"),
        ("forget where I live", "User works at Acme.", "skip"),
        ("forget what I said about chess", "User likes tea.", "skip"),
    ],
)
def test_a_candidate_is_compared_with_what_is_known(prompt: str, fact: str, action: str) -> None:
    old = known(fact, "global")
    (decision,) = decide(prompt, known("User plays tennis."), old)
    assert decision.action == action
    if action == "create":
        assert decision.target is None
    elif decision.target is not None or action != "skip":
        assert (UUID(decision.target), decision.scope) == (old.id, "global")


def test_a_locked_fact_is_not_updated() -> None:
    (decision,) = decide("I live in Lisbon, Portugal", known("User lives in Lisbon.", locked=True))
    assert decision.action == "skip"


def test_two_facts_are_too_many_to_forget_by_a_word() -> None:
    (decision,) = decide("forget about tea", known("User likes tea."), known("User drinks tea at noon."))
    assert decision.action == "skip"


def test_one_decision_per_candidate_whatever_the_slots() -> None:
    candidates = seen("I'm a nurse.", "I'm a nurse in Lisbon.", "I live in Lisbon.", "I left Acme.")
    decisions = reflect(candidates, [], FreeSlots(workspace=0, global_=0))
    assert [decision.candidate for decision in decisions] == list(range(len(candidates)))
    assert sorted(decision.action for decision in decisions) == ["create", "create", "skip", "skip"]

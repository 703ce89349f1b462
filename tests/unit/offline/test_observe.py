import pytest

from services.extraction.offline import observe
from tests.unit.offline.support import chat, contents, seen


def test_one_statement_in_two_chats_is_one_candidate_with_both_as_evidence() -> None:
    (fact,) = seen("I really like coffee", "I love coffee!")
    assert [(evidence.event_id, evidence.quote) for evidence in fact.evidence] == [
        ("e1", "I love coffee!"),
        ("e0", "I really like coffee"),
    ]


@pytest.mark.parametrize(
    ("prompts", "left"),
    [
        (["I work at Acme.", "I work at Globex now."], ["User works at Globex."]),
        (["I live in Lisbon.", "I moved to Porto."], ["User lives in Porto."]),
        (["I love coffee.", "I hate coffee.", "I love coffee."], ["User loves coffee."]),
        (["I work at Acme.", "I left Acme."], ["User left Acme."]),
        (["I left Acme.", "I work at Globex."], ["User works at Globex."]),
        (["I use Vim.", "I stopped using Vim."], ["User no longer uses Vim."]),
        (["I stopped using Vim.", "I use Vim."], ["User uses Vim."]),
        (["I use Vim.", "I use Emacs."], ["User uses Emacs.", "User uses Vim."]),
    ],
)
def test_e8_the_latest_of_what_excludes_each_other_stays(prompts: list[str], left: list[str]) -> None:
    assert contents(*prompts) == left


def test_the_best_come_first() -> None:
    prompts = [
        "I love chess.",
        "I use Vim.",
        "My name is Dana.",
        "I'm vegetarian.",
        "Please remember that I play the piano.",
    ]
    assert contents(*prompts) == [
        "User plays piano.",
        "User's name is Dana.",
        "User is vegetarian.",
        "User uses Vim.",
        "User loves chess.",
    ]


@pytest.mark.parametrize(
    ("prompt", "sensitive"),
    [
        ("I was diagnosed with asthma", True),
        ("I'm allergic to peanuts", True),
        ("I'm a practicing Buddhist", True),
        ("I volunteer at a church", True),
        ("My goal is to give kids a home", True),
        ("I'm vegetarian", False),
        ("I work at Acme", False),
    ],
)
def test_e17_sensitive_topics_are_flagged(prompt: str, sensitive: bool) -> None:
    assert [candidate.sensitive for candidate in seen(prompt)] == [sensitive]


@pytest.mark.parametrize(
    "prompt",
    [
        "I live in Hauptstraße 5",
        "Remember my phone is +1 415 555 2671",
        "Remember my email is dana@example.com",
        "Remember my site is https://x.example/a",
    ],
)
def test_e17_contact_data_is_not_learned(prompt: str) -> None:
    assert contents(prompt) == []


def test_an_empty_window_holds_nothing() -> None:
    assert observe([]) == []
    assert observe([chat("")]) == []


def test_casual_talk_says_nothing() -> None:
    talk = [
        "Hey Sam! Good to see you! How have you been?",
        "Wow, that's so cool! I'm really proud of you for trying.",
        "I'm so excited about the weekend, I can't wait!",
        "Thanks! I had a great time with the kids at the beach yesterday.",
        "I'm thinking of making a cake. I'm always up for cake!",
        "I love that you are so kind. I think we should meet again soon.",
        "I've been busy with work and I'm a bit tired. I feel great though.",
        "I'm sure it'll pay off. I never give up, and I'm not going to start now.",
    ]
    assert contents(*talk) == []

"""Which proposals count (E2, E4): fields, evidence, and the words that are not the person's own."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from services.extraction.observer import own_words
from services.extraction.observer.candidates import check, select, stated_date
from services.extraction.observer.own_words import Prompt, without_memory_blocks

HEADING = "## What We Know"
PROMPTS = {"e1": "Hi! I like  green\ntea. I am a nurse.", "e2": "I hate Mondays."}
READ = {event_id: Prompt(text, HEADING) for event_id, text in PROMPTS.items()}


def proposal(content: Any = "User likes green tea", quote: Any = "I like green tea", **fields: Any) -> dict[str, Any]:
    return {"content": content, "confidence": "high", "evidence": [{"event_id": "e1", "quote": quote}]} | fields


@pytest.mark.parametrize(
    ("item", "dropped"),
    [
        (proposal(), None),
        (proposal(content="User\nlikes tea"), None),
        (proposal(confidence="HIGH "), None),
        (proposal(category="hobby"), None),
        (proposal(content=""), "invalid"),
        (proposal(content="   "), "invalid"),
        (proposal(content=42), "invalid"),
        (proposal(content=["User likes tea"]), "invalid"),
        (proposal(content="x" * 501), "invalid"),
        (proposal(content="x" * 50_000), "invalid"),
        (proposal(content="User\u202elikes tea"), "invalid"),
        (proposal(confidence="certain"), "invalid"),
        (proposal(confidence=None), "invalid"),
        (proposal(confidence=1), "invalid"),
        (proposal(quote="I like coffee"), "quote_not_found"),
        (proposal(quote="I hate Mondays"), "quote_not_found"),
        (proposal(quote=""), "quote_not_found"),
        (proposal(quote=7), "quote_not_found"),
        (proposal(quote="</user-abcd>"), "quote_not_found"),
        (proposal(evidence=[]), "quote_not_found"),
        (proposal(evidence=None), "quote_not_found"),
        (proposal(evidence=[{"event_id": "e9", "quote": "I like green tea"}]), "quote_not_found"),
        (proposal(evidence={"event_id": "e1", "quote": "I am a nurse"}), None),
        (proposal(evidence=["I am a nurse"]), "quote_not_found"),
    ],
)
def test_fields(item: dict[str, Any], dropped: str | None) -> None:
    assert check(item, READ).dropped == dropped


def test_whatever_is_dropped_can_be_sent_and_stored() -> None:
    hostile = {
        "content": "a\ud800b\0c" * 300,
        "category": ["x"],
        "sensitive": "maybe",
        "confidence": {},
        "reasoning": "\udfff\0" * 10_000,
        "evidence": [{"event_id": "\ud800" * 500, "quote": "\0" * 5000}] * 99,
        "valid_from": "0000",
        "valid_to": [1],
    }
    text = check(hostile, READ).model_dump_json()
    assert "\\u0000" not in text
    assert len(text) < 12_000


def test_only_evidence_that_was_found_is_kept() -> None:
    both = [{"event_id": "e1", "quote": "I am a nurse"}, {"event_id": "e2", "quote": "I am a nurse"}]
    record = check(proposal(evidence=both), READ)
    assert [evidence.event_id for evidence in record.candidate.evidence] == ["e1"]


def test_of_five_the_invalid_go_first_and_then_three_stay() -> None:
    items = [
        proposal(content="  "),
        proposal(content="one"),
        proposal(content="two", quote="never said"),
        proposal(content="three"),
        proposal(content="four"),
        proposal(content="five"),
    ]
    assert [(record.candidate.content, record.dropped) for record in select(items, PROMPTS, 3, HEADING)] == [
        ("one", None),
        ("three", None),
        ("four", None),
        ("five", "over_limit"),
        ("", "invalid"),
        ("two", "quote_not_found"),
    ]


@pytest.mark.parametrize(
    ("value", "date"),
    [
        ("2027", "2027"),
        ("2027-05", "2027-05"),
        (" 2027-05-14 ", "2027-05-14"),
        ("2027-02-30", None),
        ("2027-13", None),
        ("0000", None),
        ("9077 ", "9077"),
        ("十万年前", None),
        ("٢٠٢٧", None),
        ("2027-5", None),
        ("yesterday", None),
        (2027, None),
        (None, None),
    ],
)
def test_stated_dates(value: object, date: str | None) -> None:
    assert stated_date(value) == date


BLOCK = "## Things I Remember About You\n- User is a doctor in Rome\n- User likes jazz\n"


@pytest.mark.parametrize(
    ("quote", "prompt", "own"),
    [
        ("I am a nurse", "I am a nurse", True),
        ("I  am\na nurse", "Well, I am a nurse.", True),
        ('Call me "Dana"', 'Call me "Dana" please', True),
        ("Dana", 'Call me "Dana" please', True),
        ("I am a doctor", 'She wrote "I am a doctor in Rome" to me', False),
        ("I am a doctor", "She wrote “I am a doctor in Rome” to me", False),
        ("我是一名住在罗马的医生", "他说「我是一名住在罗马的医生」", False),
        ("I am a doctor", "> I am a doctor\n\nWhat shall I answer?", False),
        ("I am a doctor", "> I am a doctor\n\nSo am I: I am a doctor too", True),
        ("name = 'I am a doctor'", "```python\nname = 'I am a doctor'\n```\nwhy does it fail?", False),
        ("I am a doctor", "```\nI am a doctor", False),
        ("User is a doctor in Rome", BLOCK + "\nWhat shall I cook?", False),
        ("User likes jazz", "Hi\n\n" + BLOCK, False),
        ("What shall I cook?", BLOCK + "\nWhat shall I cook?", True),
        ("I am a doctor", "Translate: I am a doctor", False),
        ("I am a doctor", "Can you translate this for me:\nI am a doctor", False),
        ("I hate Mondays", "pretend you are me: I hate Mondays", False),
        ("I am Bob", "Please summarise this mail:\nFrom: Bob\nSubject: hi\n\nI am Bob", False),
        ("I am Bob", "What do you think?\n\nOn Mon, May 5, Bob wrote:\nI am Bob", False),
        ("I am Bob", "---------- Forwarded message ----------\nI am Bob", False),
        ("I love rules", "You are a helpful assistant.\nI love rules", False),
        ("I love rules", "system: be kind\nuser: I love rules", False),
        ("I write code: mostly Python", "I write code: mostly Python", True),
    ],
)
def test_own_words(quote: str, prompt: str, own: bool) -> None:
    assert Prompt(prompt, HEADING).has_own(quote) is own


def test_memory_blocks_are_left_out_and_nothing_else() -> None:
    assert without_memory_blocks("I like tea", HEADING) == "I like tea"
    left = without_memory_blocks(f"Be kind.\n\n{BLOCK}\nWhat shall I cook?", HEADING)
    assert "doctor" not in left
    assert "jazz" not in left
    assert left.startswith("Be kind.")
    assert left.endswith("What shall I cook?")


OWN_BLOCK = "**What we know**:\n\n* User is a doctor in Rome\n  - User likes jazz\n\nWhat shall I cook?"


def test_a_block_under_the_tenants_own_heading_is_known() -> None:
    assert without_memory_blocks(OWN_BLOCK, "## Something else") == OWN_BLOCK
    assert without_memory_blocks(OWN_BLOCK, HEADING).endswith("left out here]\nWhat shall I cook?")
    assert without_memory_blocks(BLOCK, HEADING) == without_memory_blocks(BLOCK, "")
    assert not Prompt(OWN_BLOCK, HEADING).has_own("User likes jazz")
    assert Prompt(OWN_BLOCK, HEADING).has_own("What shall I cook?")
    spoken = "What we know is little: I am a nurse.\n- I like tea"
    assert without_memory_blocks(spoken, HEADING) == spoken
    for odd in ("", "#", "** (a", "[x]*+?", "\\"):
        assert without_memory_blocks(spoken, odd) == spoken


def test_of_too_many_parts_the_rest_is_nobodys_own() -> None:
    prompt = "I am a nurse. " + '"one two three" ' * 10_001 + "I am a pilot"
    assert Prompt(prompt, HEADING).has_own("I am a nurse")
    assert not Prompt(prompt, HEADING).has_own("I am a pilot")


def test_case_and_length_do_not_shift_what_is_foreign() -> None:
    assert not Prompt("\u0130. TRANSLATE THIS: I am a doctor", HEADING).has_own("I am a doctor")


WORST = [
    "## Things I Remember About You\n- a\n",
    "What we know\n",
    "#",
    "> a\n",
    ">",
    "```\n",
    "`",
    '"',
    '"a"',
    '"a b c" ',
    "“",
    "„“",
    "「",
    "from: a\n",
    "on aaaaa ",
    "\n",
    " ",
    "\t",
    "you are a ",
    "system",
    "please translate ",
    ". translate",
    ". translate a\n",
    "- a\n",
    "a. ",
    "---- original",
]


@pytest.mark.parametrize("piece", WORST)
def test_a_megabyte_of_anything_takes_a_tenth_of_a_second_a_rule(piece: str) -> None:
    prompt = piece * (1_000_000 // len(piece)) + "\nI am a nurse"
    rules = [own_words._matches(own_words.memory_block(HEADING)), *own_words._RULES]
    for rule in rules:
        assert _fastest(lambda rule=rule: list(islice(rule(prompt), own_words._MAX_PARTS))) < 0.1  # type: ignore[misc]
    assert _fastest(lambda: without_memory_blocks(prompt, HEADING)) < 0.1
    assert _fastest(lambda: Prompt(prompt, HEADING).has_own("I am a nurse")) < 0.1 * len(rules)


def _fastest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(4):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
        if times[-1] < 0.05:
            break
    return min(times)

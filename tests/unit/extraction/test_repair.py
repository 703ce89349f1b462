"""Every shape a reply comes in (E3), and the worst megabyte of each (E13)."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest

from services.extraction.models.repair import Unreadable, read_items
from services.extraction.observer.observe import PROPOSE
from services.extraction.reflector.reflect import DECIDE

ONE = {"content": "User likes tea", "evidence": [{"event_id": "e1", "quote": 'tea [the "green" kind] {'}]}
TWO = {"content": "User is a nurse", "evidence": [{"event_id": "e2", "quote": "nurse"}]}
WHOLE = json.dumps({"candidates": [ONE, TWO]})

READABLE: list[tuple[str, Any, list[Any]]] = [
    ("as it should be", WHOLE, [ONE, TWO]),
    ("parsed already", {"candidates": [ONE]}, [ONE]),
    ("nothing found", '{"candidates": []}', []),
    ("fence", f"```json\n{WHOLE}\n```", [ONE, TWO]),
    ("fence without a language", f"```\n{WHOLE}\n```\n", [ONE, TWO]),
    ("fence after prose", f"Here you are:\n```json\n{WHOLE}\n```\nBye!", [ONE, TWO]),
    ("prose first", f"I found two [see below]: {WHOLE} {{done}}", [ONE, TWO]),
    ("an empty example first", f'{{"candidates": []}} would be empty, but: {WHOLE}', [ONE, TWO]),
    ("think", f'<think>maybe {{"candidates": [{{"content": "wrong"}}]}}</think>{WHOLE}', [ONE, TWO]),
    ("think never opened", f"maybe [this]</think>\n{WHOLE}", [ONE, TWO]),
    ("think never closed", f"<think>hm {WHOLE}", [ONE, TWO]),
    ("bare list", json.dumps([ONE, TWO]), [ONE, TWO]),
    ("bare list after prose", f"Sure: {json.dumps([ONE])}", [ONE]),
    ("bare empty list", "[]", []),
    ("bare item", json.dumps(ONE), [ONE]),
    ("renamed key", json.dumps({"facts": [ONE, TWO]}), [ONE, TWO]),
    ("renamed key beside others", json.dumps({"note": "ok", "tags": ["a"], "results": [ONE]}), [ONE]),
    ("call written out", json.dumps({"name": "propose_candidates", "arguments": {"candidates": [ONE]}}), [ONE]),
    ("arguments as text", json.dumps({"name": "x", "arguments": json.dumps({"candidates": [ONE]})}), [ONE]),
    ("list as text", json.dumps({"candidates": json.dumps([ONE])}), [ONE]),
    ("bad \\u escape", '{"candidates": [{"content": "caf\\u00e9 \\u12 \\x"}]}', [{"content": "café \\u12 \\x"}]),
    ("escaped backslash", '{"candidates": [{"content": "C:\\\\x \\q"}]}', [{"content": "C:\\x \\q"}]),
    ("raw line break", '{"candidates": [{"content": "a\nb"}]}', [{"content": "a\nb"}]),
    ("trailing comma", '{"candidates": [{"content": "a",},]}', [{"content": "a"}]),
    ("cut off in the second", WHOLE[:-30], [ONE]),
    ("cut off behind the first", json.dumps({"candidates": [ONE]})[:-2], [ONE]),
    ("cut off bare list", json.dumps([ONE, TWO])[:-5], [ONE]),
    ("one item is no object", json.dumps({"candidates": ["User likes tea", ONE, 7]}), [ONE]),
    ("50 KB fact", json.dumps({"candidates": [{"content": "x" * 50_000}, ONE]}), [{"content": "x" * 50_000}, ONE]),
]

UNREADABLE: list[tuple[str, Any]] = [
    ("nothing", ""),
    ("prose", "There is nothing to remember here."),
    ("prose with an empty list", "The answer is [] I think."),
    ("empty object", "{}"),
    ("null", "null"),
    ("null list", '{"candidates": null}'),
    ("a number", "42"),
    ("schema echoed", json.dumps(PROPOSE.schema)),
    ("tool echoed", json.dumps({"name": PROPOSE.name, "parameters": PROPOSE.schema})),
    ("cut off in the first", WHOLE[:40]),
    ("cut off in the evidence", WHOLE[:95]),
    ("strings for items", '{"candidates": ["User likes tea"]}'),
    ("the other tool's reply", '{"decisions": [{"candidate": 0, "action": "skip"}]}'),
    ("10,000 deep", "[" * 10_000 + "]" * 10_000),
]


@pytest.mark.parametrize(("said", "items"), [case[1:] for case in READABLE], ids=[case[0] for case in READABLE])
def test_readable(said: Any, items: list[Any]) -> None:
    assert read_items(said, PROPOSE) == items


@pytest.mark.parametrize("said", [case[1] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE])
def test_unreadable_is_never_nothing_found(said: Any) -> None:
    with pytest.raises(Unreadable):
        read_items(said, PROPOSE)


def test_decisions_are_read_alike() -> None:
    decision = {"candidate": 0, "action": "create", "scope": "global", "target": None, "reason": "new"}
    assert read_items(f"```\n{json.dumps([decision])}\n```", DECIDE) == [decision]
    assert read_items(json.dumps(decision), DECIDE) == [decision]


WORST = [
    "<think>",
    "<think></think>",
    "</think>[",
    "a.a.a.",
    "{",
    "[",
    "`",
    "```\n",
    "7",
    '"',
    "\\",
    '\\"',
    "\\x",
    "[]",
    "{}",
    "[{}",
    '["',
    '["\\x",',
    ", ",
    "[, ",
    '{"a":',
    '[{"content":"',
    '{"candidates":[{"content":"a"},',
    "\n",
    "\u0130",
]


@pytest.mark.parametrize("piece", WORST)
@pytest.mark.parametrize("frame", ["{}", '{{"candidates": [{{"content": "{}', "x {} ]]}}"])
def test_a_megabyte_of_anything_takes_a_tenth_of_a_second(piece: str, frame: str) -> None:
    text = frame.format(piece * (1_000_000 // len(piece)))
    fastest = min(_timed(text) for _ in range(3))
    assert fastest < 0.1


def _timed(text: str) -> float:
    started = time.process_time()
    with suppress(Unreadable):
        read_items(text, PROPOSE)
    return time.process_time() - started

from typing import Any

import pytest

from services.injection.assembling.history import Said, said
from services.injection.assembling.schemas import HistoryMessage
from shared.encoder import MAX_TEXT


def history(*messages: dict[str, Any]) -> list[HistoryMessage]:
    return [HistoryMessage.model_validate(message) for message in messages]


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_message_and_the_last_three_turns_newest_first() -> None:
    turns = history(*(user(f"turn {n}") for n in range(1, 6)))
    assert said("now", turns) == Said("now", ("turn 5", "turn 4", "turn 3"))


def test_history_that_ends_with_the_message_counts_it_once() -> None:
    assert said("now", history(user("before"), user("now"))) == Said("now", ("before",))


@pytest.mark.parametrize("message", [None, "", "  \n"])
def test_without_a_message_the_last_turn_is_it(message: str | None) -> None:
    turns = history(*(user(f"turn {n}") for n in range(1, 6)))
    assert said(message, turns) == Said("turn 5", ("turn 4", "turn 3", "turn 2"))


@pytest.mark.parametrize(
    "nothing",
    [
        [],
        [{"role": "assistant", "content": "I am here"}],
        [{"role": "system", "content": "You help."}],
        [user(None), user(""), user([])],
        [user([{"type": "image_url", "image_url": {"url": "data:"}}])],
    ],
)
def test_a_user_who_said_nothing(nothing: list[dict[str, Any]]) -> None:
    assert said(None, history(*nothing)) is None


def test_messages_as_openai_has_them() -> None:
    turns = history(
        user([{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "x"}}, {"text": "here"}]),
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "user", "name": "dana", "content": "And now?"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    )
    assert said(None, turns) == Said("And now?", ("Look here",))


def test_texts_are_cut_to_what_is_read() -> None:
    long = "x" * 1_000_000
    assert said(long, history(user([{"text": long}, {"text": long}]), user(long + "y"))) == Said(
        "x" * MAX_TEXT, ("x" * MAX_TEXT,)
    )

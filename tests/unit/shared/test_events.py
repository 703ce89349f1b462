import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.events import BadRecord, ChatCompleted, ChatDeleted, ChatReset, decode_event

CHAT: dict[str, Any] = {"type": "chat.completed", "event_id": "e1", "user": "u1", "prompt": "hi", "response": "hello"}


def encoded(**changes: Any) -> bytes:
    return json.dumps({name: value for name, value in {**CHAT, **changes}.items() if value is not ...}).encode()


def reason_of(value: bytes | None) -> str:
    with pytest.raises(BadRecord) as caught:
        decode_event(value)
    return caught.value.reason


def test_absent_fields_get_their_defaults() -> None:
    event = decode_event(encoded()).event
    assert isinstance(event, ChatCompleted)
    assert (event.tenant, event.workspace, event.thread, event.occurred_at) == ("default", "default", None, None)


def test_resets_and_deletions_are_read() -> None:
    assert isinstance(decode_event(b'{"type":"chat.reset","event_id":"e","user":"u"}').event, ChatReset)
    deleted = decode_event(b'{"type":"chat.deleted","event_id":"e","user":"u","event_ids":["a","b"]}').event
    assert isinstance(deleted, ChatDeleted)
    assert deleted.event_ids == ["a", "b"]


def test_unknown_fields_are_counted_not_refused() -> None:
    assert decode_event(encoded(mood="good", team=3)).unknown_fields == 2


@pytest.mark.parametrize("user", [None, "", "u"])
def test_a_user_may_be_null_or_empty(user: str | None) -> None:
    event = decode_event(encoded(user=user)).event
    assert event.user == user


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "not_json"),
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"\xff\xfe", "not_json"),
        (b"[1]", "invalid"),
        (b"1" * 5000, "not_json"),
        (b"[" * 10_000 + b"]" * 10_000, "invalid"),
        (b'{"a":' * 10_000, "invalid"),
        (encoded(metadata=float("nan")), "not_json"),
        (encoded()[:-1] + b',"user":"u2"}', "invalid"),
        (encoded(pad="x" * 300_000), "too_large"),
        (encoded(type="chat.started"), "unknown_type"),
        (encoded(type=3), "invalid"),
        (encoded(type=...), "invalid"),
        (encoded(user=...), "invalid"),
        (encoded(user=3), "invalid"),
        (encoded(prompt=None), "invalid"),
        (encoded(prompt="a\0b"), "invalid"),
        (encoded(response="\ud800"), "invalid"),
        (encoded(event_id=""), "invalid"),
        (encoded(event_id="x" * 201), "invalid"),
        (encoded(timezone="Mars/Olympus"), "invalid"),
        (encoded(metadata={"a": "x" * 5000}), "invalid"),
        (encoded(metadata=[1]), "invalid"),
        (encoded(occurred_at="0001-01-01T00:00+14:00"), "invalid"),
        (encoded(occurred_at="0001-01-01T00:00:00+14:00"), "invalid"),
        (encoded(occurred_at="9999-12-31T23:59:00-12:00"), "invalid"),
        (encoded(occurred_at="2026-01-01T00:00:00"), "invalid"),
        (encoded(occurred_at=1_700_000_000), "invalid"),
        (encoded(occurred_at="1700000000"), "invalid"),
    ],
)
def test_what_can_never_be_staged_says_why(value: bytes | None, reason: str) -> None:
    assert reason_of(value) == reason


def test_a_detail_names_fields_and_never_values() -> None:
    with pytest.raises(BadRecord) as caught:
        decode_event(encoded(timezone="my secret place", user=17))
    assert caught.value.detail == "timezone, user"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from([*CHAT, "occurred_at", "metadata", "x"]), json_values).map(
        lambda fields: json.dumps({**CHAT, **fields}).encode()
    )
)
def test_any_bytes_are_an_event_or_a_bad_record(value: bytes) -> None:
    with contextlib.suppress(BadRecord):
        decode_event(value)

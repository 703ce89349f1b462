"""What is accepted over HTTP: judged whole, and never anything that the stager could not read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chat_ingest.publisher import chat_records, keyed_event_ids, new_event_ids
from services.chat_ingest.schemas import MAX_CHATS, BadChats, Chat, read_chats
from shared.events import ChatCompleted, decode_event
from shared.ids import check_id

GOOD: dict[str, Any] = {"user": "dana", "prompt": "hi", "response": "hello"}


def refused(chats: object) -> list[dict[str, Any]]:
    body = chats if isinstance(chats, bytes) else json.dumps(chats).encode()

    def take() -> None:
        read = read_chats(body)
        chat_records("default", read, new_event_ids(len(read)))

    with pytest.raises(BadChats) as caught:
        take()
    assert caught.value.code == "invalid"
    errors = caught.value.extra["errors"]
    assert isinstance(errors, list)
    return errors


def published(chat: dict[str, Any]) -> ChatCompleted:
    [read] = read_chats(json.dumps(chat).encode())
    [record] = chat_records("default", [read], ["e1"])
    event = decode_event(record.value).event
    assert isinstance(event, ChatCompleted)
    return event


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"user": 5}, "user", "invalid"),
        ({"user": "x" * 201}, "user", "invalid"),
        ({"user": "a\u0007"}, "user", "invalid"),
        ({"prompt": None}, "prompt", "invalid"),
        ({"prompt": "a\0"}, "prompt", "invalid"),
        ({"response": ["x"]}, "response", "invalid"),
        ({"event_id": ""}, "event_id", "invalid"),
        ({"workspace": None}, "workspace", "invalid"),
        ({"thread": ""}, "thread", "invalid"),
        ({"occurred_at": 1700000000}, "occurred_at", "invalid"),
        ({"occurred_at": "2026-05-14T12:00:00"}, "occurred_at", "invalid"),
        ({"occurred_at": "0001-01-01T00:00:00+14:00"}, "occurred_at", "invalid"),
        ({"occurred_at": "9999-12-31T23:59:00-12:00"}, "occurred_at", "invalid"),
        ({"timezone": "Mars/Olympus"}, "timezone", "invalid"),
        ({"metadata": {"a": "x" * 5000}}, "metadata", "invalid"),
        ({"tenant": "other"}, None, "unknown_field"),
        ({"secret words": 1}, None, "unknown_field"),
        ({"prompt": "x" * 300_000}, None, "too_large"),
    ],
)
def test_a_bad_chat_is_named_by_index_field_and_rule(change: dict[str, Any], field: str | None, code: str) -> None:
    expected = {"index": 2, "field": field, "code": code} if field else {"index": 2, "code": code}
    assert refused([GOOD, GOOD, GOOD | change, GOOD]) == [expected]
    assert refused(GOOD | change) == [expected | {"index": 0}]


@pytest.mark.parametrize("missing", ["user", "prompt", "response"])
def test_required_fields(missing: str) -> None:
    assert refused({key: value for key, value in GOOD.items() if key != missing}) == [
        {"index": 0, "field": missing, "code": "missing"}
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{",
        b"[]",
        b"5",
        b'"x"',
        b"\xff",
        b'{"user":"a","prompt":"\\ud800","response":""}',
        b"[" * 10_000,
        json.dumps([GOOD] * (MAX_CHATS + 1)).encode(),
    ],
)
def test_what_is_no_list_of_chats(body: bytes) -> None:
    refused(body)


def test_metadata_nested_too_deep() -> None:
    nested: dict[str, Any] = {}
    for _ in range(40):
        nested = {"n": nested}
    assert refused([GOOD, GOOD | {"metadata": nested}]) == [{"index": 1, "code": "invalid"}]


def test_every_bad_chat_is_named_once() -> None:
    bad = {"user": 1, "prompt": 2, "response": 3}
    assert [error["index"] for error in refused([bad, GOOD, bad])] == [0, 2]


def test_what_is_absent_stays_absent_and_the_rest_is_kept() -> None:
    event = published(GOOD)
    assert (event.tenant, event.workspace, event.event_id, event.occurred_at) == ("default", "default", "e1", None)
    full = GOOD | {
        "workspace": "w",
        "thread": "t",
        "occurred_at": "2026-05-14T23:30:00-04:00",
        "timezone": "America/New_York",
        "metadata": {"k": [1]},
    }
    event = published(full)
    assert event.occurred_at is not None
    assert event.occurred_at.isoformat() == "2026-05-14T23:30:00-04:00"
    assert (event.workspace, event.thread, event.timezone) == ("w", "t", "America/New_York")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@given(
    st.fixed_dictionaries(
        {"user": texts | st.none(), "prompt": texts, "response": texts},
        optional={
            "thread": texts,
            "workspace": texts,
            "occurred_at": st.datetimes(timezones=st.timezones()).map(lambda at: at.isoformat()),
            "metadata": st.dictionaries(texts, st.recursive(st.none() | texts, st.lists, max_leaves=50)),
        },
    )
)
def test_what_is_accepted_can_be_staged(chat: dict[str, Any]) -> None:
    try:
        [read] = read_chats(json.dumps(chat).encode())
        [record] = chat_records("default", [read], ["e1"])
    except BadChats:
        return
    event = decode_event(record.value).event
    assert isinstance(event, ChatCompleted)
    assert (event.user, event.prompt, event.response) == (chat["user"], chat["prompt"], chat["response"])
    assert event.thread == chat.get("thread")


def test_made_ids_are_uuid7_and_differ() -> None:
    ids = new_event_ids(500)
    assert len(set(ids)) == 500
    assert all(check_id(one) and one[14] == "7" and one[19] in "89ab" and len(one) == 36 for one in ids)


def test_a_key_makes_the_same_ids_of_its_tenant_alone() -> None:
    ids = keyed_event_ids("a", "k", 3)
    assert ids == keyed_event_ids("a", "k", 3)
    assert len({*ids, *keyed_event_ids("b", "k", 3), *keyed_event_ids("a", "k2", 3)}) == 9


def test_a_single_chat_reads_as_a_list_of_one() -> None:
    one: list[Chat] = read_chats(b"\n " + json.dumps(GOOD).encode())
    assert one == read_chats(b" \t" + json.dumps([GOOD]).encode())

"""Records read one by one, wherever they stand, and whatever their headers hold."""

import base64
import hashlib
import json
import time
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from services.extraction.stager.ratio import DeadRatio
from services.extraction.stager.reading import Poll, Source, dead_letter, read_poll
from shared.events import ORIGINAL_OFFSET, ORIGINAL_PARTITION, ORIGINAL_TIMESTAMP, BadRecord
from shared.ids import STAND_INS
from shared.rpc.messages import StageRecord

APPENDED, CREATED = 1, 0


def record(value: bytes | None, *, offset: int = 7, headers: Any = (), **fields: Any) -> Source:
    known = {
        "topic": "chat.events",
        "partition": 3,
        "offset": offset,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": APPENDED,
        "key": b"key",
        "value": value,
        "checksum": None,
        "serialized_key_size": 3,
        "serialized_value_size": 0,
        "headers": tuple(headers),
    }
    return ConsumerRecord(**known | fields)


def chat(**fields: Any) -> bytes:
    return json.dumps(
        {"type": "chat.completed", "event_id": "e", "user": "dana", "prompt": "p", "response": "r"} | fields
    ).encode()


def poll_of(*records: Source) -> Poll:
    return read_poll(records, 1, frozenset(STAND_INS))


def staged(source: Source) -> StageRecord:
    [(_, read)] = poll_of(source).good
    return read


def original(partition: bytes, offset: bytes, timestamp: bytes) -> list[tuple[str, bytes]]:
    return [(ORIGINAL_PARTITION, partition), (ORIGINAL_OFFSET, offset), (ORIGINAL_TIMESTAMP, timestamp)]


def test_a_position_is_the_brokers() -> None:
    read = staged(record(chat()))
    assert (read.partition, read.offset, read.timestamp_ms) == (3, 7, 1_700_000_000_000)


@pytest.mark.parametrize("stamp", [99_999_999_999_999, -1, 0])
def test_a_producers_own_stamp_is_no_later_than_now(stamp: int) -> None:
    read = staged(record(chat(), timestamp=stamp, timestamp_type=CREATED))
    assert abs(read.timestamp_ms - time.time() * 1000) < 60_000


def test_a_replayed_record_stands_where_it_stood() -> None:
    read = staged(record(chat(), headers=original(b"5", b"11", b"1600000000000")))
    assert (read.partition, read.offset, read.timestamp_ms) == (5, 11, 1_600_000_000_000)


@pytest.mark.parametrize(
    "headers",
    [
        original(b"5", b"11", b"1700000000001"),
        original(b"x", b"11", b"1600000000000"),
        original(b"5", b"-1", b"1600000000000"),
        original(b"5", b"11", b"1e9"),
        original(b"9999999999", b"11", b"1600000000000"),
        original(b"5", b"1" * 40, b"1600000000000"),
        original("٥".encode(), b"11", b"1600000000000"),
        original(b"5", b"11", b"\xff"),
        original(b"5", b"11", b"1600000000000")[:2],
    ],
)
def test_an_ill_formed_original_position_is_ignored(headers: list[tuple[str, bytes]]) -> None:
    read = staged(record(chat(), headers=headers))
    assert (read.partition, read.offset, read.timestamp_ms) == (3, 7, 1_700_000_000_000)


@given(
    st.lists(st.tuples(st.text(max_size=5) | st.just("traceparent"), st.binary(max_size=60) | st.none()), max_size=4)
)
def test_no_header_hinders_a_record(headers: list[tuple[str, bytes | None]]) -> None:
    poll = poll_of(record(chat(), headers=headers))
    assert len(poll.good) == 1


def test_a_poll_ends_behind_its_last_record_of_each_partition() -> None:
    poll = poll_of(record(b"{", offset=4), record(chat(), offset=5), record(chat(user=None), offset=9, partition=1))
    assert poll.ends == {TopicPartition("chat.events", 3): 6, TopicPartition("chat.events", 1): 10}
    assert [at for at, _ in poll.bad] == [0]
    assert [at for at, _ in poll.good] == [1]


@pytest.mark.parametrize("value", [None, b"", b"x" * 300_000])
def test_a_dead_letter_keeps_the_first_64_kib_and_tells_all_of_it(value: bytes | None) -> None:
    letter = dead_letter(record(value), BadRecord("too_large", "too large"))
    whole = value or b""
    assert base64.b64decode(letter.value_base64) == whole[: 64 * 1024]
    assert (letter.size, letter.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert len(letter.model_dump_json()) < 100_000


def test_a_replayed_record_that_is_dead_again_keeps_its_first_position() -> None:
    letter = dead_letter(
        record(b"{", headers=original(b"5", b"11", b"1600000000000")), BadRecord("not_json", "no JSON")
    )
    assert (letter.partition, letter.offset, letter.timestamp) == (5, 11, 1_600_000_000_000)


def test_more_than_half_of_the_last_two_hundred() -> None:
    ratio = DeadRatio(0.5)
    assert not ratio.crossed_by([True] * 100)
    assert ratio.crossed_by([True])


def test_what_lies_two_hundred_records_back_no_longer_counts() -> None:
    ratio = DeadRatio(0.5)
    assert not ratio.crossed_by([True] * 100 + [False] * 200 + [True] * 100)
    assert ratio.crossed_by([True])


@pytest.mark.parametrize(("limit", "dead", "crossed"), [(1.0, 5000, False), (0.0, 1, True)])
def test_the_ends_of_the_ratio(limit: float, dead: int, crossed: bool) -> None:
    assert DeadRatio(limit).crossed_by([True] * dead) is crossed


@given(st.lists(st.booleans(), max_size=600), st.floats(0, 1))
def test_the_ratio_as_defined(records: list[bool], limit: float) -> None:
    windows = [records[max(0, end - 200) : end] for end in range(1, len(records) + 1)]
    assert DeadRatio(limit).crossed_by(records) is any(sum(window) > limit * 200 for window in windows)

"""Records of a poll, read one by one: what can be staged, what never can, and at which position each stands."""

import base64
import hashlib
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from aiokafka import ConsumerRecord, TopicPartition

from shared.events import (
    MAX_DEAD_LETTER_BYTES,
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_TIMESTAMP,
    BadRecord,
    DeadLetter,
    decode_event,
)
from shared.ids import is_anonymous
from shared.rpc.messages import StageRecord

Source: TypeAlias = "ConsumerRecord[bytes, bytes]"

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_DIGITS = re.compile(r"[0-9]{1,18}")
_LOG_APPEND_TIME = 1


@dataclass(slots=True)
class Poll:
    """What one poll brought: records to stage and bad ones, each with its place among `sources`; the others are anonymous."""

    sources: Sequence[Source]
    generation: int
    good: list[tuple[int, StageRecord]] = field(default_factory=list)
    bad: list[tuple[int, BadRecord]] = field(default_factory=list)
    unknown_fields: int = 0

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The offsets to commit: per partition the next one to read."""
        ends: dict[TopicPartition, int] = {}
        for source in self.sources:
            place = TopicPartition(source.topic, source.partition)
            ends[place] = max(ends.get(place, 0), source.offset + 1)
        return ends


def read_poll(sources: Sequence[Source], generation: int, stand_ins: Collection[str]) -> Poll:
    poll = Poll(sources, generation)
    now_ms = int(time.time() * 1000)
    for at, source in enumerate(sources):
        headers, unreadable = _headers(source)
        poll.unknown_fields += unreadable
        try:
            decoded = decode_event(source.value)
        except BadRecord as bad:
            poll.bad.append((at, bad))
            continue
        poll.unknown_fields += decoded.unknown_fields
        if is_anonymous(decoded.event.user, stand_ins):
            continue
        partition, offset, timestamp_ms = _position(source, headers, now_ms)
        traceparent = headers.get("traceparent", "")
        record = StageRecord(
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            event=decoded.event,
            traceparent=traceparent if _TRACEPARENT.fullmatch(traceparent) else None,
        )
        poll.good.append((at, record))
    return poll


def dead_letter(source: Source, bad: BadRecord) -> DeadLetter:
    """Keeps the first position of a record that was replayed and is dead again."""
    value = source.value or b""
    headers, _ = _headers(source)
    partition, offset, timestamp_ms = _position(source, headers, int(time.time() * 1000))
    return DeadLetter(
        topic=source.topic,
        partition=partition,
        offset=offset,
        timestamp=timestamp_ms,
        reason=bad.reason,
        detail=bad.detail,
        size=len(value),
        sha256=hashlib.sha256(value).hexdigest(),
        value_base64=base64.b64encode(value[:MAX_DEAD_LETTER_BYTES]).decode(),
    )


def _headers(source: Source) -> tuple[dict[str, str], int]:
    """The readable headers, and how many were not UTF-8."""
    if not source.headers:
        return {}, 0
    headers: dict[str, str] = {}
    unreadable = 0
    for name, value in source.headers:
        try:
            headers[name] = value.decode()
        except (UnicodeDecodeError, AttributeError):  # a header without a value is None
            unreadable += 1
    return headers, unreadable


def _position(source: Source, headers: dict[str, str], now_ms: int) -> tuple[int, int, int]:
    """Partition, offset and append time; of a replayed dead letter the first ones, where its headers name an earlier time.

    A producer's own stamp (a broker without LogAppendTime) may lie, so it counts only up to now.
    """
    timestamp_ms: int = source.timestamp
    if source.timestamp_type != _LOG_APPEND_TIME:
        timestamp_ms = min(timestamp_ms, now_ms) if timestamp_ms > 0 else now_ms
    if not headers:
        return source.partition, source.offset, timestamp_ms
    original = [headers.get(name, "") for name in (ORIGINAL_PARTITION, ORIGINAL_OFFSET, ORIGINAL_TIMESTAMP)]
    if all(_DIGITS.fullmatch(part) for part in original):
        partition, offset, first_ms = (int(part) for part in original)
        if partition < 2**31 and first_ms <= timestamp_ms:
            return partition, offset, first_ms
    return source.partition, source.offset, timestamp_ms

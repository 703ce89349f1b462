"""Reads the dead-letter topic: all of it partition by partition, or single letters by their place. Never joins a group, commits nothing."""

import base64
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from deploy.errors import DeployError
from shared.events import DeadLetter
from shared.kafka import KafkaSettings

# Partition and offset in the dead-letter topic.
Place = tuple[int, int]

_MISSING_MS = 2000
_LAST_MS = 253_370_764_800_000  # 9999-01-01


@dataclass(frozen=True)
class Found:
    """A dead letter and where it stands. `at`: when it was dead-lettered; `letter.timestamp` is when its record came."""

    place: Place
    at: datetime
    key: bytes | None
    letter: DeadLetter

    @property
    def id(self) -> str:
        return f"{self.place[0]}:{self.place[1]}"

    @property
    def value(self) -> bytes:
        """The record's bytes, or their beginning."""
        return base64.b64decode(self.letter.value_base64)

    @property
    def whole(self) -> bool:
        return len(self.value) == self.letter.size

    @property
    def intact(self) -> bool:
        return hashlib.sha256(self.value).hexdigest() == self.letter.sha256


async def read(settings: KafkaSettings) -> list[Found]:
    """Every dead letter that stood in the topic when the reading began (and maybe some that came since), in the topic's order."""
    return [found async for found in scan(settings)]


async def scan(settings: KafkaSettings, *, after: Place | None = None) -> AsyncGenerator[Found, None]:
    """As `read`, one fetch in memory at a time; `after` skips everything up to that place."""
    partitions = await _partitions(settings, settings.topic_dead_letter)
    async with _reader(settings) as consumer:
        for partition in partitions:
            if after is None or partition.partition >= after[0]:
                start = after[1] + 1 if after is not None and partition.partition == after[0] else 0
                async for record in _records(consumer, partition, start):
                    if found := _decode(record):
                        yield found


async def fetch(settings: KafkaSettings, places: Iterable[Place]) -> list[Found]:
    """These letters. Raises DeployError where one is not there (any more) or is no dead letter."""
    partitions = await _partitions(settings, settings.topic_dead_letter)
    wanted = [(TopicPartition(settings.topic_dead_letter, number), offset) for number, offset in dict.fromkeys(places)]
    for partition, offset in wanted:
        if partition not in partitions:
            raise _not_there(partition, offset)
    letters = []
    async with _reader(settings) as consumer:
        for partition, offset in wanted:
            if (found := await _one(consumer, partition, offset)) is None:
                raise _not_there(partition, offset)
            letters.append(found)
    return letters


def _not_there(partition: TopicPartition, offset: int) -> DeployError:
    return DeployError(f"no dead letter {partition.partition}:{offset}: `list` shows what is there", exit_code=2)


async def _records(
    consumer: AIOKafkaConsumer, partition: TopicPartition, start: int
) -> AsyncIterator["ConsumerRecord[bytes, bytes]"]:
    """Also what came since the reading began: Tansu's end is the start of its last batch, and the rest of it belongs to the reading."""
    consumer.assign([partition])
    end = (await consumer.end_offsets([partition]))[partition]
    position = max(start, (await consumer.beginning_offsets([partition]))[partition])
    consumer.seek(partition, position)
    while position < end:
        for records in (await consumer.getmany(partition, timeout_ms=1000)).values():
            for record in records:
                yield record
        position = await consumer.position(partition)


async def _one(consumer: AIOKafkaConsumer, partition: TopicPartition, offset: int) -> Found | None:
    consumer.assign([partition])
    consumer.seek(partition, offset)
    fetched = await consumer.getmany(partition, timeout_ms=_MISSING_MS, max_records=1)
    record = next((record for records in fetched.values() for record in records), None)
    # The next one, where this one has left with the topic's retention.
    return None if record is None or record.offset != offset else _decode(record)


@asynccontextmanager
async def _reader(settings: KafkaSettings) -> AsyncIterator[AIOKafkaConsumer]:
    async with started(AIOKafkaConsumer(**settings.kafka_client(), enable_auto_commit=False)) as consumer:
        yield consumer


async def _partitions(settings: KafkaSettings, topic: str) -> list[TopicPartition]:
    admin = AIOKafkaAdminClient(**settings.kafka_client())
    try:
        await admin.start()
        [described] = await admin.describe_topics([topic])
    finally:
        await admin.close()
    numbers = sorted(part["partition"] for part in described["partitions"])
    if not numbers:
        raise DeployError(f"topic {topic} is not there: run `python -m deploy topics`")
    return [TopicPartition(topic, number) for number in numbers]


def _decode(record: "ConsumerRecord[bytes, bytes]") -> Found | None:
    """None for a record that is no dead letter of ours."""
    try:
        letter = DeadLetter.model_validate_json(record.value or b"")
        base64.b64decode(letter.value_base64, validate=True)
    except ValueError:  # ValidationError, binascii.Error
        return None
    return Found((record.partition, record.offset), moment(record.timestamp), record.key, letter)


def moment(timestamp_ms: int) -> datetime:
    """Never fails: a stamp is its writer's word."""
    return datetime.fromtimestamp(min(max(0, timestamp_ms), _LAST_MS) / 1000, UTC)


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    try:
        await client.start()
        yield client
    finally:
        await client.stop()

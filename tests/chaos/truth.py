"""What really stands on Kafka: every topic read whole, and the offsets that the group has committed."""

from collections import defaultdict
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from shared.events import BadRecord, ChatCompleted, ChatDeleted, ChatReset, DeadLetter, MemoryChange, decode_event
from shared.ids import STAND_INS, is_anonymous
from shared.kafka import KafkaSettings
from tests.chaos.plan import TENANTS

ChatKey = tuple[str, str, str]
"""tenant, user, event id"""
Position = tuple[int, int]
"""the broker's append time in ms, offset: comparable within one partition"""


@dataclass
class Published:
    """The topic of chats. `chats` holds each event's copies in the order of the topic; `bad` the places of records that must be dead
    letters; `conflicts` those that must be if the chat whose id they took was staged before."""

    chats: dict[ChatKey, list[tuple[Position, ChatCompleted]]] = field(default_factory=lambda: defaultdict(list))
    resets: list[tuple[Position, ChatReset]] = field(default_factory=list)
    deleted: set[ChatKey] = field(default_factory=set)
    bad: set[tuple[int, int]] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)
    records: int = 0


async def read_topic(kafka: KafkaSettings, topic: str) -> "list[tuple[int, int, int, bytes | None, bytes | None]]":
    """(partition, offset, append time in ms, key, value) of all that stands there now, in the order of each partition."""
    consumer = AIOKafkaConsumer(**kafka.kafka_client(), enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    try:
        places = [TopicPartition(topic, number) for number in range(6)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        await consumer.seek_to_beginning(*places)
        records = []
        unread = {place for place in places if ends[place]}
        while unread:
            for batch in (await consumer.getmany(timeout_ms=1000)).values():
                records += [
                    (r.partition, r.offset, r.timestamp, r.key, r.value)
                    for r in batch
                    if r.offset < ends[TopicPartition(topic, r.partition)]
                ]
            unread = {place for place in unread if await consumer.position(place) < ends[place]}
        return sorted(records, key=lambda record: record[:2])
    finally:
        await consumer.stop()


async def read_published(kafka: KafkaSettings) -> Published:
    published = Published()
    for partition, offset, timestamp, _, value in await read_topic(kafka, kafka.topic_chat_events):
        published.records += 1
        published.ends[partition] = offset + 1
        position = (timestamp, offset)
        try:
            event = decode_event(value).event
        except BadRecord:
            published.bad.add((partition, offset))
            continue
        if event.tenant not in TENANTS:
            published.bad.add((partition, offset))
        elif isinstance(event, ChatReset):
            published.resets.append((position, event))
        elif isinstance(event, ChatDeleted):
            published.deleted.update((event.tenant, event.user, event_id) for event_id in event.event_ids)
        elif not is_anonymous(event.user, STAND_INS):
            copies = published.chats[event.tenant, event.user or "", event.event_id]
            if copies and (copies[0][1].prompt, copies[0][1].thread) != (event.prompt, event.thread):
                published.bad.add((partition, offset))
            else:
                copies.append((position, event))
    return published


async def read_dead_letters(kafka: KafkaSettings) -> set[tuple[int, int]]:
    """The places of the records that were dead-lettered."""
    letters = [
        DeadLetter.model_validate_json(value or b"") for *_, value in await read_topic(kafka, kafka.topic_dead_letter)
    ]
    return {(letter.partition, letter.offset) for letter in letters}


async def read_changes(kafka: KafkaSettings) -> dict[tuple[str, str], list[MemoryChange]]:
    """By person, in the order of the topic."""
    changes: dict[tuple[str, str], list[MemoryChange]] = defaultdict(list)
    for *_, value in await read_topic(kafka, kafka.topic_memory_changes):
        change = MemoryChange.model_validate_json(value or b"")
        changes[change.tenant, change.user].append(change)
    return changes


async def uncommitted(kafka: KafkaSettings, group_id: str) -> int:
    """Records of the topic of chats that the group has not committed."""
    admin = AIOKafkaAdminClient(**kafka.kafka_client())
    consumer = AIOKafkaConsumer(**kafka.kafka_client())
    await admin.start()
    await consumer.start()
    try:
        places = [TopicPartition(kafka.topic_chat_events, number) for number in range(6)]
        ends = await consumer.end_offsets(places)
        committed = await admin.list_consumer_group_offsets(group_id, partitions=places)
        return sum(end - max(0, committed[place].offset if place in committed else 0) for place, end in ends.items())
    finally:
        await consumer.stop()
        await admin.close()

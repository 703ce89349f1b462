"""From accepted requests to records of `chat.events`."""

import os
import time
from collections.abc import Sequence
from uuid import NAMESPACE_URL, uuid5

from pydantic import BaseModel
from pydantic_core import to_json

from services.chat_ingest.schemas import BadChats, Chat
from shared.events import MAX_EVENT_BYTES, BadRecord, decode_event
from shared.ids import DEFAULT_WORKSPACE, partition_key
from shared.kafka import Producer, PublishFailed, Record
from shared.problems import Problem, unavailable
from shared.telemetry.metrics import INGEST_CHATS, INGEST_PUBLISH_SECONDS
from shared.telemetry.tracing import current_traceparent

_KEYED = uuid5(NAMESPACE_URL, "https://keepsake/idempotency-key")


def new_event_ids(count: int) -> list[str]:
    """UUIDv7 (RFC 9562), all of one millisecond."""
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    noise = os.urandom(10 * count).hex()
    return [
        f"{stamp[:8]}-{stamp[8:]}-7{part[:3]}-{'89ab'[int(part[3], 16) & 3]}{part[4:7]}-{part[7:19]}"
        for part in (noise[at : at + 20] for at in range(0, 20 * count, 20))
    ]


def keyed_event_ids(tenant: str, key: str, count: int) -> list[str]:
    """UUIDv5 of tenant, Idempotency-Key and index: the same request makes the same ids. No id or header holds a NUL."""
    return [str(uuid5(_KEYED, f"{tenant}\0{key}\0{index}")) for index in range(count)]


def name_chats(tenant: str, chats: Sequence[Chat], key: str | None) -> list[str]:
    """Each chat's own event id, else one by the Idempotency-Key, else a new one."""
    given = [chat.get("event_id") for chat in chats]
    if all(given):
        return [event_id for event_id in given if event_id]
    made = keyed_event_ids(tenant, key, len(chats)) if key else new_event_ids(len(chats))
    return [event_id or own for event_id, own in zip(given, made, strict=True)]


def chat_record(tenant: str, chat: Chat, event_id: str) -> Record:
    """Raises BadRecord for what the stager could not read: a record above 256 KiB, metadata nested too deep."""
    workspace = chat.get("workspace", DEFAULT_WORKSPACE)
    value = to_json({"type": "chat.completed", "tenant": tenant, **chat, "event_id": event_id})
    if len(value) > MAX_EVENT_BYTES:
        raise BadRecord("too_large", "a chat is at most 256 KiB")
    if chat.get("metadata"):
        decode_event(value)
    return Record(partition_key(tenant, chat["user"], workspace), value)


def chat_records(tenant: str, chats: Sequence[Chat], event_ids: Sequence[str]) -> list[Record]:
    """Raises BadChats."""
    records: list[Record] = []
    errors: list[dict[str, object]] = []
    for index, (chat, event_id) in enumerate(zip(chats, event_ids, strict=True)):
        try:
            records.append(chat_record(tenant, chat, event_id))
        except BadRecord as bad:
            errors.append({"index": index, "code": bad.reason})
    if errors:
        raise BadChats(errors)
    return records


def request_record(tenant: str, kind: str, request: BaseModel, user: str, workspace: str) -> tuple[str, Record]:
    """The event id and record of a reset or deletion. Raises Problem too_large."""
    [event_id] = new_event_ids(1)
    value = to_json({"type": kind, "event_id": event_id, "tenant": tenant, **request.model_dump()})
    if len(value) > MAX_EVENT_BYTES:
        raise Problem("too_large", "a request is at most 256 KiB")
    return event_id, Record(partition_key(tenant, user, workspace), value)


class Publisher:
    def __init__(self, producer: Producer, topic: str, timeout_s: float) -> None:
        self._producer = producer
        self._topic = topic
        self._timeout_s = timeout_s

    async def publish(self, records: Sequence[Record], event_ids: Sequence[str]) -> None:
        """Returns once Kafka has all. Raises Problem unavailable, with the ids under which a retry leaves each chat once."""
        if traceparent := current_traceparent():
            header = [("traceparent", traceparent.encode())]
            records = [record._replace(headers=header) for record in records]
        with INGEST_PUBLISH_SECONDS.time():
            try:
                await self._producer.publish(self._topic, records, timeout=self._timeout_s)
            except PublishFailed:
                INGEST_CHATS.labels("unavailable").inc(len(records))
                raise unavailable(
                    "Kafka did not confirm; send again with these event_ids or the same Idempotency-Key",
                    event_ids=list(event_ids),
                ) from None
        INGEST_CHATS.labels("accepted").inc(len(records))

"""The applications: they publish what the plan says, and repeat it until it was accepted."""

import asyncio
import random
from collections.abc import Sequence

import httpx

from shared.kafka import KafkaSettings, Producer, PublishFailed, Record
from tests.chaos.history import History
from tests.chaos.plan import Send

_AT_ONCE = 64
_POSTED = ("event_id", "user", "workspace", "thread", "prompt", "response", "occurred_at")


class Applications:
    """`accepted` are the numbers of the sends that were acknowledged whole; `retries` how often one had to be repeated."""

    def __init__(self, kafka: KafkaSettings, ingest_url: str, admin_key: str, history: History) -> None:
        self.accepted: set[int] = set()
        self.retries = 0
        self._kafka = kafka
        self._ingest_url = ingest_url
        self._admin_key = admin_key
        self._history = history
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._done: dict[int, asyncio.Event] = {}

    async def publish(self, sends: Sequence[Send]) -> None:
        """Returns once everything is accepted, however long it takes."""
        self._done = {send.number: asyncio.Event() for send in sends}
        headers = {"Authorization": f"Bearer {self._admin_key}"}
        producer = Producer(self._kafka, name="chaos")
        async with httpx.AsyncClient(base_url=self._ingest_url, headers=headers, timeout=8, trust_env=False) as ingest:
            producer.start()
            try:
                async with asyncio.TaskGroup() as group:
                    for send in sends:
                        group.create_task(self._send(send, producer, ingest))
            finally:
                await producer.stop()

    async def _send(self, send: Send, producer: Producer, ingest: httpx.AsyncClient) -> None:
        await asyncio.sleep(max(0.0, send.at - self._history.now()))
        if send.after is not None:
            await self._done[send.after].wait()
        async with self._slots:
            tries = 1
            while not await (self._produce(send, producer) if send.path == "kafka" else self._post(send, ingest)):
                tries += 1
                self.retries += 1
                await asyncio.sleep(random.uniform(0.1, 1.0))
        self.accepted.add(send.number)
        self._done[send.number].set()
        self._history.note(
            "accepted", send=send.number, path=send.path, tries=tries, events=[r.event_id for r in send.records]
        )

    async def _produce(self, send: Send, producer: Producer) -> bool:
        try:
            records = [Record(record.key, record.value) for record in send.records]
            await producer.publish(self._kafka.topic_chat_events, records, timeout=8)
        except PublishFailed:
            return False
        return True

    async def _post(self, send: Send, ingest: httpx.AsyncClient) -> bool:
        fields = _POSTED if send.key is None else _POSTED[1:]
        chats = [{name: (record.event or {}).get(name) for name in fields} for record in send.records]
        headers = {"Keepsake-Tenant": send.records[0].group[0]} | ({"Idempotency-Key": send.key} if send.key else {})
        try:
            answer = await ingest.post("/v1/chats", json=chats, headers=headers)
        except httpx.TransportError:
            return False
        named = [record.event_id for record in send.records]
        if answer.status_code == httpx.codes.ACCEPTED:
            if answer.json()["accepted"] != named:
                self._history.violation("ingest accepted other ids", send=send.number)
            return True
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            self._history.violation("ingest refused", send=send.number, status=answer.status_code)
        return False

"""The stager on a real broker, before a memory-store that can be made to refuse, to be away and to lose answers."""

import asyncio
import json
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CorruptRecordException

from deploy import dead_letters, topics
from deploy.dead_letters import Found
from deploy.local.broker import Broker
from services.extraction.stager.settings import StagerSettings
from services.extraction.stager.stager import PAUSED, POLLING, Stager
from shared.events import ORIGINAL_OFFSET, ORIGINAL_PARTITION, ORIGINAL_TIMESTAMP
from shared.loops import Loops
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import Code, RpcError
from shared.rpc.messages import StageChats, StageChatsReply, StageRecord, Verdict
from tests.support.waiting import until_async


class Store(MemoryStoreClient):
    """Stages into a list. `errors` are answered first; a record that `refuses` makes its whole call invalid; `verdict` may reject."""

    def __init__(self) -> None:
        super().__init__("http://store.invalid", "key")
        self.staged: list[StageRecord] = []
        self.calls: list[list[StageRecord]] = []
        self.errors: deque[Code] = deque()
        self.away = False
        self.takes_s = 0.0
        self.refuses: Callable[[StageRecord], bool] = lambda _: False
        self.verdict: Callable[[StageRecord], Verdict] = lambda _: Verdict(status="staged")

    async def stage_chats(self, request: StageChats, *, timeout: float = 0) -> StageChatsReply:
        self.calls.append(list(request.records))
        await asyncio.sleep(self.takes_s)
        if self.away:
            raise RpcError("unavailable")
        if self.errors:
            raise RpcError(self.errors.popleft())
        if any(self.refuses(record) for record in request.records):
            raise RpcError("invalid_argument")
        self.staged += request.records
        return StageChatsReply(verdicts=[self.verdict(record) for record in request.records])

    @property
    def ids(self) -> list[str]:
        return [record.event.event_id for record in self.staged]


class Bench:
    """Topics of a test's own, and a stager on them."""

    def __init__(self, broker: Broker, **settings: Any) -> None:
        unique = uuid4().hex[:8]
        names = {
            "kafka_bootstrap_servers": (broker.bootstrap,),
            "topic_chat_events": f"events.{unique}",
            "topic_dead_letter": f"dead.{unique}",
            "topic_memory_changes": f"changes.{unique}",
            "group_id": f"group-{unique}",
        }
        self.settings = StagerSettings(**names | settings)
        self.store = Store()
        # Of the stager that was started last.
        self.stager: Stager
        self.loops: Loops

    @asynccontextmanager
    async def staging(self, **settings: Any) -> AsyncIterator["Bench"]:
        stop = asyncio.Event()
        self.loops = Loops()
        self.stager = Stager(self.settings.model_copy(update=settings), self.store, self.loops, stop)
        task = asyncio.create_task(self.stager.run())
        try:
            yield self
        finally:
            stop.set()
            await task

    async def publish(self, *values: bytes, headers: list[tuple[str, Any]] | None = None, partition: int = 0) -> None:
        """All in one partition, so that they come in this order."""
        producer = AIOKafkaProducer(**self.settings.kafka_client(), acks="all", max_request_size=2**21)
        await producer.start()
        try:
            for value in values:
                topic = self.settings.topic_chat_events
                await producer.send(topic, value, key=b"k", partition=partition, headers=headers or [])
        finally:
            await producer.stop()

    async def committed(self, partition: int = 0) -> int:
        """The committed offset of a partition; 0 where there is none."""
        consumer = AIOKafkaConsumer(
            **self.settings.kafka_client(), group_id=self.settings.group_id, enable_auto_commit=False
        )
        place = TopicPartition(self.settings.topic_chat_events, partition)
        await consumer.start()
        try:
            consumer.assign([place])
            return await consumer.committed(place) or 0
        finally:
            await consumer.stop()

    async def has_committed(self, offset: int, partition: int = 0) -> None:
        async with asyncio.timeout(60):
            while (committed := await self.committed(partition)) < offset:  # noqa: ASYNC110 (the broker tells nobody)
                await asyncio.sleep(0.1)
        assert committed == offset

    async def buried(self) -> list[Found]:
        return await dead_letters.read(self.settings)


@pytest.fixture
async def bench(kafka: Broker) -> Bench:
    bench = Bench(kafka)
    await topics.ensure(bench.settings)
    return bench


def chat(event_id: str, **fields: Any) -> bytes:
    event = {"type": "chat.completed", "event_id": event_id, "user": "dana", "prompt": "hi", "response": "hello"}
    return json.dumps(event | fields).encode()


async def test_a_poll_is_one_call_and_committed_after_it(bench: Bench) -> None:
    await bench.publish(*(chat(f"e{n}") for n in range(300)))
    async with bench.staging():
        await until_async(lambda: len(bench.store.staged) == 300, 30)
        await bench.has_committed(300)
    assert bench.store.ids == [f"e{n}" for n in range(300)]
    assert len(bench.store.calls) <= 3
    assert [record.offset for record in bench.store.staged] == list(range(300))


async def test_bad_records_are_buried_and_their_neighbours_staged(bench: Bench) -> None:
    await bench.publish(chat("a"), b"{", chat("b"), b'{"type":"chat.ended"}', b"", chat("c"))
    async with bench.staging():
        await until_async(lambda: bench.store.ids == ["a", "b", "c"], 30)
        await bench.has_committed(6)
    letters = [found.letter for found in await bench.buried()]
    assert sorted((letter.offset, letter.reason) for letter in letters) == [
        (1, "not_json"),
        (3, "unknown_type"),
        (4, "not_json"),
    ]
    assert {found.key for found in await bench.buried()} == {b"k"}


async def test_a_refused_call_is_split_until_the_culprit_stands_alone(bench: Bench) -> None:
    bench.store.refuses = lambda record: record.event.event_id == "e37"
    await bench.publish(*(chat(f"e{n}") for n in range(64)))
    async with bench.staging():
        await until_async(lambda: len(bench.store.staged) == 63, 30)
        await bench.has_committed(64)
    [found] = await bench.buried()
    assert (found.letter.offset, found.letter.reason) == (37, "invalid")
    assert found.value == chat("e37")


async def test_what_the_store_rejects_is_buried_with_its_reason(bench: Bench) -> None:
    bench.store.verdict = lambda record: (
        Verdict(status="rejected", reason="unknown_tenant")
        if record.event.tenant == "nobody"
        else Verdict(status="staged")
    )
    await bench.publish(chat("a"), chat("b", tenant="nobody"))
    async with bench.staging():
        await bench.has_committed(2)
    assert [found.letter.reason for found in await bench.buried()] == ["unknown_tenant"]


async def test_anonymous_records_are_dropped_here(bench: Bench) -> None:
    await bench.publish(chat("a", user=None), chat("b", user="Guest"), chat("c", user=""), chat("d"))
    async with bench.staging():
        await bench.has_committed(4)
    assert bench.store.ids == ["d"]


async def test_the_store_is_away_for_longer_than_the_poll_limit(bench: Bench) -> None:
    bench.store.away = True
    await bench.publish(*(chat(f"e{n}") for n in range(50)))
    async with bench.staging(max_poll_interval_ms=1500, stage_batch=10):
        await until_async(lambda: bench.stager._holding, 30)
        joined = bench.stager._generation
        # Three poll limits without an answer.
        tries = len(bench.store.calls)
        started = time.monotonic()
        await until_async(lambda: time.monotonic() - started > 4.5)
        assert len(bench.store.calls) - tries < 20
        assert await bench.committed() == 0
        assert bench.stager._generation == joined
        assert len(bench.stager._waiting) <= 2
        assert bench.loops.stalled() == []
        bench.store.away = False
        await until_async(lambda: len(bench.store.staged) == 50, 30)
        await bench.has_committed(50)
        await bench.publish(chat("later"))
        await until_async(lambda: "later" in bench.store.ids, 30)
    assert bench.store.ids == [*(f"e{n}" for n in range(50)), "later"]


async def test_too_many_dead_letters_pause_the_consumer(bench: Bench) -> None:
    await bench.publish(*(chat(f"good{n}") for n in range(99)))
    async with bench.staging(stage_batch=50):
        await bench.has_committed(99)
        await bench.publish(*(b"{" for _ in range(150)), chat("last"))
        await until_async(lambda: bench.stager.not_ready == PAUSED, 30)
        buried = len(await bench.buried())
        assert buried <= 100
        assert "last" not in bench.store.ids
        assert bench.loops.stalled() == []
        await bench.has_committed(99 + buried)
    async with bench.staging(dead_letter_max_ratio=1.0):
        await until_async(lambda: "last" in bench.store.ids, 60)
        await bench.has_committed(250)
    assert len(await bench.buried()) == 150


async def test_headers_never_stop_a_record(bench: Bench) -> None:
    await bench.publish(chat("a"), headers=[("x", b"\xff\xfe"), ("traceparent", b"\xff"), ("empty", None)])
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await bench.publish(chat("b"), headers=[("traceparent", trace)])
    async with bench.staging():
        await bench.has_committed(2)
    assert [record.traceparent for record in bench.store.staged] == [None, trace.decode()]


async def test_a_replayed_dead_letter_keeps_its_first_position(bench: Bench) -> None:
    def original(partition: bytes, offset: bytes, timestamp: bytes) -> list[tuple[str, bytes]]:
        return [(ORIGINAL_PARTITION, partition), (ORIGINAL_OFFSET, offset), (ORIGINAL_TIMESTAMP, timestamp)]

    await bench.publish(chat("replayed"), headers=original(b"4", b"77", b"1700000000000"))
    await bench.publish(chat("not a number"), headers=original(b"4", b"-1", b"1700000000000"))
    await bench.publish(chat("from the future"), headers=original(b"4", b"77", b"99999999999999"))
    async with bench.staging():
        await bench.has_committed(3)
    first, *others = bench.store.staged
    assert (first.partition, first.offset, first.timestamp_ms) == (4, 77, 1700000000000)
    assert [(record.partition, record.offset) for record in others] == [(0, 1), (0, 2)]


async def test_a_lost_answer_is_asked_for_again(bench: Bench) -> None:
    bench.store.errors.extend(["deadline_exceeded", "internal", "unauthenticated"])
    await bench.publish(chat("a"))
    async with bench.staging():
        await bench.has_committed(1)
    assert len(bench.store.calls) == 4


async def test_a_second_stager_joins_and_leaves_in_mid_batch(bench: Bench) -> None:
    bench.store.takes_s = 0.2
    for partition in range(6):
        await bench.publish(*(chat(f"{partition}-{n}") for n in range(300)), partition=partition)
    everything = {f"{partition}-{n}" for partition in range(6) for n in range(300)}
    async with bench.staging(stage_batch=25):
        first = bench.stager
        await until_async(lambda: len(bench.store.staged) >= 200, 60)
        async with bench.staging(stage_batch=25):
            await until_async(lambda: first._generation >= 1 and len(bench.stager._assigned()) == 3, 60)
            before = len(bench.store.staged)
            await until_async(lambda: len(bench.store.staged) >= before + 200, 60)
        for partition in range(6):
            await bench.has_committed(300, partition)
    assert set(bench.store.ids) == everything


async def test_a_stop_commits_what_is_staged_and_nothing_else(bench: Bench) -> None:
    await bench.publish(*(chat(f"e{n}") for n in range(100)))
    async with bench.staging(stage_batch=10):
        await until_async(lambda: bool(bench.store.staged), 30)
    staged = len(bench.store.staged)
    assert await bench.committed() == staged
    async with bench.staging():
        await until_async(lambda: len(bench.store.staged) == 100, 60)
    assert bench.store.ids == [f"e{n}" for n in range(100)]


async def test_a_defect_ends_the_role_and_commits_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("services.extraction.stager.stager.read_poll", broken)
    await bench.publish(chat("a"))
    with pytest.raises(ZeroDivisionError):
        async with bench.staging():
            await until_async(lambda: bench.stager._crash is not None, 30)
    assert await bench.committed() == 0


_BROKEN_HEADER = """
import asyncio, sys
from aiokafka import AIOKafkaProducer

class Name(str):
    def encode(self, *_):
        return b"\\xff\\xfe"

async def main(bootstrap, topic, value):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    await producer.send_and_wait(topic, value.encode(), key=b"k", partition=0, headers=[(Name("ab"), b"x")])
    await producer.stop()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.apache_kafka
async def test_a_record_that_the_client_cannot_parse_ends_the_role_and_loses_nothing(bench: Bench) -> None:
    await bench.publish(*(chat(f"e{n}") for n in range(5)))
    # The compiled client refuses to write such a name; its Python twin does not.
    arguments = [bench.settings.kafka_bootstrap_servers[0], bench.settings.topic_chat_events, chat("odd").decode()]
    environment = os.environ | {"AIOKAFKA_NO_EXTENSIONS": "1"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _BROKEN_HEADER, *arguments, env=environment)
    assert await process.wait() == 0
    await bench.publish(chat("last"))
    for _ in range(2):
        with pytest.raises((CorruptRecordException, UnicodeDecodeError)):
            async with bench.staging():
                await until_async(lambda: bench.stager._crash is not None, 30)
        staged = len(set(bench.store.ids))
        assert await bench.committed() <= staged
        assert set(bench.store.ids) <= {f"e{n}" for n in range(5)}


async def test_the_broker_is_away_at_start(own_kafka: Broker) -> None:
    bench = Bench(own_kafka)
    await topics.ensure(bench.settings)
    await bench.publish(chat("a"))
    if not own_kafka.keeps_topics:
        pytest.skip("this broker forgets its topics")
    await asyncio.to_thread(own_kafka.stop)
    async with bench.staging():
        await until_async(lambda: POLLING in bench.loops._loops, 30)
        assert bench.stager.not_ready == "starting"
        await asyncio.to_thread(own_kafka.start)
        await bench.has_committed(1)
    assert bench.store.ids == ["a"]

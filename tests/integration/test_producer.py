"""The producer on a real broker: order, outages, and what it does with what nobody waits for any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import OutOfOrderSequenceNumber
from aiokafka.partitioner import DefaultPartitioner

from deploy.local.broker import Broker
from shared.kafka import KafkaSettings, Producer, PublishFailed, Record
from tests.support.waiting import until_async

PARTITIONS = 6


async def make_topic(broker: Broker) -> tuple[KafkaSettings, str]:
    settings = KafkaSettings(kafka_bootstrap_servers=(broker.bootstrap,))
    topic = f"topic-{uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(**settings.kafka_client())
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    finally:
        await admin.close()
    return settings, topic


@asynccontextmanager
async def producing(settings: KafkaSettings) -> AsyncIterator[Producer]:
    producer = Producer(settings, name="test")
    producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def read(
    settings: KafkaSettings, topic: str, count: int, last: bytes = b""
) -> dict[int, list[tuple[bytes | None, bytes]]]:
    """At least the first `count` records by partition, and all up to the value `last`."""
    consumer = AIOKafkaConsumer(topic, **settings.kafka_client(), auto_offset_reset="earliest")
    await consumer.start()
    found: dict[int, list[tuple[bytes | None, bytes]]] = {}
    try:
        async with asyncio.timeout(30):
            value = b""
            while sum(map(len, found.values())) < count or not value.startswith(last):
                record = await consumer.getone()
                value = record.value
                found.setdefault(record.partition, []).append((record.key, value))
    finally:
        await consumer.stop()
    return found


async def test_a_key_keeps_its_partition_and_the_order_of_its_calls(kafka: Broker) -> None:
    settings, topic = await make_topic(kafka)
    async with producing(settings) as producer:
        await until_async(lambda: producer.connected, 30)
        calls = [
            producer.publish(topic, [Record(f"key{key}".encode(), str(call).encode()) for key in range(20)], timeout=20)
            for call in range(50)
        ]
        await asyncio.gather(*calls)
    by_partition = await read(settings, topic, 1000)
    partitioner, everywhere = DefaultPartitioner(), list(range(PARTITIONS))
    order: dict[bytes, list[int]] = {}
    for partition, records in by_partition.items():
        for key, value in records:
            assert key is not None
            assert partitioner(key, everywhere, everywhere) == partition
            order.setdefault(key, []).append(int(value))
    assert len(order) == 20
    assert all(calls == list(range(50)) for calls in order.values())


async def test_records_larger_than_a_batch(kafka: Broker) -> None:
    settings, topic = await make_topic(kafka)
    large = [Record(b"k", bytes([65 + n]) * 250_000) for n in range(8)]
    async with producing(settings) as producer:
        await until_async(lambda: producer.connected, 30)
        await producer.publish(topic, [*large, Record(None, b"small", [("h", b"\xff")])], timeout=20)
    found = [record for records in (await read(settings, topic, 9)).values() for record in records]
    assert sorted(len(value) for _, value in found) == [5, *[250_000] * 8]


async def test_before_it_is_connected_nothing_is_taken() -> None:
    settings = KafkaSettings(kafka_bootstrap_servers=("127.0.0.1:1",))
    async with producing(settings) as producer:
        with pytest.raises(PublishFailed):
            await producer.publish("topic", [Record(b"k", b"v")], timeout=5)
        assert await producer.missing() is None


@pytest.mark.apache_kafka
async def test_a_topic_that_is_not_there_fails_in_time(kafka: Broker) -> None:
    settings, _ = await make_topic(kafka)
    async with producing(settings) as producer:
        await until_async(lambda: producer.connected, 30)
        async with asyncio.timeout(10):
            with pytest.raises(PublishFailed):
                await producer.publish("no-such-topic", [Record(b"k", b"v")], timeout=1)


@pytest.mark.apache_kafka
async def test_the_broker_is_killed_and_comes_back(own_kafka: Broker) -> None:
    settings, topic = await make_topic(own_kafka)
    async with producing(settings) as producer:
        await until_async(lambda: producer.connected, 30)
        await producer.publish(topic, [Record(b"k", b"before")], timeout=10)
        await asyncio.to_thread(own_kafka.kill)
        under_way = asyncio.create_task(producer.publish(topic, [Record(b"k", b"under way")], timeout=1))
        await until_async(lambda: bool(producer._rounds and not producer._rounds.done() and not producer._waiting))
        tries = [producer.publish(topic, [Record(b"k", b"waiting")], timeout=1) for _ in range(5)]
        ends = await asyncio.gather(under_way, *tries, return_exceptions=True)
        assert all(isinstance(end, PublishFailed) for end in ends)
        assert await producer.missing() is None
        await asyncio.to_thread(own_kafka.start)

        async def published() -> None:
            while True:
                try:
                    return await producer.publish(topic, [Record(b"k", b"after")], timeout=2)
                except PublishFailed:
                    continue

        async with asyncio.timeout(60):
            await published()
        assert await producer.missing() == []
    [records] = (await read(settings, topic, 2, last=b"after")).values()
    # The batch that was under way may arrive late; what waited behind it, and was given up, never leaves.
    values = [value for _, value in records]
    assert (values[0], values[-1]) == (b"before", b"after")
    assert b"waiting" not in values


async def test_after_a_fatal_error_a_new_producer_goes_on(kafka: Broker) -> None:
    settings, topic = await make_topic(kafka)
    async with producing(settings) as producer:
        await until_async(lambda: producer.connected, 30)
        first = producer._producer
        assert first is not None
        # What a broker's answer of this kind makes of the library's producer.
        first._message_accumulator.fail_all(OutOfOrderSequenceNumber())
        with pytest.raises(PublishFailed):
            await producer.publish(topic, [Record(b"k", b"lost")], timeout=5)
        await until_async(lambda: producer.connected, 30)
        assert producer._producer is not first
        await producer.publish(topic, [Record(b"k", b"kept")], timeout=10)
    [records] = (await read(settings, topic, 1)).values()
    assert [value for _, value in records] == [b"kept"]

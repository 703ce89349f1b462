"""The outbox on real Postgres and a real broker: every change arrives, in order per person, and none leaves before Kafka has it."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer

from deploy import topics
from deploy.local.broker import Broker
from services.memory_store.facts import ledger
from services.memory_store.facts.ledger import Author, NewFact
from services.memory_store.outbox.relay import Relay
from shared.events import MemoryChange
from shared.kafka import KafkaSettings, Producer, PublishFailed, Record
from shared.loops import Loops
from tests.integration.memory_store.lab import Lab
from tests.support.waiting import until_async

USERS = [f"user {n}" for n in range(6)]


@pytest.fixture
async def settings(kafka: Broker) -> KafkaSettings:
    names = {name: f"{name}-{uuid4().hex[:8]}" for name in ("chat_events", "dead_letter", "memory_changes")}
    settings = KafkaSettings.model_validate(
        {"kafka_bootstrap_servers": (kafka.bootstrap,)} | {f"topic_{key}": name for key, name in names.items()}
    )
    await topics.ensure(settings)
    return settings


@pytest.fixture
async def producer(settings: KafkaSettings) -> AsyncIterator[Producer]:
    producer = Producer(settings, name="test")
    producer.start()
    await until_async(lambda: producer.connected, 30)
    yield producer
    await producer.stop()


class Broken(Producer):
    """Fails every so often: before Kafka has anything, or after it has all but could not say so."""

    def __init__(self, inner: Producer) -> None:
        self._inner = inner
        self.calls = 0

    async def publish(self, topic: str, records: Sequence[Record], *, timeout: float) -> None:
        self.calls += 1
        if self.calls % 3 == 1:
            raise PublishFailed
        await self._inner.publish(topic, records, timeout=timeout)
        if self.calls % 3 == 2:
            raise PublishFailed


async def change_facts(lab: Lab, user: str, times: int) -> None:
    for n in range(times):
        async with lab.database.person("default", user) as connection:
            await ledger.lock_person(connection)
            fact = await ledger.insert(connection, Author("user:" + user), NewFact("w", f"fact {n}", "person"))
            await ledger.change(connection, Author("user:" + user), fact, "fact.updated", content=f"changed {n}")


async def arrived(settings: KafkaSettings, at_least: int) -> dict[str, list[MemoryChange]]:
    """By user, in the order they came."""
    consumer = AIOKafkaConsumer(
        settings.topic_memory_changes, **settings.kafka_client(), auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    found: dict[str, list[MemoryChange]] = defaultdict(list)
    try:
        async with asyncio.timeout(30):
            while len({each.change_id for changes in found.values() for each in changes}) < at_least:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    for record in records:
                        assert record.value is not None
                        change = MemoryChange.model_validate_json(record.value)
                        assert record.key == f"default/{change.user.replace(' ', '%20')}".encode()
                        assert b"fact 1" not in record.value
                        found[change.user].append(change)
    finally:
        await consumer.stop()
    return found


def first_seen(changes: list[MemoryChange]) -> list[tuple[str, str | None, int | None]]:
    """Without what came a second time."""
    unique = {change.change_id: change for change in changes}
    return [(change.type, change.fact_id, change.version) for change in unique.values()]


async def committed(lab: Lab, user: str) -> list[tuple[str, str | None, int | None]]:
    rows = await lab.sql("SELECT action, fact_id, to_version FROM audit WHERE usr = $1 ORDER BY id", user)
    return [(row["action"], str(row["fact_id"]), row["to_version"]) for row in rows]


async def test_every_change_arrives_in_order(lab: Lab, settings: KafkaSettings, producer: Producer) -> None:
    """With three relays at once, while people write, and a broker that fails in every way now and then."""
    relays = [
        asyncio.create_task(Relay(lab.database, link, settings.topic_memory_changes, Loops(), 0.01).run())
        for link in (producer, Broken(producer), producer)
    ]
    try:
        await asyncio.gather(*(change_facts(lab, user, 10) for user in USERS))
        found = await arrived(settings, at_least=len(USERS) * 20)
        async with asyncio.timeout(10):
            while await lab.value("SELECT count(*) FROM outbox"):  # noqa: ASYNC110 (the table tells nobody)
                await asyncio.sleep(0.02)
    finally:
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)
    for user in USERS:
        assert first_seen(found[user]) == await committed(lab, user)


async def test_nothing_leaves_before_kafka_has_it(lab: Lab, settings: KafkaSettings) -> None:
    unconnected = Producer(settings, name="test")
    relay = Relay(lab.database, unconnected, settings.topic_memory_changes, Loops(), 0.01)
    assert await relay.relay() == 0
    await change_facts(lab, "ann", 1)
    with pytest.raises(PublishFailed):
        await relay.relay()
    assert await lab.value("SELECT count(*) FROM outbox") == 2


async def test_one_relay_at_a_time(lab: Lab, settings: KafkaSettings, producer: Producer) -> None:
    await change_facts(lab, "ann", 1)
    holding, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Broken):
        async def publish(self, topic: str, records: Sequence[Record], *, timeout: float) -> None:
            holding.set()
            await go_on.wait()
            await producer.publish(topic, records, timeout=timeout)

    slow, other = (
        Relay(lab.database, link, settings.topic_memory_changes, Loops(), 0.01) for link in (Slow(producer), producer)
    )
    first = asyncio.create_task(slow.relay())
    await holding.wait()
    assert await other.relay() == 0
    go_on.set()
    assert await first == 2
    assert await other.relay() == 0

"""The operator's commands on real servers: safe to repeat, clear when they refuse."""

import asyncio
import base64
import json
from argparse import Namespace
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy import dead_letters, topics
from deploy.errors import DeployError
from deploy.local.broker import Broker
from deploy.migrate import migrate, set_app_password
from shared.kafka import KafkaSettings
from tests.support.postgres import PostgresForTests


def _settings(broker: Broker) -> KafkaSettings:
    unique = uuid4().hex[:8]
    return KafkaSettings(
        kafka_bootstrap_servers=(broker.bootstrap,),
        topic_chat_events=f"chats.{unique}",
        topic_dead_letter=f"dead.{unique}",
        topic_memory_changes=f"changes.{unique}",
    )


async def _make(broker: Broker, name: str, config: dict[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1, topic_configs=config)])
    await admin.close()


async def test_topics_are_made_once_and_stay(kafka: Broker) -> None:
    settings = _settings(kafka)
    first = await topics.ensure(settings)
    assert first[0] == f"{settings.topic_chat_events}: made, 6 partitions, kept 7 days"
    assert await topics.ensure(settings) == [
        f"{settings.topic_chat_events}: there already, kept 7 days",
        f"{settings.topic_dead_letter}: there already, kept 14 days",
        f"{settings.topic_memory_changes}: there already, kept 14 days",
    ]


@pytest.mark.parametrize("config", [{"retention.ms": "-1"}, {"cleanup.policy": "compact"}])
async def test_a_topic_without_a_bound_is_refused_by_name(kafka: Broker, config: dict[str, str]) -> None:
    settings = _settings(kafka)
    await _make(kafka, settings.topic_dead_letter, config | {"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(DeployError, match=f"topic {settings.topic_dead_letter} keeps its records for ever"):
        await topics.ensure(settings)


@pytest.mark.apache_kafka
async def test_a_topic_with_producers_times_is_refused_by_name(kafka: Broker) -> None:
    settings = _settings(kafka)
    await _make(kafka, settings.topic_chat_events, {})
    with pytest.raises(DeployError, match=f"topic {settings.topic_chat_events} takes its producers' times"):
        await topics.ensure(settings)


async def test_topics_says_where_kafka_is_away() -> None:
    with pytest.raises(DeployError, match=r"Kafka at 127\.0\.0\.1:9 "):
        await topics.ensure(KafkaSettings(kafka_bootstrap_servers=("127.0.0.1:9",)))


async def test_migrations_are_applied_once_even_by_two_at_a_time(postgres: PostgresForTests, tmp_path: Path) -> None:
    database = postgres.create()
    (tmp_path / "9999_slow.sql").write_text(
        "-- migrate:up\nSELECT pg_sleep(0.3);\nCREATE TABLE slow (n int);\n-- migrate:down\n"
    )
    applied = await asyncio.gather(*(asyncio.to_thread(migrate, database.owner_url, tmp_path) for _ in range(2)))
    assert sorted(applied) == [[], ["9999_slow.sql"]]
    assert await asyncio.to_thread(migrate, database.owner_url, tmp_path) == []
    postgres.drop(database)


def test_a_failed_migration_leaves_nothing_and_says_why(postgres: PostgresForTests, tmp_path: Path) -> None:
    database = postgres.create()
    (tmp_path / "9999_bad.sql").write_text(
        "-- migrate:up\nCREATE TABLE half (n int);\nCREATE TABLE half (n int);\n-- migrate:down\n"
    )
    with pytest.raises(DeployError, match='relation "half" already exists'):
        migrate(database.owner_url, tmp_path)
    (tmp_path / "9999_bad.sql").write_text("-- migrate:up\nCREATE TABLE half (n int);\n-- migrate:down\n")
    assert migrate(database.owner_url, tmp_path) == ["9999_bad.sql"]
    postgres.drop(database)


def test_a_wrong_database_url_is_never_repeated() -> None:
    with pytest.raises(DeployError) as failed:
        migrate("mysql://user:secret@host/name")
    assert "secret" not in str(failed.value)


async def test_the_app_role_gets_the_password_of_its_url(postgres: PostgresForTests) -> None:
    database = postgres.create()
    try:
        changed = postgres.server.url(database.name, "keepsake_app", "changed: é /@")
        assert await set_app_password(database.owner_url, changed)
        await (await asyncpg.connect(changed)).close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(database.app_url)
    finally:
        assert await set_app_password(database.owner_url, database.app_url)
    await (await asyncpg.connect(database.app_url)).close()
    postgres.drop(database)


async def test_dead_letters_are_listed_shown_and_replayed(kafka: Broker) -> None:
    settings = _settings(kafka)
    await topics.ensure(settings)
    whole, cut = _letter(settings, 3, b"\xff{ what was said"), _letter(settings, 4, b"too long", size=9999)
    producer = AIOKafkaProducer(**settings.kafka_client())
    await producer.start()
    for letter in (whole, cut):
        await producer.send_and_wait(settings.topic_dead_letter, json.dumps(letter).encode(), key=b"a/b/c", partition=1)
    await producer.send_and_wait(settings.topic_dead_letter, b"not ours", partition=1)
    await producer.stop()

    listed = await dead_letters.run(settings, Namespace(action="list", reason=None))
    assert [line.split()[0] for line in listed] == ["1:0", "1:1", "2"]
    assert "what was said" not in "".join(listed)
    assert await dead_letters.run(settings, Namespace(action="list", reason="too_old")) == ["0 dead letters"]
    shown = await dead_letters.run(settings, Namespace(action="show", ids=["1:0"]))
    assert shown[1].endswith("{ what was said")
    with pytest.raises(DeployError, match="no dead letter 5:5"):
        await dead_letters.run(settings, Namespace(action="show", ids=["5:5"]))

    replayed = await dead_letters.run(settings, Namespace(action="replay", ids=[], reason=None, all=True))
    assert replayed == [
        f"1:0: replayed to {settings.topic_chat_events}",
        "1:1: not replayed, only its first 8 bytes were kept",
    ]
    consumer = AIOKafkaConsumer(**settings.kafka_client(), auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(settings.topic_chat_events, 2)])
    record = await asyncio.wait_for(consumer.getone(), 10)
    await consumer.stop()
    assert (record.key, record.value) == (b"a/b/c", b"\xff{ what was said")
    assert dict(record.headers) == {
        "keepsake-original-timestamp": b"1700000000000",
        "keepsake-original-partition": b"2",
        "keepsake-original-offset": b"3",
    }


def _letter(settings: KafkaSettings, offset: int, value: bytes, size: int | None = None) -> dict[str, object]:
    return {
        "topic": settings.topic_chat_events,
        "partition": 2,
        "offset": offset,
        "timestamp": 1700000000000,
        "reason": "not_json",
        "detail": "the value is no JSON",
        "size": len(value) if size is None else size,
        "sha256": "0" * 64,
        "value_base64": base64.b64encode(value).decode(),
    }

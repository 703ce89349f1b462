"""The operator's commands on real servers: safe to repeat, clear when they refuse."""

import asyncio
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy import topics
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

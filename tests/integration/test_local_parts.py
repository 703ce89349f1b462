"""The servers of a local run: they start, keep what they were given, and say clearly why they cannot start."""

import signal
from pathlib import Path

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy.errors import DeployError
from deploy.local import brokers
from deploy.local import kafka as kafka_jars
from deploy.local.broker import Broker
from deploy.local.postgres import Postgres
from deploy.local.processes import port_is_free, start
from tests.support.ports import free_port
from tests.support.postgres import PostgresForTests


async def test_postgres_keeps_its_data_over_a_stop_and_a_kill(data_folder: Path) -> None:
    server = Postgres(data_folder / "postgres", free_port(), 'it\'s a "pass\\word" /@:', durable=False)
    server.start()
    try:
        connection = await asyncpg.connect(server.url())
        await connection.execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
        await connection.close()
        for end in (server.stop, server.kill):
            end()
            server.start()
            connection = await asyncpg.connect(server.url())
            assert await connection.fetchval("SELECT n FROM kept") == 7
            await connection.close()
    finally:
        server.stop()
    assert port_is_free(server.port)


async def test_postgres_asks_for_a_password(postgres: PostgresForTests) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres.server.url(password="wrong"))


async def test_postgres_writes_no_statement_into_its_log(postgres: PostgresForTests) -> None:
    connection = await asyncpg.connect(postgres.server.url())
    with pytest.raises(asyncpg.PostgresError):
        await connection.execute("INSERT INTO canary_in_a_statement VALUES ('canary in a value')")
    with pytest.raises(asyncpg.PostgresError):
        await connection.fetch("SELECT $1::int / 0, $2::text", 1, "canary in a parameter")
    await connection.close()
    log = postgres.server.log.read_text()
    assert "ERROR" in log
    assert "canary in a" not in log


@pytest.mark.apache_kafka
async def test_kafka_keeps_its_topics_over_a_stop_and_a_kill(own_kafka: Broker) -> None:
    await _make_topic(own_kafka, "kept")
    for end in (own_kafka.stop, own_kafka.kill):
        end()
        own_kafka.start()
        assert "kept" in await _topics(own_kafka)


async def test_tansu_takes_topics(tmp_path: Path) -> None:
    broker = brokers.make("tansu", tmp_path, free_port(), free_port())
    broker.start()
    try:
        await _make_topic(broker, "made")
        assert "made" in await _topics(broker)
    finally:
        broker.stop()


def test_the_broker_is_chosen_by_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jars, "missing", lambda _: None)
    assert brokers.choose("auto", tmp_path) == "kafka"
    assert brokers.choose("tansu", tmp_path) == "tansu"
    monkeypatch.setattr(kafka_jars, "missing", lambda _: "its jars are not there yet: run `make kafka`")
    assert brokers.choose("auto", tmp_path) == "tansu"
    with pytest.raises(DeployError, match="make kafka"):
        brokers.choose("kafka", tmp_path)


def test_a_part_that_ends_at_once_shows_its_last_lines(tmp_path: Path) -> None:
    child = start("part", ["sh", "-c", "echo why it cannot; exit 3"], log=tmp_path / "part.log")
    with pytest.raises(DeployError, match=r"part ended with code 3\n    why it cannot"):
        child.wait_until(lambda: False, timeout_s=10)


def test_a_part_that_ignores_its_end_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    child = start("part", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], log=log)
    child.wait_until(lambda: "up" in child.last_lines(), timeout_s=10)
    assert child.stop(grace_s=0.2) == -signal.SIGKILL


async def _make_topic(broker: Broker, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1)])
    await admin.close()


async def _topics(broker: Broker) -> list[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    names = await admin.list_topics()
    await admin.close()
    return list(names)

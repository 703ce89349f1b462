"""/healthz and /readyz of each service: started once, alive while its loops move, ready while it can serve; and why not, in a word."""

import asyncio
import json
from functools import partial
from typing import Any

import asyncpg
import httpx
import pytest

from deploy.local.database import Database
from deploy.local.services import SERVICES, Service
from tests.conftest import SystemFactory
from tests.support.ports import free_port
from tests.support.scraping import scrape
from tests.support.system import System
from tests.support.waiting import until

PATIENCE_S = 60.0


def probe(service: Service, path: str) -> tuple[int, str]:
    """Status and word; (0, "") where nobody answers."""
    try:
        answer = httpx.get(f"{service.url}{path}", timeout=10, trust_env=False)
    except httpx.HTTPError:
        return 0, ""
    return answer.status_code, answer.json()["status"]


def ready(service: Service) -> tuple[int, str]:
    return probe(service, "/readyz")


def becomes(service: Service, answer: tuple[int, str]) -> None:
    until(lambda: ready(service) == answer, PATIENCE_S)


def lines(system: System, service: str, event: str) -> list[Any]:
    logged = [json.loads(line) for line in system.log(service).splitlines() if line.startswith("{")]
    return [line for line in logged if line["event"] == event]


def test_all_are_alive_and_ready(system: SystemFactory) -> None:
    started = system().start()
    for name in SERVICES:
        service = started.services[name]
        assert (probe(service, "/healthz"), ready(service)) == ((200, "ok"), (200, "ok"))


def test_the_store_is_not_started_before_its_schema_is_current(system: SystemFactory, database: Database) -> None:
    started = system()
    store = started.services["memory_store"]
    newest = asyncio.run(migrations(database, "DELETE FROM schema_migrations WHERE version = $1"))
    started.launch("memory_store")
    becomes(store, (503, "schema_outdated"))
    assert probe(store, "/healthz") == (200, "ok")
    assert scrape(store.url).total("schema_version") == int(newest) - 1
    asyncio.run(migrations(database, "INSERT INTO schema_migrations VALUES ($1)", version=newest))
    becomes(store, (200, "ok"))
    assert scrape(store.url).total("schema_version") == int(newest)


async def migrations(database: Database, statement: str, *, version: str | None = None) -> str:
    """Runs the statement with the newest migration, or with this one; answers which."""
    connection = await asyncpg.connect(database.superuser_url)
    try:
        of = version or str(await connection.fetchval("SELECT max(version) FROM schema_migrations"))
        await connection.execute(statement, of)
        return of
    finally:
        await connection.close()


@pytest.mark.parametrize("service", ["chat_ingest", "extraction"])
def test_missing_topics_are_named(system: SystemFactory, service: str) -> None:
    started = system().start("memory_store")
    started.launch(service, topic_chat_events="chat.events.nobody.made")
    becomes(started.services[service], (503, "topics_missing"))
    assert probe(started.services[service], "/healthz") == (200, "ok")
    if service == "extraction":
        until(lambda: len(lines(started, service, "topics_missing")) == 1)
        [line] = lines(started, service, "topics_missing")
        assert line["topics"] == ["chat.events.nobody.made"]


def test_extraction_goes_on_once_its_topics_are_there(system: SystemFactory) -> None:
    started = system().start("memory_store")
    names = {"topic_chat_events": f"{started.topic_chat_events}.late", "topic_dead_letter": started.topic_dead_letter}
    started.launch("extraction", **names)
    extraction = started.services["extraction"]
    becomes(extraction, (503, "topics_missing"))
    started.topic_chat_events = names["topic_chat_events"]
    started.make_topics()
    becomes(extraction, (200, "ok"))
    assert len(lines(started, "extraction", "topics_missing")) == 1
    assert len(lines(started, "extraction", "topics_found")) == 1


def test_without_the_store_injection_serves_and_the_others_say_why(system: SystemFactory) -> None:
    started = system().start()
    started.stop("memory_store")
    services = started.services
    becomes(services["chat_ingest"], (503, "memory_store"))
    becomes(services["extraction"], (503, "memory_store"))
    assert ready(services["injection"]) == (200, "ok")
    for name in ("chat_ingest", "extraction", "injection"):
        assert probe(services[name], "/healthz") == (200, "ok")


def test_without_kafka_ingest_is_not_ready_and_nobody_is_dead(system: SystemFactory) -> None:
    started = system().start("memory_store")
    nowhere = f"127.0.0.1:{free_port()}"
    started.launch("chat_ingest", "extraction", kafka_bootstrap_servers=nowhere)
    becomes(started.services["chat_ingest"], (503, "kafka"))
    becomes(started.services["extraction"], (503, "starting"))
    for name in ("chat_ingest", "extraction"):
        assert probe(started.services[name], "/healthz") == (200, "ok")


def test_without_postgres_the_store_is_alive_and_not_ready(own_system: SystemFactory, own_postgres: Any) -> None:
    started = own_system().start("memory_store")
    own_postgres.server.stop()
    becomes(started.services["memory_store"], (503, "database_unavailable"))
    assert probe(started.services["memory_store"], "/healthz") == (200, "ok")
    own_postgres.server.start()
    becomes(started.services["memory_store"], (200, "ok"))


def test_a_stager_that_waits_for_the_store_moves(system: SystemFactory) -> None:
    started = system().start("memory_store", "chat_ingest", "extraction")
    extraction = started.services["extraction"]
    with started.client("chat_ingest") as client:
        chats = [{"user": "u", "prompt": f"Hi {number}", "response": "Hello"} for number in range(3)]
        client.post("/v1/chats", json=chats[0]).raise_for_status()
        started.kill("memory_store")
        client.post("/v1/chats", json=chats[1]).raise_for_status()
    until(lambda: bool(lines(started, "extraction", "staging_waits")))
    for loop in ("stager", "stager_polls", "stager_lag", "worker"):
        moved = partial(lambda of: scrape(extraction.url).total("loop_last_progress_timestamp_seconds", loop=of), loop)
        before = moved()
        until(lambda moved=moved, before=before: moved() > before)  # type: ignore[misc]
    assert probe(extraction, "/healthz") == (200, "ok")

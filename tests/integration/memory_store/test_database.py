"""Postgres away, slow, or deciding for another transaction: what callers are told, and that it comes back by itself."""

import asyncio

import asyncpg
import pytest
from structlog.testing import capture_logs

from services.memory_store.database import SCHEMA_NEEDED, Conflicted, Database
from shared.rpc.errors import RpcError
from tests.integration.memory_store.lab import Lab
from tests.support.postgres import PostgresForTests


async def test_away_and_back(own_postgres: PostgresForTests) -> None:
    local = own_postgres.create()
    database = Database(local.app_url, size=2)
    await database.open()
    assert await database.not_ready() is None
    own_postgres.server.kill()
    for _ in range(3):
        assert await database.not_ready() == "database_unavailable"
        with pytest.raises(RpcError) as away:
            async with database.person("default", "ann") as connection:
                await connection.fetchval("SELECT 1")
        assert away.value.code == "unavailable"
    waiting = asyncio.create_task(database.wait_until_ready())
    await asyncio.to_thread(own_postgres.server.start)
    async with asyncio.timeout(30):
        await waiting
    async with database.person("default", "ann") as connection:
        assert await connection.fetchval("SELECT current_person()") == "ann"
    await database.close()


async def test_an_outage_is_one_line_however_many_ask(own_postgres: PostgresForTests) -> None:
    local = own_postgres.create()
    database = Database(local.app_url, size=4)
    await database.open()
    assert await database.not_ready() is None
    await asyncio.to_thread(own_postgres.server.kill)
    with capture_logs() as lines:
        for _ in range(20):
            await asyncio.gather(*(database.not_ready() for _ in range(5)))
        assert [line["event"] for line in lines] == ["database_unavailable"]
        await asyncio.to_thread(own_postgres.server.start)
        async with asyncio.timeout(30):
            while await database.not_ready():  # noqa: ASYNC110 (the server tells nobody)
                await asyncio.sleep(0.05)
        await asyncio.gather(*(database.not_ready() for _ in range(5)))
        assert [line["event"] for line in lines] == ["database_unavailable", "database_available"]
    await database.close()


async def test_the_schema_is_told(lab: Lab) -> None:
    assert await lab.database.schema() == SCHEMA_NEEDED
    await lab.sql("DELETE FROM schema_migrations WHERE version = (SELECT max(version) FROM schema_migrations)")
    assert await lab.database.not_ready() == "schema_outdated"


async def test_a_full_pool_is_unavailable_and_recovers(lab: Lab) -> None:
    small = Database(lab.local.app_url, size=1)
    await small.open()
    async with small.anonymous():
        with pytest.raises(RpcError) as full:
            async with small.anonymous():
                pass
    assert full.value.code == "unavailable"
    async with small.anonymous() as connection:
        assert await connection.fetchval("SELECT 1") == 1
    await small.close()


async def test_who_loses_a_deadlock_tries_again(lab: Lab) -> None:
    await lab.sql("INSERT INTO user_setting (tenant, usr) VALUES ('default', 'ann')")
    await lab.sql("INSERT INTO workspace_setting (tenant, workspace) VALUES ('default', 'w')")
    both = asyncio.Barrier(2)
    tries = 0

    async def work(first: str, second: str) -> None:
        nonlocal tries
        tries += 1
        async with lab.database.person("default", "ann") as connection:
            await connection.execute(f"UPDATE {first} SET updated_at = now()")
            if tries <= 2:
                await both.wait()
            await connection.execute(f"UPDATE {second} SET updated_at = now()")

    await asyncio.gather(
        lab.database.retry(lambda: work("user_setting", "workspace_setting")),
        lab.database.retry(lambda: work("workspace_setting", "user_setting")),
    )
    assert tries == 3


async def test_a_table_that_changes_under_a_prepared_statement(lab: Lab) -> None:
    one = Database(lab.local.app_url, size=1)
    await one.open()
    statement = "SELECT * FROM user_setting"

    async def read() -> list[asyncpg.Record]:
        async with one.person("default", "ann") as connection:
            return await connection.fetch(statement)

    await read()
    await lab.sql("ALTER TABLE user_setting ADD COLUMN extra text")
    with pytest.raises(Conflicted):
        await read()
    await lab.sql("ALTER TABLE user_setting ADD COLUMN more text")
    assert await one.retry(read) == []
    await one.close()


async def test_what_goes_wrong_inside_leaves_nothing(lab: Lab) -> None:
    with pytest.raises(asyncpg.DataError):
        await _in_transaction(lab, "SELECT 1 / 0")
    task = asyncio.create_task(_in_transaction(lab, "SELECT pg_sleep(20)"))
    async with asyncio.timeout(10):
        while not await lab.value("SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(20)'"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await lab.value("SELECT count(*) FROM user_setting") == 0


async def _in_transaction(lab: Lab, last: str) -> None:
    async with lab.database.person("default", "ann") as connection:
        await connection.execute("INSERT INTO user_setting (tenant, usr) VALUES ('default', 'ann')")
        await connection.execute(last)

"""Retention as the service runs it: by its settings, told by its metrics, and killed in the middle."""

import asyncio
import re

import asyncpg
import httpx
import pytest

from deploy.local.database import Database as LocalDatabase
from tests.conftest import SystemFactory
from tests.integration.memory_store.test_facts import sql
from tests.support.system import System
from tests.support.waiting import until

OLD_CHATS = """
INSERT INTO chat (tenant, usr, event_id, workspace, state, prompt, response, occurred_at, recorded_at, src_offset, src_partition,
                  settled_at)
SELECT 'default', 'u' || n % 500, 'e' || n, 'w', 'read', 'tea', 'tea', now(), now(), n, 0, now() - interval '40 days'
FROM generate_series(1, $1::integer) n
"""


def metric(system: System, name: str) -> float:
    text = httpx.get(system.url("memory_store") + "/metrics", trust_env=False).text
    return sum(float(value) for value in re.findall(rf"^keepsake_{re.escape(name)} (\S+)$", text, re.MULTILINE))


class Store:
    """Asks as superuser, also while the service is dead."""

    def __init__(self, database: LocalDatabase) -> None:
        self._database = database

    def value(self, statement: str, *values: object) -> int:
        async def ask() -> list[asyncpg.Record]:
            return await sql(self._database, statement, *values)

        rows = asyncio.run(ask())
        return int(rows[0][0]) if rows else 0

    @property
    def texts(self) -> int:
        return self.value("SELECT count(*) FROM chat WHERE prompt IS NOT NULL")


@pytest.mark.timeout(150)
def test_killed_in_mid_sweep_the_next_goes_on(system: SystemFactory, database: LocalDatabase) -> None:
    store = Store(database)
    store.value(OLD_CHATS, 8000)
    running = system(retention_interval_ms=100, log_level="INFO")
    running.start("memory_store")
    until(lambda: store.texts < 7500)
    running.kill("memory_store")
    left = store.texts
    assert left > 0
    assert metric_is_away(running)
    # Its lease runs out; here time is made to pass.
    store.value("UPDATE retention_sweep SET leased_until = now() - interval '1 second' RETURNING 1")
    running.start("memory_store")
    until(lambda: store.texts == 0, 60)
    until(lambda: metric(running, "retention_last_success_timestamp_seconds") > 0)
    assert metric(running, 'retention_rows_total{kind="read"}') == left
    assert metric(running, 'loop_last_progress_timestamp_seconds{loop="retention"}') > 0
    assert store.value("SELECT count(*) FROM chat") == 8000


def metric_is_away(system: System) -> bool:
    with pytest.raises(httpx.TransportError):
        metric(system, "retention_last_success_timestamp_seconds")
    return True


def test_settings_reach_the_sweep_and_gauges_move(system: SystemFactory, database: LocalDatabase) -> None:
    store = Store(database)
    store.value(OLD_CHATS, 3)
    store.value(
        "UPDATE chat SET state = 'dead', settled_at = now() - interval '1 hour' WHERE event_id = 'e1' RETURNING 1"
    )
    store.value("UPDATE chat SET settled_at = now() - interval '2 days' WHERE event_id = 'e2' RETURNING 1")
    running = system(retention_interval_ms=100, chat_text_days=3, pending_days=0, gauges_interval_ms=50)
    running.start("memory_store")
    until(lambda: store.texts == 1)
    assert store.value("SELECT count(*) FROM chat WHERE event_id = 'e2' AND prompt IS NOT NULL") == 1
    until(lambda: metric(running, "schema_version") >= 6)
    store.value(
        "INSERT INTO batch (tenant, usr, workspace, pending, last_staged_at, claimable_at)"
        " VALUES ('default', 'u', 'w', 1, now(), now() - interval '1 hour') RETURNING 1"
    )
    until(lambda: metric(running, 'batches{state="due"}') == 1)
    until(lambda: metric(running, "oldest_due_age_seconds") > 3000)

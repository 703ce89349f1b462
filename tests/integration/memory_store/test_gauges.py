"""The store's metrics: each is moved by what it is about, and reading them stays cheap however many batches there are."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from services.memory_store.database import Database
from services.memory_store.facts import ledger
from services.memory_store.facts.ledger import Author, NewFact
from services.memory_store.gauges import service
from services.memory_store.gauges.service import Gauges
from services.memory_store.settings import DueRules
from shared.loops import Loops
from shared.rpc.errors import RpcError
from shared.telemetry.metrics import REGISTRY
from tests.integration.memory_store.lab import Lab, candidate, chat


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"keepsake_{name}", labels) or 0.0


class Moved:
    """By how much a counter grew since."""

    def __init__(self, name: str, **labels: str) -> None:
        self._name, self._labels = name, labels
        self._before = metric(name, **labels)

    @property
    def by(self) -> float:
        return metric(self._name, **self._labels) - self._before


async def read(lab: Lab) -> dict[str, float]:
    await Gauges(lab.database, Loops(), 1).read()
    return {state: metric("batches", state=state) for state in ("due", "running", "sleeping")}


async def test_batches_by_state_and_the_age_of_the_oldest(lab: Lab) -> None:
    assert await read(lab) == {"due": 0, "running": 0, "sleeping": 0}
    assert metric("oldest_due_age_seconds") == metric("oldest_pending_age_seconds") == 0
    await lab.add_tenant("off", personalization=False)
    await lab.stage(chat("a"), chat("a", "bob"), chat("a", "cy"))
    await lab.claimed()
    lab.rules = DueRules(5, timedelta(hours=1), 20, timedelta(hours=24), None)
    await lab.stage(chat("b", "dan"), chat("b", "eve"), chat("b", "flo"))
    # Of a tenant that does not learn nothing is due, whatever waits.
    await lab.sql("UPDATE batch SET tenant = 'off', claimable_at = now() WHERE usr = 'flo'")
    assert await read(lab) == {"due": 2, "running": 1, "sleeping": 2}
    await lab.sql(
        "UPDATE batch SET claimable_at = now() - interval '50 minutes' WHERE claimable_at <= now() AND tenant = 'default'"
    )
    await lab.sql("UPDATE batch SET oldest_staged_at = now() - interval '3 hours' WHERE usr = 'dan'")
    await read(lab)
    assert metric("oldest_due_age_seconds") == pytest.approx(3000, abs=30)
    assert metric("oldest_pending_age_seconds") == pytest.approx(10800, abs=30)


async def test_the_outbox_and_the_schema(lab: Lab) -> None:
    await read(lab)
    assert metric("outbox_oldest_age_seconds") == 0
    async with lab.database.person("default", "ann") as connection:
        await ledger.lock_person(connection)
        await ledger.insert(connection, Author("user:ann"), NewFact("w", "likes tea", "person"))
    await lab.sql("UPDATE outbox SET at = now() - interval '10 minutes'")
    await read(lab)
    assert metric("outbox_oldest_age_seconds") == pytest.approx(600, abs=30)
    assert metric("schema_version") == await lab.value("SELECT max(version)::int FROM schema_migrations")


async def test_ends_of_runs(lab: Lab) -> None:
    applied, lost = (
        Moved("runs_total", outcome="applied", extractor="model"),
        Moved("runs_total", outcome="worker_lost", extractor=""),
    )
    failed, leases = Moved("runs_total", outcome="unreadable", extractor="model"), Moved("lease_lost_total")
    stale, seconds = Moved("stale_fence_total"), Moved("run_seconds_count")
    done, refused = (
        Moved("candidates_total", decision="applied", reason=""),
        Moved("candidates_total", decision="refused", reason="quote_not_found"),
    )
    await lab.stage(chat("a", prompt="I like tea"))
    first = await lab.claimed()
    await lab.sql("UPDATE batch SET claimable_at = now() - interval '1 second'")
    second = await lab.claimed()
    with pytest.raises(RpcError):
        await lab.complete(first)
    await lab.fail(second, "unreadable")
    await lab.sql("UPDATE batch SET claimable_at = now() - interval '1 second'")
    third = await lab.claimed()
    said = [
        (candidate(content, "a", quote), {"action": "create"})
        for content, quote in (("likes tea", "I like tea"), ("lies", "no"))
    ]
    await lab.complete(third, *said)
    await lab.complete(third, *said)  # a repeat is no other run
    assert (applied.by, lost.by, failed.by, leases.by, stale.by, seconds.by) == (1, 1, 1, 1, 1, 2)
    assert (done.by, refused.by) == (1, 1)


async def test_secrets_that_were_replaced(lab: Lab) -> None:
    before = _secrets()
    await lab.stage(chat("a", prompt="my key is sk-abcdefghijklmnopqrstuvwxyz123456"))
    assert _secrets() == before + 1


def _secrets() -> float:
    samples = [
        sample
        for found in REGISTRY.collect()
        for sample in found.samples
        if sample.name == "keepsake_secrets_redacted_total"
    ]
    return sum(sample.value for sample in samples)


async def test_connections_in_use_and_waited_for(lab: Lab) -> None:
    small = Database(lab.local.app_url, size=1)
    await small.open()
    waits = Moved("db_pool_wait_seconds_count", pool="queue")
    async with small.anonymous(pool="queue"):
        assert metric("db_pool_in_use", pool="queue") == 1
        with pytest.raises(RpcError):
            async with small.anonymous(pool="queue"):
                pass
    assert metric("db_pool_in_use", pool="queue") == 0
    # Also the wait that was in vain: it is the longest.
    assert waits.by == 2
    await small.close()


async def test_the_loop_reads_by_itself_and_says_that_it_moves(lab: Lab) -> None:
    loops = Loops()
    running = asyncio.create_task(Gauges(lab.database, loops, 0.02).run())
    await lab.stage(chat("a"), chat("a", "bob"))
    async with asyncio.timeout(10):
        while metric("batches", state="due") != 2:  # noqa: ASYNC110 (a gauge tells nobody)
            await asyncio.sleep(0.01)
    assert loops.stalled() == []
    assert metric("loop_last_progress_timestamp_seconds", loop=service.LOOP) > time.time() - 10
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_counts_end_at_the_cap(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CAP", 100)
    await sleeping(lab, 5000)
    await lab.sql("UPDATE batch SET claimable_at = now() WHERE claimable_at < now() + interval '1 day 700 ms'")
    await lab.sql("ANALYZE batch")
    found = await read(lab)
    assert found["due"] == 100
    assert 3500 < found["sleeping"] < 5500


async def test_a_hundred_thousand_batches_are_read_as_fast_as_a_thousand(lab: Lab) -> None:
    """No plan reads all of them: what is touched is bounded by the cap."""
    await sleeping(lab, 100_000)
    await lab.sql("UPDATE batch SET claimable_at = NULL, pending = 0, oldest_staged_at = NULL WHERE usr > 's5'")
    await lab.sql("VACUUM (ANALYZE) batch")
    touched = await _pages_read(lab)
    await lab.sql("DELETE FROM batch WHERE usr > 's2'")
    await lab.sql("VACUUM (ANALYZE) batch")
    assert touched < 3 * await _pages_read(lab)


async def sleeping(lab: Lab, count: int) -> None:
    await lab.sql(
        """
        INSERT INTO batch (tenant, usr, workspace, pending, oldest_staged_at, last_staged_at, claimable_at)
        SELECT 'default', 's' || i, 'w', 1, now(), now(), now() + interval '1 day' + i * interval '1 ms'
        FROM generate_series(1, $1::integer) i
        """,
        count,
    )


async def _pages_read(lab: Lab) -> int:
    connection = await asyncpg.connect(lab.local.superuser_url)
    try:
        plan: Any = await connection.fetch("EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM store_figures(10000)")
        buffers = next(row[0] for row in plan if "Buffers" in row[0])
        return sum(int(part.split("=")[1]) for part in buffers.split() if part.startswith(("hit=", "read=")))
    finally:
        await connection.close()

"""ClaimRun by RPC, among a thousand and among a million batches that sleep until tomorrow.

The rows are made by SQL. Each claim finds a batch of its own that is due since a moment, with one chat.
"""

import time
from uuid import UUID, uuid4

import asyncpg

from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from tests.bench.bench import Bench
from tests.bench.figures import Figure, NotMeasured, at_most, median, percentile

_SLEEPING = """
INSERT INTO batch (tenant, usr, workspace, pending, oldest_staged_at, last_staged_at, claimable_at)
SELECT 'default', 'sleeper-' || i, 'default', 1, now(), now(), now() + interval '1 day' + i * interval '1 ms'
FROM generate_series($1::integer, $2::integer) i
"""
_DUE_BATCHES = """
INSERT INTO batch (tenant, usr, workspace, pending, oldest_staged_at, last_staged_at, claimable_at)
SELECT 'default', $1 || i, 'default', 1, now(), now(), now() - i * interval '1 ms' FROM generate_series(1, $2::integer) i
"""
_DUE_CHATS = """
INSERT INTO chat (tenant, usr, event_id, workspace, prompt, response, occurred_at, recorded_at, src_offset, src_partition)
SELECT 'default', $1 || i, 'chat', 'default', 'hello', 'hi', now(), now(), i, 0 FROM generate_series(1, $2::integer) i
"""


async def measure(bench: Bench) -> list[Figure]:
    claims = 60 if bench.quick else 200
    with bench.system("memory_store") as system:
        superuser = await asyncpg.connect(system.database.superuser_url, command_timeout=180)
        key = system.service_keys["extraction"]
        try:
            async with MemoryStoreClient(system.url("memory_store"), key) as store:
                taken: dict[int, list[float]] = {}
                sleeping = 0
                for size in (1_000, 1_000_000):
                    await superuser.execute(_SLEEPING, sleeping + 1, size)
                    sleeping = size
                    await _make_due(superuser, f"due-{size}-", claims + 20)
                    taken[size] = [await _claim(store) for _ in range(claims + 20)][20:]
                    bench.say(
                        f"{size:,} sleeping: p50 {median(taken[size]):.2f} ms, an empty poll {await _empty(store):.2f} ms"
                    )
        finally:
            await superuser.close()
    small, large = median(taken[1_000]), median(taken[1_000_000])
    return [
        Figure("claim_p50_ms_1e3", small, f"{claims} claims by RPC; p95 {percentile(taken[1_000], 95):.2f} ms"),
        Figure("claim_p50_ms_1e6", large, f"{claims} claims by RPC; p95 {percentile(taken[1_000_000], 95):.2f} ms"),
        Figure("claim_1e6_over_1e3", large / small, "flat: what sleeps costs nothing", at_most(2)),
    ]


async def _make_due(superuser: "asyncpg.Connection[asyncpg.Record]", prefix: str, count: int) -> None:
    await superuser.execute(_DUE_BATCHES, prefix, count)
    await superuser.execute(_DUE_CHATS, prefix, count)
    # As after a night of autovacuum, and with nothing left to write for what was made just now.
    await superuser.execute("VACUUM (ANALYZE) batch, chat")
    await superuser.execute("CHECKPOINT")


async def _claim(store: MemoryStoreClient) -> float:
    started = time.perf_counter()
    reply = await store.claim_run(_asking())
    taken = (time.perf_counter() - started) * 1000
    if reply.run is None or len(reply.run.chats) != 1:
        raise NotMeasured("a claim did not find the batch that is due")
    return taken


async def _empty(store: MemoryStoreClient) -> float:
    taken = []
    for _ in range(20):
        started = time.perf_counter()
        reply = await store.claim_run(_asking())
        taken.append((time.perf_counter() - started) * 1000)
        if reply.run is not None:
            raise NotMeasured("a claim found a batch that sleeps")
    return median(taken)


def _asking() -> m.ClaimRun:
    # The lease outlasts the bench: no claim meets a batch again.
    return m.ClaimRun(run_id=UUID(int=uuid4().int), worker="bench", lease_ms=3_600_000)

"""Kafka → staged, beside the same rows written by bare SQL.

Chats are published first; then the stager starts. The rate counts from the first transaction to the last (`staged_at` is a
transaction's time): all chats but the last transaction's, over the time between the two. Kafka, stager, memory-store and Postgres share
the machine's cores. Bare SQL is asyncpg on one connection as the tables' owner: as many rows per transaction as a poll has, one statement
for `chat`, one for `batch`, into the same tables with the same indexes; its arguments are made beforehand, hashes too.
"""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg

from shared.ids import DEFAULT_TENANT, DEFAULT_WORKSPACE
from tests.bench.bench import Bench
from tests.bench.chats import Chat, chats, publish
from tests.bench.figures import Figure, NotMeasured, at_least, median, spread
from tests.support.system import System

PER_POLL = 1000
_DEADLINE_S = 120.0

_INSERT_CHATS = """
INSERT INTO chat (tenant, usr, event_id, workspace, prompt, response, occurred_at, recorded_at, src_offset, src_partition, digest,
                  repeat_key)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[],
                     $9::bigint[], $10::integer[], $11::bytea[], $12::bytea[])
ON CONFLICT DO NOTHING
"""
_UPSERT_BATCHES = """
INSERT INTO batch AS b (tenant, usr, workspace, pending, oldest_staged_at, last_staged_at, claimable_at)
SELECT tenant, usr, workspace, count(*), now(), now(), now() + interval '20 minutes'
FROM unnest($1::text[], $2::text[], $3::text[]) AS i (tenant, usr, workspace) GROUP BY 1, 2, 3
ON CONFLICT (tenant, usr, workspace) DO UPDATE SET pending = b.pending + excluded.pending, last_staged_at = excluded.last_staged_at
"""


async def measure(bench: Bench) -> list[Figure]:
    count, rounds = (12_000, 1) if bench.quick else (30_000, 3)
    bare, staged = [], []
    with bench.system("memory_store") as system:
        owner = await asyncpg.connect(system.database.owner_url)
        try:
            for number in range(rounds):
                some = chats(count, seed=f"stage{number}")
                await publish(system.kafka_settings, [chat.record() for chat in some])
                await _clear(system)
                bare.append(await _bare(owner, some))
                await _clear(system)
                system.start("extraction", roles="stager")
                staged.append(await _staged(owner, count))
                bench.note_memory(system)
                system.stop("extraction")
                bench.say(f"round {number + 1}: staged {staged[-1]:,.0f}/s, bare SQL {bare[-1]:,.0f}/s")
        finally:
            await owner.close()
    ratios = [ours / theirs for ours, theirs in zip(staged, bare, strict=True)]
    of = f"median of {rounds} × {count:,} chats of 1 KB"
    return [
        Figure("stage_chats_per_s", median(staged), f"{of}: {spread(staged, 0)}", at_least(8000, gate=False)),
        Figure(
            "stage_over_bare_sql", median(ratios), f"bare SQL {median(bare):,.0f}/s; {spread(ratios)}", at_least(0.5)
        ),
    ]


async def _clear(system: System) -> None:
    """Both sides meet empty tables, and pay for nothing that was written before."""
    superuser = await asyncpg.connect(system.database.superuser_url)
    try:
        await superuser.execute("TRUNCATE chat, batch")
        await superuser.execute("CHECKPOINT")
    finally:
        await superuser.close()


async def _bare(owner: "asyncpg.Connection[asyncpg.Record]", some: Sequence[Chat]) -> float:
    pages = [_columns(some[start : start + PER_POLL], start) for start in range(0, len(some), PER_POLL)]
    started = time.perf_counter()
    for columns in pages:
        async with owner.transaction():
            await owner.execute(_INSERT_CHATS, *columns)
            await owner.execute(_UPSERT_BATCHES, columns[0], columns[1], columns[3])
    return len(some) / (time.perf_counter() - started)


def _columns(some: Sequence[Chat], start: int) -> tuple[list[Any], ...]:
    now = datetime.now(UTC)
    rows = [
        (
            DEFAULT_TENANT, chat.user, chat.event_id, DEFAULT_WORKSPACE, chat.prompt, chat.response, chat.occurred_at, now,
            offset, offset % 6, _hash(chat.prompt + chat.response), _hash(chat.event_id),
        )
        for offset, chat in enumerate(sorted(some, key=lambda chat: (chat.user, chat.event_id)), start)
    ]  # fmt: skip
    return tuple(list(column) for column in zip(*rows, strict=True))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


async def _staged(owner: "asyncpg.Connection[asyncpg.Record]", count: int) -> float:
    deadline = time.monotonic() + _DEADLINE_S
    while (done := await owner.fetchval("SELECT count(*) FROM chat")) < count:
        if time.monotonic() > deadline:
            raise NotMeasured(f"only {done} of {count} chats were staged within {_DEADLINE_S:g} s")
        await asyncio.sleep(0.5)
    polls = await owner.fetch("SELECT staged_at, count(*) AS chats FROM chat GROUP BY staged_at ORDER BY staged_at")
    if len(polls) < 3:
        raise NotMeasured(f"{count} chats were staged in {len(polls)} transactions: too few to tell a rate")
    taken: float = (polls[-1]["staged_at"] - polls[0]["staged_at"]).total_seconds()
    return float(count - polls[-1]["chats"]) / taken

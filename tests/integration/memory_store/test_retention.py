"""What leaves with time, on real Postgres: in pages, by one sweeper, beside staging and runs, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from services.memory_store.facts import ledger
from services.memory_store.facts.ledger import Author, Held, NewFact, Source
from services.memory_store.retention import service
from services.memory_store.retention.service import AT_ONCE, Ages, LeaseLost, Retention
from services.memory_store.runs.completing import Completing
from services.memory_store.runs.leasing import Leasing
from shared.loops import Loops
from shared.rpc.messages import CandidateRecord, CompleteRun, Decision, FailRun
from shared.telemetry.metrics import REGISTRY
from tests.integration.memory_store.lab import NOW_MS, Lab, candidate, chat

DAY = timedelta(days=1)
MONTH = Ages(chat_text=30 * DAY, pending=30 * DAY, deleted_text=30 * DAY, keys=90 * DAY)
AT_ONCE_ALL = Ages(chat_text=0 * DAY, pending=0 * DAY, deleted_text=0 * DAY, keys=90 * DAY)
TEA = "I like tea"


def sweeper(lab: Lab, ages: Ages = MONTH, every: timedelta = timedelta(0)) -> Retention:
    loops = Loops()
    loops.register(service.LOOP, bound_s=60)
    return Retention(lab.database, lab.rules, ages, every, loops)


async def sweep(lab: Lab, ages: Ages = MONTH) -> dict[str, float]:
    """Rows by kind."""
    before = rows_swept()
    assert await sweeper(lab, ages).sweep_if_due()
    return {kind: rows - before.get(kind, 0) for kind, rows in rows_swept().items() if rows > before.get(kind, 0)}


def rows_swept() -> dict[str, float]:
    return {
        sample.labels["kind"]: sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "keepsake_retention_rows_total"
    }


async def read_one(lab: Lab, event_id: str = "a", user: str = "ann") -> None:
    await lab.stage(chat(event_id, user, prompt=TEA))
    await lab.complete(
        await lab.claimed(), (candidate("likes tea", event_id, TEA), {"action": "create", "content": "likes tea"})
    )


async def chats(lab: Lab, columns: str = "event_id, state, prompt, response") -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await lab.sql(f"SELECT {columns} FROM chat ORDER BY event_id")]


async def age(lab: Lab, table: str, column: str, days: float) -> None:
    await lab.sql(f"UPDATE {table} SET {column} = {column} - $1::interval", timedelta(days=days))


async def put_away(lab: Lab, content: str, to: Any = "deleted", quotes: tuple[str, ...] = ()) -> Held:
    """A fact of ann that was edited once and then put away."""
    async with lab.database.person("default", "ann") as connection:
        await ledger.lock_person(connection)
        at = await connection.fetchval("SELECT now()")
        sources = [Source("a", "w", None, at, at, quote) for quote in quotes]
        author = Author("user:ann")
        fact = await ledger.insert(connection, author, NewFact("w", content, "person"), sources)
        fact = await ledger.change(connection, author, fact, "fact.updated", content=f"{content} indeed")
        return await ledger.change(connection, author, fact, "fact.deleted", state=to)


# Every column that holds text


async def test_every_registered_text_leaves_or_says_why_it_stays(lab: Lab) -> None:
    """The scene fills every registered text column; a new one must be filled here, and then be swept or be declared kept."""
    columns = await lab.sql(
        "SELECT table_name AS t, column_name AS c, kept_because FROM registered_column WHERE holds = 'text' ORDER BY 1, 2"
    )
    await read_one(lab)
    await lab.stage(chat("p", prompt=TEA, response=TEA), chat("d", "bob", prompt=TEA, response=TEA))
    await lab.sql("UPDATE chat SET state = 'dead', settled_at = now() WHERE event_id = 'd'")
    await lab.sql("INSERT INTO fact_vector SELECT tenant, usr, id, 'e', 1, $1 FROM fact", TEA.encode())
    await put_away(lab, TEA, quotes=(TEA,))
    await put_away(lab, f"{TEA} more", "rejected", quotes=(TEA,))
    await lab.sql("UPDATE fact SET state = 'deleted' WHERE state = 'active'")
    for column in columns:
        held = (
            f"SELECT count(*) FROM {column['t']} WHERE {_text(column)} ILIKE '%likes tea%' OR {_text(column)} ILIKE $1"
        )
        assert await lab.value(held, f"%{TEA}%") > 0, f"{column['t']}.{column['c']} has no text in this scene"
    await sweep(lab, AT_ONCE_ALL)
    for column in columns:
        left = await lab.value(f"SELECT count(*) FROM {column['t']} WHERE {_text(column)} ILIKE '%tea%'")
        assert (left > 0) is (column["kept_because"] is not None), f"{column['t']}.{column['c']}"


def _text(column: Any) -> str:
    shown = "convert_from({}, 'UTF8')" if column["c"] == "vector" else "{}::text"
    return shown.format(column["c"])


# Each kind, in time and not before


async def test_text_of_read_chats_and_runs(lab: Lab) -> None:
    await read_one(lab)
    await age(lab, "chat", "settled_at", 29.9)
    await age(lab, "run", "ended_at", 29.9)
    assert await sweep(lab) == {}
    await age(lab, "chat", "settled_at", 0.2)
    await age(lab, "run", "ended_at", 0.2)
    assert await sweep(lab) == {"read": 1, "run": 1}
    assert await chats(lab) == [("a", "read", None, None)]
    [run] = await lab.sql("SELECT candidates, decisions, results::text, event_ids FROM run")
    assert (run["candidates"], run["decisions"], run["event_ids"]) == ("[]", "[]", ["a"])
    assert "applied" in run["results"]
    # The row is still the key, and the fact is still there with its quote.
    assert await lab.stage(chat("a", prompt=TEA)) == ["duplicate"]
    assert await lab.stage(chat("a", prompt="other")) == ["event_id_conflict"]
    assert await lab.facts() == [("default", "likes tea")]
    assert await lab.value("SELECT quote FROM evidence") == TEA
    assert await sweep(lab) == {}


async def test_pending_chats_leave_pending_with_their_text(lab: Lab) -> None:
    await lab.stage(chat("old"), chat("older"))
    await age(lab, "chat", "staged_at", 31)
    await age(lab, "batch", "oldest_staged_at", 31)
    await lab.stage(chat("new"), chat("b", "bob"))
    assert await sweep(lab) == {"pending": 2}
    assert await chats(lab, "event_id, state, reason, prompt IS NULL AND response IS NULL") == [
        ("b", "pending", None, False),
        ("new", "pending", None, False),
        ("old", "excluded", "expired", True),
        ("older", "excluded", "expired", True),
    ]
    [batch] = await lab.sql(
        "SELECT pending, oldest_staged_at > now() - interval '1 day' AS fresh FROM batch WHERE usr = 'ann'"
    )
    assert tuple(batch) == (1, True)
    assert {tuple(each.event_id for each in (await lab.claimed()).chats) for _ in range(2)} == {("new",), ("b",)}


async def test_a_batch_whose_chats_have_all_gone_is_not_due(lab: Lab) -> None:
    await lab.stage(chat("a"))
    assert await sweep(lab, AT_ONCE_ALL) == {"pending": 1}
    [batch] = await lab.sql("SELECT pending, claimable_at, oldest_staged_at FROM batch")
    assert tuple(batch) == (0, None, None)
    assert await lab.claim() is None


async def test_what_a_run_reads_is_left_to_it(lab: Lab) -> None:
    await lab.stage(chat("a", prompt=TEA))
    run = await lab.claimed()
    assert await sweep(lab, AT_ONCE_ALL) == {}
    end = await lab.complete(run, (candidate("likes tea", "a", TEA), {"action": "create"}))
    assert end.outcome == "applied"
    await lab.stage(chat("b"))
    await lab.claimed()
    await lab.sql("UPDATE batch SET claimable_at = now() - interval '1 second'")
    assert (await sweep(lab, AT_ONCE_ALL))["pending"] == 1


async def test_dead_chats_stay_listed_without_text(lab: Lab) -> None:
    await lab.stage(chat("a"))
    lab.retries = replace(lab.retries, max_attempts=1)
    assert (await lab.fail(await lab.claimed())).outcome == "dead"
    await age(lab, "chat", "staged_at", 60)
    assert await sweep(lab) == {}
    await age(lab, "chat", "settled_at", 31)
    assert await sweep(lab) == {"dead": 1}
    assert await chats(lab) == [("a", "dead", None, None)]


@pytest.mark.parametrize("to", ["deleted", "rejected"])
async def test_deleted_facts_lose_text_versions_and_quotes_and_stay_tombstones(lab: Lab, to: str) -> None:
    gone = await put_away(lab, "likes tea", to, quotes=(TEA, "I like green tea"))
    kept = await put_away(lab, "likes jam", to, quotes=("I like jam",))
    await lab.sql("UPDATE fact SET updated_at = updated_at - interval '31 days' WHERE id = $1", gone.id)
    assert await sweep(lab) == {"fact": 1}
    rows = await lab.sql("SELECT content FROM fact_version WHERE fact_id = $1", gone.id)
    assert [row["content"] for row in rows] == [None, None, None]
    # Of two quotes of one chat one row is left, which still names the chat.
    assert [
        tuple(row) for row in await lab.sql("SELECT event_id, quote FROM evidence WHERE fact_id = $1", gone.id)
    ] == [("a", None)]
    assert await lab.value("SELECT content FROM fact WHERE id = $1", gone.id) is None
    assert await lab.value("SELECT count(content) FROM fact_version WHERE fact_id = $1", kept.id) == 3
    async with lab.database.person("default", "ann") as connection:
        grave = await ledger.tombstone(connection, "w", "Likes tea indeed.")
    assert grave is not None
    assert (grave.id, grave.content) == (gone.id, None)


async def test_a_restored_fact_keeps_its_text(lab: Lab) -> None:
    fact = await put_away(lab, "likes tea")
    async with lab.database.person("default", "ann") as connection:
        await ledger.change(connection, Author("user:ann"), fact, "fact.restored", state="active")
    await put_away(lab, "moved", "superseded")
    await put_away(lab, "left", "retired")
    await age(lab, "fact", "updated_at", 400)
    assert await sweep(lab) == {}
    assert await lab.value("SELECT count(*) FROM fact_version WHERE content IS NULL") == 0


async def test_keys_leave_once_their_records_are_too_old(lab: Lab) -> None:
    day_ms = 24 * 3600 * 1000
    await lab.stage(lab.record(chat("a"), ms=NOW_MS - 89 * day_ms))
    await lab.stage(lab.record(chat("b", "bob"), ms=NOW_MS - 89 * day_ms))
    await lab.complete(await lab.claimed())
    await age(lab, "chat", "recorded_at", 1.5)
    assert await sweep(lab, AT_ONCE_ALL) == {"read": 1, "pending": 1}
    assert [row[0] for row in await chats(lab)] == ["a", "b"]
    await age(lab, "chat", "recorded_at", 1)
    assert await sweep(lab, AT_ONCE_ALL) == {"key": 2}
    assert await lab.stage(lab.record(chat("a"), ms=NOW_MS - 91 * day_ms)) == ["too_old"]
    # While its text stays, the row stays too: it is listed and can be retried.
    await lab.stage(chat("c"))
    await lab.sql("UPDATE chat SET state = 'dead', settled_at = now(), recorded_at = recorded_at - interval '200 days'")
    assert await sweep(lab) == {}


async def test_tokens_that_ended_leave(lab: Lab) -> None:
    await lab.sql(
        """
        INSERT INTO user_token (tenant, usr, sha256, minted_by, scopes, expires_at)
        SELECT 'default', 'ann', sha256(n::text::bytea), 'k', '{}', now() + n * interval '1 hour' FROM generate_series(-2, 2) n WHERE n <> 0
        """
    )
    assert await sweep(lab) == {"token": 2}
    assert await lab.value("SELECT min(expires_at) > now() FROM user_token") is True


# 0: at once


async def test_without_days_the_text_leaves_as_the_run_ends(lab: Lab) -> None:
    completing = Completing(lab.database, lab.rules, keep_text=False)
    await lab.stage(chat("a", prompt=TEA), chat("b", "bob", prompt=TEA))
    run = await lab.claimed()
    ask = CompleteRun(
        run_id=run.run_id,
        extractor="offline",
        candidates=[CandidateRecord(candidate=candidate("likes tea", run.chats[0].event_id, TEA))],
        decisions=[Decision(candidate=0, action="create", reason="new")],
    )
    end = await completing.complete(ask)
    assert await completing.complete(ask) == end
    assert end.outcome == "applied"
    other = await lab.claimed()
    leasing = Leasing(lab.database, lab.rules, lab.retries, (), keep_text=False)
    await leasing.fail(FailRun(run_id=other.run_id, outcome="unreadable", candidates=ask.candidates))
    assert await lab.value("SELECT count(*) FROM run WHERE candidates::text <> '[]' OR decisions::text <> '[]'") == 0
    assert (
        await lab.value("SELECT count(*) FROM chat WHERE state = 'read' AND prompt IS NULL AND response IS NULL") == 1
    )
    # A chat that is to be tried again keeps what it said.
    assert await lab.value("SELECT count(*) FROM chat WHERE state = 'pending' AND prompt IS NOT NULL") == 1
    assert await lab.value("SELECT count(*) FROM fact WHERE content = 'likes tea'") == 1


# Pages, turns and kills


async def many_read(lab: Lab, count: int) -> None:
    await lab.sql(
        """
        INSERT INTO chat (tenant, usr, event_id, workspace, state, prompt, response, occurred_at, recorded_at, src_offset, src_partition,
                          settled_at)
        SELECT 'default', 'u' || n % 50, 'e' || n, 'w', 'read', 'tea', 'tea', now(), now(), n, 0, now() - interval '40 days'
        FROM generate_series(1, $1::integer) n
        """,
        count,
    )


async def with_text(lab: Lab) -> int:
    count: int = await lab.value("SELECT count(*) FROM chat WHERE prompt IS NOT NULL")
    return count


def first_page_gone(lab: Lab) -> Callable[[], Awaitable[bool]]:
    async def gone() -> bool:
        return await with_text(lab) <= 3 * AT_ONCE

    return gone


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(15):
        while not await condition():  # noqa: ASYNC110 (the database tells nobody)
            await asyncio.sleep(0.002)


async def test_more_than_a_page_leaves_page_by_page(lab: Lab) -> None:
    await many_read(lab, 2 * AT_ONCE + 7)
    await lab.stage(*(chat(f"p{n}") for n in range(AT_ONCE + 3)))
    await age(lab, "batch", "oldest_staged_at", 31)
    await age(lab, "chat", "staged_at", 31)
    assert await sweep(lab) == {"pending": AT_ONCE + 3, "read": 2 * AT_ONCE + 7}
    assert await with_text(lab) == 0
    pages = await lab.sql("SELECT count(*) AS rows FROM chat GROUP BY xmin::text")
    assert max(row["rows"] for row in pages) <= AT_ONCE


async def test_one_replica_sweeps_at_a_time_and_one_sweep_is_enough(lab: Lab) -> None:
    await many_read(lab, 3 * AT_ONCE)
    every = timedelta(hours=1)
    first, second = sweeper(lab, every=every), sweeper(lab, every=every)
    assert sorted(await asyncio.gather(first.sweep_if_due(), second.sweep_if_due())) == [False, True]
    assert await with_text(lab) == 0
    assert not await first.sweep_if_due()
    assert not await second.sweep_if_due()
    last = REGISTRY.get_sample_value("keepsake_retention_last_success_timestamp_seconds")
    assert last is not None
    assert abs(last - (await lab.value("SELECT extract(epoch FROM now())::float8"))) < 60
    await lab.sql("UPDATE retention_sweep SET finished_at = now() - interval '2 hours'")
    assert await second.sweep_if_due()


async def test_who_stops_in_the_middle_is_followed_by_another(lab: Lab) -> None:
    await many_read(lab, 4 * AT_ONCE)
    killed = asyncio.create_task(sweeper(lab).sweep_if_due())
    await eventually(first_page_gone(lab))
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    assert 0 < await with_text(lab) <= 3 * AT_ONCE
    assert not await sweeper(lab).sweep_if_due()  # the lease stands
    await lab.sql("UPDATE retention_sweep SET leased_until = now() - interval '1 second'")
    assert await sweeper(lab).sweep_if_due()
    assert await with_text(lab) == 0


async def test_who_lost_the_lease_stops(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    await many_read(lab, 4 * AT_ONCE)
    slow = asyncio.create_task(sweeper(lab).sweep_if_due())
    await eventually(first_page_gone(lab))
    await lab.sql("UPDATE retention_sweep SET sweeper = $1", uuid4())
    with pytest.raises(LeaseLost):
        await slow
    assert await with_text(lab) > 0


async def test_what_somebody_has_locked_waits_for_the_next_sweep(lab: Lab) -> None:
    await lab.stage(chat("a"), chat("b", "bob"))
    async with lab.database.person("default", "ann") as connection:
        await connection.execute("SELECT FROM batch FOR UPDATE")
        async with asyncio.timeout(5):
            assert await sweep(lab, AT_ONCE_ALL) == {"pending": 1}
    assert [row[:2] for row in await chats(lab)] == [("a", "pending"), ("b", "excluded")]
    assert await sweep(lab, AT_ONCE_ALL) == {"pending": 1}


async def test_beside_staging_runs_and_edits_nothing_is_lost(lab: Lab) -> None:
    """Sweeps that take all they can, while chats are staged twice, read, given up and facts are deleted: nobody waits for ever, and every
    chat ends read or expired."""
    stop = asyncio.Event()

    async def sweeps() -> None:
        while not stop.is_set():
            await sweep(lab, AT_ONCE_ALL)

    async def stages(part: int) -> None:
        for poll in range(15):
            some = [chat(f"{part}-{poll}-{n}", f"u{n % 7}", prompt=TEA) for n in range(40)]
            await lab.stage(*some)
            await lab.stage(*some)

    async def works() -> None:
        while not stop.is_set():
            if run := await lab.claim():
                await lab.complete(
                    run, (candidate(f"likes tea {run.run_id}", run.chats[0].event_id, TEA), {"action": "create"})
                )

    async def deletes() -> None:
        while not stop.is_set():
            for n in range(7):
                async with lab.database.person("default", f"u{n}") as connection:
                    await ledger.lock_person(connection)
                    for row in await connection.fetch(
                        "SELECT id FROM fact WHERE state IN ('active', 'pending') LIMIT 3"
                    ):
                        fact = await ledger.held(connection, row["id"])
                        assert fact is not None
                        away = {"state": "deleted", "pending_reason": None}
                        await ledger.change(connection, Author("operator"), fact, "fact.deleted", **away)

    others = [asyncio.create_task(work()) for work in (sweeps, works, deletes)]
    async with asyncio.timeout(60):
        await asyncio.gather(stages(1), stages(2))
    stop.set()
    await asyncio.gather(*others)
    await sweep(lab, AT_ONCE_ALL)
    states = {
        row["state"]: row["chats"] for row in await lab.sql("SELECT state, count(*) AS chats FROM chat GROUP BY state")
    }
    assert sum(states.values()) == 1200
    assert set(states) <= {"read", "excluded"}
    assert await with_text(lab) == 0
    assert await lab.value("SELECT sum(pending) FROM batch") == 0
    read = await lab.value("SELECT count(*) FROM chat WHERE state = 'read'")
    window = "SELECT count(DISTINCT (r.usr, e)) FROM run r, unnest(r.event_ids) e WHERE r.state = 'applied'"
    assert await lab.value(window) >= read
    assert await lab.value("SELECT count(*) FROM fact WHERE state = 'deleted' AND content IS NOT NULL") == 0


async def test_the_loop_moves_while_the_database_is_away(lab: Lab) -> None:
    await lab.sql("ALTER FUNCTION sweep_tokens(integer) RENAME TO sweep_nothing")
    loops = Loops()
    running = asyncio.create_task(Retention(lab.database, lab.rules, MONTH, timedelta(0), loops).run())
    beat = "keepsake_loop_last_progress_timestamp_seconds"

    async def beats() -> bool:
        return REGISTRY.get_sample_value(beat, {"loop": "retention"}) is not None

    async def finished() -> bool:
        return bool(await lab.value("SELECT finished_at IS NOT NULL FROM retention_sweep"))

    await eventually(beats)
    await lab.sql("ALTER FUNCTION sweep_nothing(integer) RENAME TO sweep_tokens")
    await eventually(finished)
    assert not running.done()
    assert loops.stalled() == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

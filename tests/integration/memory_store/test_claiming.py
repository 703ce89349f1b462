"""ClaimRun, RenewLease, FailRun on real Postgres: who gets what, fences, windows, how tries end."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from shared.events import ChatReset
from shared.rpc.errors import RpcError
from shared.rpc.messages import ClaimedRun, RenewLease
from tests.integration.memory_store.lab import Lab, chat


def ids(run: ClaimedRun | None) -> list[str]:
    return [] if run is None else [each.event_id for each in run.chats]


async def expire(lab: Lab) -> None:
    await lab.sql("UPDATE batch SET claimable_at = now() - interval '1 second' WHERE run_id IS NOT NULL")


async def due_now(lab: Lab) -> None:
    await lab.sql(
        "UPDATE batch SET not_before = NULL, claimable_at = now() - interval '1 second' WHERE claimable_at IS NOT NULL"
    )


async def states(lab: Lab) -> Counter[str]:
    return Counter(row["state"] for row in await lab.sql("SELECT state FROM chat"))


async def test_a_claim_shows_the_window_and_what_is_known(lab: Lab) -> None:
    await lab.stage(
        chat("a", timezone="Asia/Kolkata", occurred_at="2024-05-01T10:00:00+05:30", thread="t"),
        chat("b", prompt="later"),
    )
    run = await lab.claimed()
    assert (run.tenant, run.user, run.workspace, run.attempt, run.model) == ("default", "ann", "default", 1, None)
    assert ids(run) == ["a", "b"]
    assert run.chats[0].occurred_at.isoformat() == "2024-05-01T10:00:00+05:30"
    assert run.chats[0].thread == "t"
    assert (run.zone, run.facts, run.free.workspace, run.free.global_) == ("Asia/Kolkata", [], 20, 5)
    assert await lab.claim() is None


async def test_not_due_before_enough_and_idle(lab: Lab) -> None:
    lab.rules = replace(lab.rules, min_chats=5)
    for n in range(4):
        await lab.stage(chat(f"e{n}"))
    assert await lab.claim() is None
    await lab.stage(chat("e4"))
    assert len(ids(await lab.claim())) == 5


async def test_forty_five_chats_are_read_by_twenties_oldest_first(lab: Lab) -> None:
    lab.rules = replace(lab.rules, min_chats=5)
    records = [lab.record(chat(f"e{n:02}")) for n in range(45)]
    await lab.stage(*reversed(records))
    windows = []
    for _ in range(3):
        run = await lab.claimed()
        windows.append(ids(run))
        await lab.complete(run)
    assert [len(window) for window in windows] == [20, 20, 5]
    assert [each for window in windows for each in window] == [f"e{n:02}" for n in range(45)]
    assert await lab.claim() is None
    assert await states(lab) == {"read": 45}


async def test_claims_of_one_run_id(lab: Lab) -> None:
    await lab.stage(chat("a"), chat("b", "bob"))
    run_id = uuid4()
    runs = await asyncio.gather(*(lab.claim(run_id) for _ in range(8)))
    first = runs[0]
    assert first is not None
    assert runs == [first] * 8
    await lab.complete(first)
    with pytest.raises(RpcError) as stale:
        await lab.claim(run_id)
    assert stale.value.code == "failed_precondition"


async def test_two_hundred_claims_at_once(lab: Lab) -> None:
    await lab.stage(*(chat(f"e{n}", f"user {n}") for n in range(150)))
    runs = [run for run in await asyncio.gather(*(lab.claim() for _ in range(200))) if run is not None]
    assert len(runs) == 150
    assert len({run.user for run in runs}) == 150


async def test_no_tenant_waits_behind_anothers_backlog(lab: Lab) -> None:
    await lab.add_tenant("small")
    await lab.stage(*(chat(f"e{n}", f"user {n}") for n in range(300)))
    await lab.stage(chat("e", "one", tenant="small"))
    seen = [(await lab.claimed()).tenant for _ in range(30)]
    assert "small" in seen  # one in two picks: missing it 30 times has a chance of 1 in 10^9


async def test_a_tenant_that_is_off_waits_unread(lab: Lab) -> None:
    await lab.stage(chat("a"))
    await lab.sql("UPDATE tenant_setting SET auto_extraction = false")
    assert await lab.claim() is None
    await lab.sql("UPDATE tenant_setting SET auto_extraction = true")
    assert ids(await lab.claim()) == ["a"]


async def test_a_superseded_run_changes_nothing(lab: Lab) -> None:
    await lab.stage(chat("a"))
    first = await lab.claimed()
    await expire(lab)
    second = await lab.claimed()
    assert (ids(second), second.attempt) == (["a"], 1)
    for act in (
        lab.complete(first),
        lab.fail(first),
        lab.leasing.renew(RenewLease(run_id=first.run_id, lease_ms=1000)),
        lab.claim(first.run_id),
    ):
        with pytest.raises(RpcError) as stale:
            await act
        assert stale.value.code == "failed_precondition"
    assert await states(lab) == {"pending": 1}
    assert (await lab.complete(second)).outcome == "nothing_found"
    assert await lab.value("SELECT state || outcome FROM run WHERE id = $1", first.run_id) == "lostworker_lost"


async def test_the_fence_decides_and_not_the_clock(lab: Lab) -> None:
    await lab.stage(chat("a"))
    run = await lab.claimed()
    await expire(lab)
    assert (await lab.complete(run)).state == "applied"


async def test_renewing_moves_the_end(lab: Lab) -> None:
    await lab.stage(chat("a"))
    run = await lab.claimed(lease_ms=1000)
    renewed = await lab.leasing.renew(RenewLease(run_id=run.run_id, lease_ms=600_000))
    assert renewed.lease_expires_at > run.lease_expires_at + timedelta(minutes=9)
    for unknown in (uuid4(), run.run_id):
        if unknown == run.run_id:
            await lab.complete(run)
        with pytest.raises(RpcError) as stale:
            await lab.leasing.renew(RenewLease(run_id=unknown, lease_ms=1000))
        assert stale.value.code == "failed_precondition"


async def test_a_shortened_window_leaves_the_rest_pending_and_due(lab: Lab) -> None:
    lab.rules = replace(lab.rules, min_chats=5)
    await lab.stage(*(chat(f"e{n:02}") for n in range(8)))
    run = await lab.claimed()
    for _ in range(2):
        await lab.leasing.renew(RenewLease(run_id=run.run_id, lease_ms=60_000, last="e04"))
    await lab.leasing.renew(RenewLease(run_id=run.run_id, lease_ms=60_000, last="nowhere"))
    assert ids(await lab.claim(run.run_id)) == ["e00", "e01", "e02", "e03", "e04"]
    await lab.complete(run)
    assert await states(lab) == {"read": 5, "pending": 3}
    # Fewer than are due by themselves, but they were due.
    rest = await lab.claimed()
    assert ids(rest) == ["e05", "e06", "e07"]
    assert rest.attempt == 1
    await lab.leasing.renew(RenewLease(run_id=rest.run_id, lease_ms=60_000, last="e05"))
    assert (await lab.fail(rest)).outcome == "model_failed"
    assert await states(lab) == {"read": 5, "pending": 3}


async def test_a_shortened_window_that_is_given_up_takes_nothing_else_with_it(lab: Lab) -> None:
    lab.retries = replace(lab.retries, max_attempts=1)
    await lab.stage(chat("a"), chat("b"))
    run = await lab.claimed()
    await lab.leasing.renew(RenewLease(run_id=run.run_id, lease_ms=60_000, last="a"))
    assert (await lab.fail(run)).outcome == "dead"
    assert await states(lab) == {"dead": 1, "pending": 1}
    assert ids(await lab.claim()) == ["b"]


async def test_a_claim_knows_the_heading(lab: Lab) -> None:
    await lab.sql("UPDATE tenant_setting SET heading = '## What I know'")
    await lab.stage(chat("a"))
    assert (await lab.claimed()).heading == "## What I know"


async def test_a_poison_chat_ends_alone(lab: Lab) -> None:
    await lab.stage(*(chat(f"e{n:02}", prompt="poison" if n == 17 else "fine") for n in range(20)), chat("x", "bob"))
    # The two chats behind the poison one are fewer than would make a batch due, and are read all the same: they were due with it.
    lab.rules = replace(lab.rules, min_chats=5)
    sizes = []
    while (run := await lab.claim()) is not None:
        if run.user == "ann":
            sizes.append(len(run.chats))
        if any(each.prompt == "poison" for each in run.chats):
            await lab.fail(run, "unreadable")
            await due_now(lab)
        else:
            await lab.complete(run)
    assert sizes == [20, 10, 10, 5, 5, 2, 2, 1, 2]
    dead = await lab.sql("SELECT event_id, reason, prompt FROM chat WHERE state = 'dead'")
    assert [tuple(row) for row in dead] == [("e17", "unreadable", "poison")]
    assert await states(lab) == {"dead": 1, "read": 20}
    assert tuple((await lab.sql("SELECT attempts, lost, failed_at FROM batch WHERE usr = 'ann'"))[0]) == (0, 0, None)
    outcomes = await lab.sql("SELECT outcome, reason FROM run WHERE state = 'failed' ORDER BY started_at")
    assert [tuple(row) for row in outcomes] == [("unreadable", None)] * 4 + [("dead", "unreadable")]


async def test_a_failed_try_waits_longer_each_time(lab: Lab) -> None:
    lab.retries = replace(lab.retries, base=timedelta(seconds=10), longest=timedelta(seconds=35))
    await lab.stage(chat("a"))
    waits = []
    for _ in range(4):
        await lab.fail(await lab.claimed())
        assert await lab.claim() is None
        waits.append(await lab.value("SELECT extract(epoch FROM not_before - now()) FROM batch"))
        await due_now(lab)
    assert all(
        low <= wait <= high for wait, (low, high) in zip(waits, [(4, 10), (9, 20), (17, 35), (17, 35)], strict=True)
    )


async def test_attempts_go_back_once_the_failed_window_is_read(lab: Lab) -> None:
    await lab.stage(*(chat(f"e{n:02}") for n in range(30)))
    await lab.fail(await lab.claimed())
    await due_now(lab)
    sizes = []
    while (run := await lab.claim()) is not None:
        sizes.append(len(run.chats))
        await lab.complete(run)
    assert sizes == [10, 10, 10]
    assert await lab.value("SELECT attempts FROM batch") == 0


async def test_released_burns_nothing_and_waits_as_told(lab: Lab) -> None:
    await lab.stage(chat("a"))
    for outcome in ("released", "model_unsupported"):
        end = await lab.fail(await lab.claimed(), outcome)
        assert (end.state, end.outcome) == ("released", outcome)
    assert await lab.value("SELECT attempts FROM batch") == 0
    await lab.fail(await lab.claimed(), "released", retry_after_ms=60_000)
    assert await lab.claim() is None


async def test_fail_is_idempotent_and_does_nothing_after_complete(lab: Lab) -> None:
    await lab.stage(chat("a"))
    run = await lab.claimed()
    assert await lab.fail(run) == await lab.fail(run)
    assert await lab.value("SELECT attempts FROM batch") == 1
    with pytest.raises(RpcError):
        await lab.complete(run)
    await due_now(lab)
    run = await lab.claimed()
    end = await lab.complete(run)
    assert await lab.fail(run) == end
    assert await states(lab) == {"read": 1}


async def test_a_batch_that_kills_its_worker_ends_too(lab: Lab) -> None:
    lab.retries = replace(lab.retries, max_lost=3)
    await lab.stage(*(chat(f"e{n:02}") for n in range(22)), chat("x", "bob"))
    for _ in range(3):
        while (await lab.claim()) is not None:
            pass
        await expire(lab)
        await lab.sql("UPDATE batch SET run_id = NULL, lost = 0 WHERE usr = 'bob'")
    windows = {run.user: ids(run) for run in [await lab.claimed(), await lab.claimed()]}
    assert windows == {"ann": ["e20", "e21"], "bob": ["x"]}
    assert await lab.value("SELECT count(*) FROM chat WHERE state = 'dead' AND reason = 'worker_lost'") == 20


async def test_lost_runs_are_forgotten_after_one_that_applied(lab: Lab) -> None:
    lab.retries = replace(lab.retries, max_lost=2)
    for n in range(4):
        await lab.stage(chat(f"e{n}"))
        await lab.claimed()
        await expire(lab)
        run = await lab.claimed()
        assert await lab.value("SELECT lost FROM batch") == 1
        await lab.complete(run)
    assert await states(lab) == {"read": 4}


async def test_chats_behind_a_barrier_are_no_part_of_a_window(lab: Lab) -> None:
    late = lab.record(chat("late"))
    await lab.stage(chat("a"))
    # As another stager's that passed the barrier unseen.
    await lab.sql(
        """
        INSERT INTO barrier (tenant, usr_key, kind, until)
        SELECT tenant, keyed_hash(hash_key, 'ann'), 'erased', now() + interval '1 hour' FROM tenant
        """
    )
    assert await lab.claim() is None
    assert await lab.stage(late) == ["erased"]
    rows = await lab.sql("SELECT state, reason, prompt FROM chat")
    assert [tuple(row) for row in rows] == [("excluded", "erased", None)]


async def test_a_reset_reaches_what_a_run_holds(lab: Lab) -> None:
    await lab.stage(chat("a"))
    run = await lab.claimed()
    await lab.stage(ChatReset(event_id="r", user="ann"), chat("b"))
    await lab.complete(run)
    assert await states(lab) == {"excluded": 1, "pending": 1}
    assert ids(await lab.claim()) == ["b"]


async def test_models_are_resolved_in_order(lab: Lab) -> None:
    lab.models = ("first", "second", "third")
    await lab.sql("UPDATE tenant_setting SET model = 'second'")
    await lab.sql(
        """
        INSERT INTO workspace_setting (tenant, workspace, chat_model, agent_model) VALUES
          ('default', 'chat', 'third', 'first'), ('default', 'agent', NULL, 'first'), ('default', 'gone', 'no more', NULL)
        """
    )
    for workspace in ("chat", "agent", "gone", "plain"):
        await lab.stage(chat(workspace, workspace=workspace))
    runs = [await lab.claimed() for _ in range(4)]
    assert {run.workspace: run.model for run in runs} == {
        "chat": "third",
        "agent": "first",
        "gone": "second",
        "plain": "second",
    }


async def test_batches_of_a_model_that_is_out_wait(lab: Lab) -> None:
    lab.models = ("down", "up")
    await lab.sql("INSERT INTO workspace_setting (tenant, workspace, chat_model) VALUES ('default', 'w', 'up')")
    await lab.stage(chat("a"), chat("b", workspace="w"))
    assert ids(await lab.claim(without_models=["down"])) == ["b"]
    assert await lab.claim(without_models=["down"]) is None
    assert await lab.claim(only_model="up") is None
    assert ids(await lab.claim(only_model="down")) == ["a"]
    assert await lab.value("SELECT model FROM open_breaker") == "down"


async def test_a_tenant_whose_only_model_is_out(lab: Lab) -> None:
    lab.models = ("down",)
    await lab.stage(chat("a"))
    assert await lab.claim(without_models=["down"]) is None
    assert ids(await lab.claim()) == ["a"]

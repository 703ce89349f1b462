"""StageChats on real Postgres: verdicts, positions, barriers, and stagers that meet."""

import asyncio
import random
from datetime import UTC, datetime, timedelta, timezone

import pytest

from shared.events import ChatDeleted, ChatReset
from shared.rpc.messages import StageChats
from tests.integration.memory_store.lab import NOW_MS, Lab, chat, short


def reset(user: str = "ann", **fields: str) -> ChatReset:
    return ChatReset.model_validate({"event_id": "r", "user": user} | fields)


def deletion(*event_ids: str, user: str = "ann") -> ChatDeleted:
    return ChatDeleted(event_id="d", user=user, event_ids=list(event_ids))


async def pending(lab: Lab, user: str = "ann") -> list[str]:
    rows = await lab.sql(
        "SELECT event_id FROM chat WHERE usr = $1 AND state = 'pending' ORDER BY recorded_at, src_offset", user
    )
    return [row["event_id"] for row in rows]


async def batch_of(lab: Lab, user: str = "ann") -> dict[str, object]:
    return dict((await lab.sql("SELECT * FROM batch WHERE usr = $1", user))[0])


async def test_verdicts_come_in_the_records_order(lab: Lab) -> None:
    await lab.add_tenant("off", personalization=False)
    await lab.sql("INSERT INTO user_setting (tenant, usr, learning) VALUES ('default', 'quiet', false)")
    old = int((datetime.now(UTC) - timedelta(days=91)).timestamp() * 1000)
    assert await lab.stage(
        chat("a"),
        chat("b", "Guest"),
        chat("c", None),
        chat("d", ""),
        chat("e", tenant="nowhere"),
        chat("f", tenant="off"),
        chat("g", "quiet"),
        lab.record(chat("h"), ms=old),
        chat("a"),
        chat("a", prompt="something else"),
        chat("a", "bob"),
        reset(user="undefined"),
        reset(tenant="nowhere"),
        deletion("never seen"),
    ) == [
        "staged",
        "anonymous",
        "anonymous",
        "anonymous",
        "unknown_tenant",
        "off",
        "opted_out",
        "too_old",
        "duplicate",
        "event_id_conflict",
        "staged",
        "anonymous",
        "unknown_tenant",
        "staged",
    ]
    assert await pending(lab) == ["a"]


async def test_a_replay_changes_nothing(lab: Lab) -> None:
    events = [lab.record(chat(f"e{n}", f"user {n % 3}", timezone="Asia/Kolkata")) for n in range(30)]
    assert set(await lab.stage(*events)) == {"staged"}
    before = await lab.sql("SELECT * FROM batch ORDER BY usr")
    assert await lab.stage(*events) == ["duplicate"] * 30
    later = [event.model_copy(update={"timestamp_ms": event.timestamp_ms + 10**6}) for event in events]
    assert await lab.stage(*later) == ["duplicate"] * 30
    assert await lab.sql("SELECT * FROM batch ORDER BY usr") == before


async def test_what_makes_another_content(lab: Lab) -> None:
    same = {"prompt": "p", "response": "r", "thread": "t"}
    assert await lab.stage(chat("a", **same)) == ["staged"]
    assert await lab.stage(
        chat("a", **same, occurred_at="2024-01-01T00:00:00Z", timezone="Europe/Rome", metadata={"k": 1})
    ) == ["duplicate"]
    for field in ("prompt", "response", "thread", "workspace"):
        assert await lab.stage(chat("a", **{**same, field: "other"})) == ["event_id_conflict"]
    rows = await lab.sql("SELECT prompt FROM chat WHERE usr = 'ann'")
    assert [row["prompt"] for row in rows] == ["p"]


async def test_repeats(lab: Lab) -> None:
    said = {"prompt": "p", "response": "r", "occurred_at": "2024-01-01T00:00:00Z"}
    same_instant = said | {"occurred_at": "2024-01-01T02:00:00+02:00"}
    assert await lab.stage(chat("later id z", **said), chat("a", **same_instant)) == ["staged", "repeat"]
    assert await lab.stage(chat("b", **said), chat("c", "bob", **said), chat("d", workspace="w", **said)) == [
        "repeat",
        "staged",
        "staged",
    ]
    assert await lab.stage(chat("e", prompt="p", response="r"), chat("f", prompt="p", response="r")) == [
        "staged",
        "staged",
    ]


async def test_the_kept_one_of_two_contents_in_one_poll_is_the_earlier(lab: Lab) -> None:
    said = {"prompt": "p", "response": "r", "occurred_at": "2024-01-01T00:00:00Z"}
    await lab.stage(chat("a", prompt="first"))
    # The first of both is refused, so its repeat under another id is the only one and is kept.
    assert await lab.stage(chat("a", **said), chat("b", **said)) == ["event_id_conflict", "staged"]


async def test_reset_and_chats_in_one_poll(lab: Lab) -> None:
    assert await lab.stage(chat("a"), reset(), chat("b")) == ["reset", "staged", "staged"]
    assert await pending(lab) == ["b"]
    assert (await batch_of(lab))["pending"] == 1


async def test_reset_takes_what_is_pending_and_holds_for_replays(lab: Lab) -> None:
    first = [lab.record(chat(f"e{n}", thread="t" if n % 2 else "u")) for n in range(6)]
    await lab.stage(*first)
    barrier = lab.record(reset(thread="t", occurred_at="9999-01-01T00:00:00Z"))
    assert await lab.stage(barrier) == ["staged"]
    assert await pending(lab) == ["e0", "e2", "e4"]
    after = lab.record(chat("new", thread="t"))
    assert await lab.stage(after, barrier, *first) == ["staged", "staged", *["duplicate", "reset"] * 3]
    assert await pending(lab) == ["e0", "e2", "e4", "new"]
    assert await lab.stage(reset(workspace="elsewhere"), reset("bob")) == ["staged", "staged"]
    assert len(await pending(lab)) == 4
    rows = await lab.sql(
        "SELECT count(*) FROM chat WHERE state = 'excluded' AND (prompt IS NOT NULL OR response IS NOT NULL)"
    )
    assert rows[0][0] == 0


async def test_a_barrier_never_moves_back(lab: Lab) -> None:
    early, late = lab.record(reset()), lab.record(reset())
    between = lab.record(chat("a"), offset=0, ms=late.timestamp_ms - 1)
    await lab.stage(late)
    await lab.stage(early)
    assert await lab.stage(between) == ["reset"]
    assert await lab.stage(lab.record(chat("b"), offset=late.offset + 1, ms=late.timestamp_ms)) == ["staged"]


async def test_deleted_chats_leave_and_stay_away(lab: Lab) -> None:
    first = [lab.record(chat(f"e{n}")) for n in range(3)]
    await lab.stage(*first)
    assert await lab.stage(chat("x"), deletion("e1", "x", "to come")) == ["deleted", "staged"]
    assert await pending(lab) == ["e0", "e2"]
    assert (await batch_of(lab))["pending"] == 2
    assert await lab.stage(chat("to come"), first[1], deletion("e1")) == ["deleted", "deleted", "staged"]
    assert await lab.stage(chat("e1", "bob")) == ["staged"]
    rows = await lab.sql("SELECT DISTINCT prompt, response FROM chat WHERE state = 'deleted'")
    assert [tuple(row) for row in rows] == [(None, None)]


async def test_times_and_zones_as_they_came(lab: Lab) -> None:
    await lab.stage(
        chat("a", occurred_at="2023-05-07T22:30:00-04:00", timezone="America/New_York"),
        chat("b", occurred_at="2023-05-08T22:30:00+05:30"),
        chat("c"),
    )
    rows = await lab.sql("SELECT occurred_at, occurred_offset, timezone, recorded_at FROM chat ORDER BY event_id")
    assert [row["occurred_offset"] for row in rows] == [-240, 330, None]
    assert rows[0]["occurred_at"] == datetime(2023, 5, 7, 22, 30, tzinfo=timezone(timedelta(hours=-4)))
    assert rows[2]["occurred_at"] == rows[2]["recorded_at"]
    assert (await batch_of(lab))["timezone"] == "America/New_York"


async def test_secrets_never_reach_the_database(lab: Lab) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    await lab.stage(chat("a", prompt=f"my key is {key}", response=f"keep {key} safe"))
    row = (await lab.sql("SELECT prompt, response FROM chat"))[0]
    assert row["prompt"] == "my key is [secret]"
    assert key not in row["response"]


@pytest.mark.parametrize("place", [{"ms": 2**63}, {"ms": -(2**70)}, {"offset": 2**70}, {"offset": -5}])
async def test_no_position_refuses_a_poll(lab: Lab, place: dict[str, int]) -> None:
    assert await lab.stage(lab.record(chat("a"), **place), chat("b")) in (
        ["staged", "staged"],
        ["too_old", "staged"],
    )


async def test_hostile_ids_stay_apart(lab: Lab) -> None:
    users = ["a", "A", " a", "a ", "a/b", "a%2Fb", "a'b", 'a"b', "a\\b", "a=b&c", "é", "e\u0301", "𝔞" * 200]
    assert set(await lab.stage(*(chat("same", user) for user in users))) == {"staged"}
    assert await lab.value("SELECT count(*) FROM batch") == len(users)


async def test_two_stagers_with_the_same_events_in_other_order(lab: Lab) -> None:
    """As after a rebalance in mid-batch: no deadlock, each chat once."""
    records = [
        lab.record(chat(f"e{n}", f"user {n % 40}", occurred_at=f"2024-01-01T00:{n // 60:02}:{n % 60:02}Z"))
        for n in range(400)
    ]

    async def one(seed: int) -> list[str]:
        mine = list(records)
        random.Random(seed).shuffle(mine)
        verdicts: list[str] = []
        for start in range(0, len(mine), 100):
            part = StageChats(records=mine[start : start + 100])
            verdicts += short((await lab.staging.stage(part)).verdicts)
        return verdicts

    verdicts = [verdict for part in await asyncio.gather(*(one(seed) for seed in range(6))) for verdict in part]
    assert verdicts.count("staged") == 400
    assert set(verdicts) == {"staged", "duplicate"}
    rows = await lab.sql("SELECT sum(pending), count(*), (SELECT count(*) FROM chat) FROM batch")
    assert tuple(rows[0]) == (400, 40, 400)


async def test_when_a_batch_is_due(lab: Lab) -> None:
    """Counts, idle time and the longest wait make one due time; a replay moves none."""
    lab.rules = lab.rules.__class__(
        min_chats=5, idle=timedelta(minutes=20), window_chats=20, max_wait=timedelta(hours=24), round_to=None
    )

    async def due_in(user: str, chats: int) -> timedelta:
        for n in range(chats):
            await lab.stage(chat(f"e{n}", user))
        row = await batch_of(lab, user)
        due, staged = row["claimable_at"], row["last_staged_at"]
        assert isinstance(due, datetime)
        assert isinstance(staged, datetime)
        return due - staged

    assert timedelta(hours=23, minutes=59) < await due_in("four", 4) <= timedelta(hours=24)
    assert await due_in("five", 5) == timedelta(minutes=20)
    assert await due_in("full", 20) == timedelta(0)
    lab.rules = lab.rules.__class__(
        min_chats=5, idle=timedelta(minutes=20), window_chats=20, max_wait=None, round_to=timedelta(hours=3)
    )
    await lab.stage(chat("only", "never"))
    assert (await batch_of(lab, "never"))["claimable_at"] is None
    await due_in("rounded", 5)
    at = (await batch_of(lab, "rounded"))["claimable_at"]
    assert isinstance(at, datetime)
    assert at.timestamp() % (3 * 3600) == 0
    assert at.timestamp() * 1000 > NOW_MS

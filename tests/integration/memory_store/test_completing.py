"""CompleteRun on real Postgres: what a run may do to facts, and that it is all or nothing, once."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from services.memory_store.facts import ledger
from services.memory_store.facts.ledger import Author, Held, NewFact
from shared.events import ChatDeleted
from shared.rpc.messages import CandidateRecord, CompleteRun, DecisionResult, RunEnd
from tests.integration.memory_store.lab import Lab, candidate, chat

CREATE = {"action": "create"}
GLOBAL = {"action": "create", "scope": "global"}


def told(end: RunEnd) -> list[tuple[str, str | None]]:
    return [(result.result, result.reason) for result in end.results]


async def write(lab: Lab, content: str, *, user: str = "ann", workspace: str | None = "default", **fields: Any) -> Held:
    """As a person would, over HTTP."""
    async with lab.database.person("default", user) as connection:
        await ledger.lock_person(connection)
        new = NewFact(workspace, content, "person", locked=True)
        return await ledger.insert(connection, Author("user:" + user), replace(new, **fields))


async def forget(lab: Lab, fact: Held, state: str = "deleted", user: str = "ann") -> None:
    async with lab.database.person("default", user) as connection:
        await ledger.lock_person(connection)
        await ledger.change(connection, Author("user:" + user), fact, "fact.deleted", state=state, pending_reason=None)


async def quotes(lab: Lab, fact_id: UUID | None) -> list[str]:
    rows = await lab.sql("SELECT quote FROM evidence WHERE fact_id = $1 ORDER BY quote", fact_id)
    return [row["quote"] for row in rows]


async def test_a_fact_with_its_evidence_version_change_and_audit(lab: Lab) -> None:
    await lab.stage(chat("a", prompt="I am a  nurse\nin Lisbon", thread="t", occurred_at="2024-01-01T00:00:00Z"))
    run = await lab.claimed()
    end = await lab.complete(run, (candidate("User is a nurse", "a", "a nurse in  Lisbon", category="work"), CREATE))
    fact_id = end.results[0].fact_id
    assert end == RunEnd(
        state="applied",
        outcome="applied",
        results=[DecisionResult(candidate=0, action="create", result="applied", fact_id=fact_id)],
    )
    fact = (await lab.sql("SELECT * FROM fact"))[0]
    assert (fact["content"], fact["state"], fact["origin"], fact["category"], fact["locked"]) == (
        "User is a nurse",
        "active",
        "extraction",
        "work",
        False,
    )
    evidence = (await lab.sql("SELECT * FROM evidence"))[0]
    assert (evidence["event_id"], evidence["thread"], evidence["quote"]) == ("a", "t", "a nurse in Lisbon")
    version = (await lab.sql("SELECT * FROM fact_version"))[0]
    assert (version["version"], version["actor"], version["known_to"]) == (1, f"run:{run.run_id}", None)
    change = (await lab.sql("SELECT * FROM outbox"))[0]
    assert (change["type"], change["fact_id"], change["version"]) == ("fact.created", fact_id, 1)
    audit = (await lab.sql("SELECT * FROM audit"))[0]
    assert (audit["action"], audit["actor"], audit["to_version"]) == ("fact.created", f"run:{run.run_id}", 1)
    assert await lab.value("SELECT state || run_id FROM chat") == f"read{run.run_id}"
    assert (await lab.sql("SELECT run_id, pending, claimable_at FROM batch"))[0]["pending"] == 0


async def test_the_same_answer_again(lab: Lab) -> None:
    await lab.stage(chat("a", prompt="I like tea"))
    run = await lab.claimed()
    pair = (candidate("User likes tea", "a", "I like tea"), CREATE)
    first = await lab.complete(run, pair)
    before = await lab.sql("SELECT * FROM fact")
    assert await lab.complete(run, pair) == first
    assert await lab.complete(run) == first
    assert await lab.sql("SELECT * FROM fact") == before
    assert await lab.value("SELECT count(*) FROM outbox") == 1


async def test_eight_completes_at_once(lab: Lab) -> None:
    await lab.stage(chat("a", prompt="I like tea"))
    run = await lab.claimed()
    ends = await asyncio.gather(
        *(lab.complete(run, (candidate("User likes tea", "a", "I like tea"), CREATE)) for _ in range(8))
    )
    assert ends == [ends[0]] * 8
    assert await lab.facts() == [("default", "User likes tea")]


async def test_outcomes(lab: Lab) -> None:
    await lab.stage(*(chat(f"e{n}", f"u{n}", prompt="I like tea") for n in range(4)))
    runs = {run.user: run for run in [await lab.claimed() for _ in range(4)]}
    good = candidate("User likes tea", "e1", "I like tea")
    assert (await lab.complete(runs["u0"])).outcome == "nothing_found"
    assert (await lab.complete(runs["u1"], (good, {"action": "skip"}))).outcome == "all_skipped"
    assert (await lab.complete(runs["u2"], (good, CREATE))).outcome == "refused"
    dropped = CompleteRun(
        run_id=runs["u3"].run_id,
        extractor="offline",
        candidates=[CandidateRecord(candidate=good, dropped="quote_not_found")],
        decisions=[],
    )
    assert (await lab.completing.complete(dropped)).outcome == "refused"


@pytest.mark.parametrize(
    ("fields", "decision", "reason"),
    [
        ({"quote": "fine"}, CREATE, "quote_not_found"),
        ({"quote": ""}, CREATE, "quote_not_found"),
        ({"event_id": "another's"}, CREATE, "quote_not_found"),
        ({"content": " \n "}, CREATE, "invalid"),
        ({"content": "x" * 501}, CREATE, "invalid"),
        ({"content": "a\u202eb"}, CREATE, "invalid"),
        ({"content": "nul \0"}, CREATE, "invalid"),
        ({"content": "User's page is https://example.com/x"}, CREATE, "markup"),
        ({"content": "User's mail is dana@example.com"}, CREATE, "contact_data"),
        ({"content": "User's key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"}, CREATE, "secret"),
        ({}, {"action": "update"}, "unknown_target"),
        ({}, {"action": "update", "target": "no id"}, "unknown_target"),
        ({}, {"action": "retire", "target": "00000000-0000-0000-0000-000000000000"}, "unknown_target"),
        ({}, {"action": "create", "candidate": 7}, "no_candidate"),
        ({}, {"action": "create", "candidate": -1}, "no_candidate"),
    ],
)
async def test_what_is_refused(lab: Lab, fields: dict[str, Any], decision: dict[str, Any], reason: str) -> None:
    await lab.stage(chat("a", prompt="I like tea", response="fine"))
    run = await lab.claimed()
    bad = candidate(**({"content": "User likes tea", "event_id": "a", "quote": "I like tea"} | fields))
    good = candidate("User likes green tea", "a", "I like tea")
    end = await lab.complete(run, (bad, decision), (good, CREATE))
    assert told(end) == [("refused", reason), ("applied", None)]
    assert await lab.facts() == [("default", "User likes green tea")]


async def test_targets_must_be_this_persons_active_and_unlocked(lab: Lab) -> None:
    """E5."""
    others = await write(lab, "Bob likes tea", user="bob")
    elsewhere = await write(lab, "User likes milk", workspace="other", locked=False)
    deleted = await write(lab, "User likes juice", locked=False)
    await forget(lab, deleted)
    locked = await write(lab, "User likes cola")
    free = await write(lab, "User likes beer", locked=False)
    await lab.stage(chat("a", prompt="I like wine"))
    run = await lab.claimed()
    targets = [others.id, elsewhere.id, deleted.id, locked.id, free.id]
    pairs = [
        (candidate(f"User likes wine {n}", "a", "I like wine"), {"action": "update", "target": str(target)})
        for n, target in enumerate(targets)
    ]
    assert told(await lab.complete(run, *pairs)) == [
        ("refused", "unknown_target"),
        ("refused", "unknown_target"),
        ("refused", "not_active"),
        ("refused", "locked"),
        ("applied", None),
    ]
    assert await lab.facts("bob") == [("default", "Bob likes tea")]
    assert await lab.facts() == [
        ("other", "User likes milk"),
        ("default", "User likes cola"),
        ("default", "User likes wine 4"),
    ]


async def test_an_update_is_the_next_version(lab: Lab) -> None:
    await lab.learn(("User likes tea", CREATE))
    fact_id = await lab.value("SELECT id FROM fact")
    await lab.learn(("User likes green tea", {"action": "update", "target": str(fact_id)}))
    versions = await lab.sql("SELECT version, content, known_from, known_to FROM fact_version ORDER BY version")
    assert [(row["version"], row["content"]) for row in versions] == [
        (1, "User likes tea"),
        (2, "User likes green tea"),
    ]
    assert versions[0]["known_to"] == versions[1]["known_from"]
    assert await quotes(lab, fact_id) == ["User likes green tea", "User likes tea"]


async def test_job_a_then_job_b(lab: Lab) -> None:
    """E8, and E5: the old fact's scope counts, not the decision's."""
    await lab.learn(("User works at A", GLOBAL))
    old = await lab.value("SELECT id FROM fact")
    end = await lab.learn(
        ("User works at B", {"action": "supersede", "target": str(old), "scope": "workspace"}),
        occurred_at="2024-05-07T22:30:00-04:00",
    )
    new = end.results[0].fact_id
    assert await lab.facts() == [(None, "User works at B")]
    row = (await lab.sql("SELECT state, valid_to, superseded_by, version FROM fact WHERE id = $1", old))[0]
    assert tuple(row) == ("superseded", "2024-05-07", new, 2)
    assert await lab.value("SELECT superseded_by FROM fact_version WHERE fact_id = $1 AND version = 2", old) == new


async def test_love_hate_love(lab: Lab) -> None:
    """Never an empty store, never two truths; also when one run says it all."""
    await lab.learn(("User loves jazz", CREATE))
    for content in ("User hates jazz", "User loves jazz"):
        target = await lab.value("SELECT id FROM fact WHERE state = 'active'")
        await lab.learn((content, {"action": "supersede", "target": str(target)}))
        assert await lab.facts() == [("default", content)]
    target = {"action": "supersede", "target": str(await lab.value("SELECT id FROM fact WHERE state = 'active'"))}
    await lab.learn(("User hates jazz", target), ("User likes jazz", target))
    assert await lab.facts() == [("default", "User likes jazz")]


async def test_superseded_by_a_fact_that_says_it_already(lab: Lab) -> None:
    await lab.learn(("User works at A", CREATE), ("User works at B", CREATE))
    old, new = [row["id"] for row in await lab.sql("SELECT id FROM fact ORDER BY content")]
    await lab.learn(("User works at B", {"action": "supersede", "target": str(old)}))
    assert await lab.facts() == [("default", "User works at B")]
    assert await lab.value("SELECT superseded_by FROM fact WHERE id = $1", old) == new


async def test_retired_with_the_day_it_was_said(lab: Lab) -> None:
    await lab.learn(("User works at Acme", CREATE))
    target = str(await lab.value("SELECT id FROM fact"))
    await lab.learn(("User left Acme", {"action": "retire", "target": target}), occurred_at="2024-03-04T23:00:00Z")
    row = (await lab.sql("SELECT state, content, valid_to FROM fact"))[0]
    assert tuple(row) == ("retired", "User works at Acme", "2024-03-04")


async def test_known_already_adds_evidence_and_no_version(lab: Lab) -> None:
    """E7: across scopes, runs and people."""
    mine = await write(lab, "I really like coffee", workspace=None)
    end = await lab.learn((" i really  LIKE coffee. ", GLOBAL))
    assert told(end) == [("skipped", "duplicate")]
    assert told(await lab.learn(("I really like coffee", CREATE), workspace="w")) == [("skipped", "duplicate")]
    assert told(await lab.learn(("I do like it", {"action": "skip", "target": str(mine.id)}))) == [("skipped", "known")]
    assert await lab.facts() == [(None, "I really like coffee")]
    assert len(await quotes(lab, mine.id)) == 3
    row = (await lab.sql("SELECT version, last_confirmed_at > created_at AS confirmed FROM fact"))[0]
    assert tuple(row) == (1, True)


async def test_two_workspaces_deciding_global_at_once(lab: Lab) -> None:
    for workspace in ("v", "w"):
        await lab.stage(chat(workspace, prompt="I really like coffee", workspace=workspace))
    runs = [await lab.claimed(), await lab.claimed()]
    await asyncio.gather(
        *(
            lab.complete(run, (candidate("I really like coffee", run.workspace, "I really like coffee"), GLOBAL))
            for run in runs
        ),
        write(lab, "User has a dog", workspace=None),
    )
    assert len(await lab.facts()) == 2
    rows = await lab.sql("SELECT event_id FROM evidence ORDER BY event_id")
    assert [row["event_id"] for row in rows] == ["v", "w"]


async def test_caps(lab: Lab) -> None:
    """E6."""
    for n in range(19):
        await write(lab, f"fact {n}")
    end = await lab.learn(("one more", CREATE), ("two more", CREATE), ("three more", CREATE))
    assert told(end) == [("applied", None), ("pending", "limit"), ("pending", "limit")]
    target = str(await lab.value("SELECT id FROM fact WHERE content = 'one more'"))
    end = await lab.learn(("four more", CREATE), ("one more, refined", {"action": "update", "target": target}))
    assert told(end) == [("pending", "limit"), ("applied", None)]
    assert len(await lab.facts()) == 20
    for n in range(4):
        await write(lab, f"global {n}", workspace=None)
    end = await lab.learn(*((f"global {n}", GLOBAL) for n in (5, 6, 7)))
    assert told(end) == [("applied", None), ("pending", "limit"), ("pending", "limit")]


async def test_a_person_takes_the_last_slot_between_claim_and_complete(lab: Lab) -> None:
    for n in range(4):
        await write(lab, f"global {n}", workspace=None)
    await lab.stage(chat("a", prompt="I like tea"))
    run = await lab.claimed()
    assert run.free.global_ == 1
    await write(lab, "global 4", workspace=None)
    assert told(await lab.complete(run, (candidate("User likes tea", "a", "I like tea"), GLOBAL))) == [
        ("pending", "limit")
    ]
    assert len(await lab.facts()) == 5


async def test_runs_of_ten_workspaces_want_the_last_global_slot_at_once(lab: Lab) -> None:
    for n in range(4):
        await write(lab, f"global {n}", workspace=None)
    await lab.stage(*(chat(f"e{n}", workspace=f"w{n}", prompt="I like tea") for n in range(10)))
    runs = [await lab.claimed() for _ in range(10)]
    await asyncio.gather(
        *(
            lab.complete(run, (candidate(f"learned in {run.workspace}", run.chats[0].event_id, "I like tea"), GLOBAL))
            for run in runs
        )
    )
    assert len(await lab.facts()) == 5
    assert len(await lab.facts(state="pending")) == 9


async def test_at_most_ten_wait_for_a_slot(lab: Lab) -> None:
    await lab.sql("UPDATE tenant_setting SET max_workspace_facts = 0")
    for n in range(12):
        await lab.learn((f"fact {n}", CREATE))
    assert await lab.facts(state="pending") == [("default", f"fact {n}") for n in range(2, 12)]
    assert await lab.facts(state="retired") == [("default", "fact 0"), ("default", "fact 1")]


async def test_what_contradicts_a_locked_fact_waits(lab: Lab) -> None:
    """F12: the newest one alone."""
    mine = await write(lab, "User drinks tea")
    for n in range(5):
        end = await lab.learn((f"User drinks coffee {n}", {"action": "supersede", "target": str(mine.id)}))
        assert told(end) == [("pending", "contested")]
    assert await lab.facts() == [("default", "User drinks tea")]
    rows = await lab.sql("SELECT content, contests FROM fact WHERE state = 'pending'")
    assert [tuple(row) for row in rows] == [("User drinks coffee 4", mine.id)]
    for act in ("retire", "delete", "update"):
        assert told(await lab.learn((act, {"action": act, "target": str(mine.id)}))) == [("refused", "locked")]


async def test_approval_and_what_is_sensitive(lab: Lab) -> None:
    def ill(n: int) -> Any:
        return candidate(f"User has asthma {n}", f"s{n}", "asthma", sensitive=True)

    await lab.stage(chat("s0", prompt="asthma"))
    assert told(await lab.complete(await lab.claimed(), (ill(0), GLOBAL))) == [("pending", "sensitive")]
    assert await lab.facts(state="pending") == [("default", "User has asthma 0")]
    await lab.sql("UPDATE tenant_setting SET sensitive = 'skip'")
    await lab.stage(chat("s1", prompt="asthma"))
    assert told(await lab.complete(await lab.claimed(), (ill(1), CREATE))) == [("refused", "sensitive")]
    await lab.sql("UPDATE tenant_setting SET sensitive = 'allow'")
    await lab.stage(chat("s2", prompt="asthma"))
    assert told(await lab.complete(await lab.claimed(), (ill(2), GLOBAL))) == [("applied", None)]
    assert await lab.facts() == [("default", "User has asthma 2")]
    await lab.sql("UPDATE tenant_setting SET require_approval = true")
    assert told(await lab.learn(("User likes tea", GLOBAL))) == [("pending", "approval")]
    target = str(await lab.value("SELECT id FROM fact WHERE state = 'active'"))
    assert told(await lab.learn(("User runs", {"action": "supersede", "target": target}))) == [("pending", "approval")]
    assert await lab.facts() == [("default", "User has asthma 2")]


async def test_tombstones(lab: Lab) -> None:
    """F5, F10: of a deletion until said afresh, of a rejection for good."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    await lab.stage(lab.record(chat("before", prompt="I like tea"), ms=now - 3_600_000))
    deleted, rejected = await write(lab, "User likes tea"), await write(lab, "User likes milk")
    await forget(lab, deleted)
    await forget(lab, rejected, "rejected")
    run = await lab.claimed()
    end = await lab.complete(run, (candidate("user likes TEA!", "before", "I like tea"), GLOBAL))
    assert told(end) == [("refused", "forgotten")]
    await lab.stage(lab.record(chat("after", prompt="I like tea and milk"), ms=now + 3_600_000))
    run = await lab.claimed()
    assert run.facts == []
    end = await lab.complete(
        run,
        (candidate("User likes tea", "after", "I like tea"), CREATE),
        (candidate("User likes milk", "after", "I like tea and milk"), CREATE),
    )
    assert told(end) == [("applied", None), ("refused", "rejected")]


async def test_a_deletion_that_was_asked_for_leaves_a_tombstone(lab: Lab) -> None:
    await lab.learn(("User works at Acme", CREATE))
    target = str(await lab.value("SELECT id FROM fact"))
    assert told(await lab.learn(("forget where I work", {"action": "delete", "target": target}))) == [("applied", None)]
    assert await lab.facts(state="deleted") == [("default", "User works at Acme")]


async def test_a_chat_that_was_taken_back_is_no_evidence(lab: Lab) -> None:
    await lab.stage(chat("a", prompt="I like tea"), chat("b", prompt="I like milk"))
    run = await lab.claimed()
    await lab.stage(ChatDeleted(event_id="d", user="ann", event_ids=["a"]))
    end = await lab.complete(
        run,
        (candidate("User likes tea", "a", "I like tea"), CREATE),
        (candidate("User likes milk", "b", "I like milk"), CREATE),
    )
    assert told(end) == [("refused", "chat_gone"), ("applied", None)]
    rows = await lab.sql("SELECT state FROM chat ORDER BY event_id")
    assert [row["state"] for row in rows] == ["deleted", "read"]


async def test_facts_without_evidence_left_are_retired_unless_locked(lab: Lab) -> None:
    """D14."""
    await lab.stage(chat("a", prompt="I like tea"), chat("b", prompt="I like milk"))
    run = await lab.claimed()
    await lab.complete(
        run,
        (candidate("User likes tea", "a", "I like tea"), CREATE),
        (candidate("User likes milk", "b", "I like milk"), CREATE),
        (candidate("User likes both", "a", "I like tea"), CREATE),
        (candidate("User drinks", "a", "I like tea"), CREATE),
    )
    both = await lab.value("SELECT id FROM fact WHERE content = 'User likes both'")
    await lab.learn(("User likes both", {"action": "skip", "target": str(both)}))
    await lab.sql("UPDATE fact SET locked = true WHERE content = 'User drinks'")
    deletion = lab.record(ChatDeleted(event_id="d", user="ann", event_ids=["a"]))
    assert await lab.stage(deletion) == ["staged"]
    assert {content for _, content in await lab.facts()} == {"User likes milk", "User likes both", "User drinks"}
    assert await lab.facts(state="retired") == [("default", "User likes tea")]
    assert await lab.value("SELECT count(*) FROM evidence WHERE event_id = 'a'") == 0
    before = await lab.sql("SELECT * FROM fact ORDER BY id")
    assert await lab.stage(deletion) == ["staged"]
    assert await lab.sql("SELECT * FROM fact ORDER BY id") == before


async def test_whatever_a_model_writes_can_be_kept(lab: Lab) -> None:
    await lab.stage(chat("a", prompt="I like tea"))
    run = await lab.claimed()
    odd = candidate("User likes tea", "a", "I like tea", reasoning="nul \0, \\u0000, \U0001f9a6", valid_from="0000")
    end = await lab.complete(run, (odd, {"action": "create", "reason": "\0"}))
    assert told(end) == [("applied", None)]
    assert await lab.value("SELECT valid_from FROM fact") is None

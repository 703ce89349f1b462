"""What people see of extraction: pending, runs, dead letters."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from deploy.local.database import Database as LocalDatabase
from tests.integration.memory_store.conftest import Api
from tests.integration.memory_store.test_facts import problem, sql
from tests.integration.memory_store.test_preferences import stage

W = {"user": "ada", "workspace": "w"}


async def run(database: LocalDatabase, user: str = "ada", workspace: str = "w", **columns: Any) -> UUID:
    values = {"outcome": "applied", "state": "applied", "started_at": datetime.now(UTC)} | columns
    run_id = uuid4()
    await sql(
        database,
        f"""
        INSERT INTO run (tenant, usr, id, workspace, event_ids, worker, attempt, {", ".join(values)})
        VALUES ('default', $1, $2, $3, '{{e1}}', 'worker', 1, {", ".join(f"${n}" for n in range(4, 4 + len(values)))})
        """,
        user,
        run_id,
        workspace,
        *values.values(),
    )
    return run_id


async def die(database: LocalDatabase, run_id: UUID, user: str = "ada") -> None:
    await sql(
        database,
        """
        WITH dead AS (UPDATE chat SET state = 'dead', reason = 'unreadable', run_id = $1, settled_at = now() WHERE usr = $2 RETURNING 1)
        UPDATE batch SET pending = 0, oldest_staged_at = NULL WHERE usr = $2
        """,
        run_id,
        user,
    )


async def test_nothing_waits_for_nothing(api: Api) -> None:
    answer = await api.get("/v1/pending", params=W)
    assert answer.json() == {"pending": 0, "oldest_at": None, "waiting_for": None, "due_at": None}


async def test_asking_for_a_run_makes_few_chats_due_at_once(api: Api, database: LocalDatabase) -> None:
    await stage(database, "e1", "ada")
    await sql(database, "UPDATE batch SET not_before = now() + interval '1 hour'")
    assert (await api.get("/v1/pending", params=W)).json()["waiting_for"] == "retry"
    asked = await api.post("/v1/runs", json=W)
    assert asked.status_code == 202
    assert (asked.json()["pending"], asked.json()["waiting_for"]) == (1, "due")
    assert (await api.get("/v1/pending", params=W)).json()["due_at"] is not None
    assert (await sql(database, "SELECT claimable_at <= now() AS due FROM batch"))[0]["due"] is True
    assert (await api.post("/v1/runs", json={"user": "nobody"})).json()["waiting_for"] is None
    assert problem(await api.post("/v1/runs", json={"user": "Guest"})) == (422, "invalid")


async def test_an_open_breaker_of_the_workspaces_model_is_named(api: Api, database: LocalDatabase) -> None:
    await stage(database, "e1", "ada")
    await api.post("/v1/runs", json=W)
    await sql(database, "INSERT INTO open_breaker VALUES ('small', now()), ('large', now() - interval '1 hour')")
    assert (await api.get("/v1/pending", params=W)).json()["waiting_for"] == "provider"
    await api.patch("/v1/workspaces/settings", params={"workspace": "w"}, json={"chat_model": "large"})
    assert (await api.get("/v1/pending", params=W)).json()["waiting_for"] == "due"


async def test_a_running_batch_has_no_due_time(api: Api, database: LocalDatabase) -> None:
    await stage(database, "e1", "ada")
    await sql(database, "UPDATE batch SET run_id = gen_random_uuid(), claimable_at = now() + interval '1 minute'")
    found = (await api.get("/v1/pending", params=W)).json()
    assert (found["waiting_for"], found["due_at"]) == ("running", None)


async def test_runs_are_listed_newest_first_in_pages(api: Api, database: LocalDatabase) -> None:
    ids = [str(await run(database, outcome="applied" if n % 2 else "nothing_found")) for n in range(5)][::-1]
    await run(database, "bob", "w")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query: dict[str, Any] = {"user": "ada", "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await api.get("/v1/runs", params=query)).json()
        seen += [each["id"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids
    assert len((await api.get("/v1/runs")).json()["items"]) == 6
    assert len((await api.get("/v1/runs", params={"outcome": "nothing_found"})).json()["items"]) == 3
    assert (await api.get("/v1/runs", params={"user": "ada", "workspace": "x"})).json()["items"] == []
    assert problem(await api.get("/v1/runs", params={"outcome": "fine"})) == (422, "invalid")


async def test_one_run_shows_why(api: Api, database: LocalDatabase) -> None:
    candidate = {"content": "Likes tea", "confidence": "high", "evidence": [{"event_id": "e1", "quote": "I like tea"}]}
    fact_id = str(uuid4())
    run_id = await run(
        database,
        candidates=f'[{{"candidate": {str(candidate).replace(chr(39), chr(34))}, "dropped": null}}]',
        decisions='[{"candidate": 0, "action": "create", "reason": "new"}]',
        results=f'[{{"candidate": 0, "action": "create", "result": "applied", "fact_id": "{fact_id}"}}]',
        extractor="offline",
    )
    found = (await api.get(f"/v1/runs/{run_id}")).json()
    assert found["candidates"][0]["candidate"]["evidence"] == candidate["evidence"]
    assert found["decisions"][0]["reason"] == "new"
    assert found["results"][0]["fact_id"] == fact_id
    assert (found["user"], found["workspace"], found["extractor"], found["event_ids"]) == (
        "ada",
        "w",
        "offline",
        ["e1"],
    )


async def test_a_dead_chat_is_listed_and_tried_again(api: Api, database: LocalDatabase) -> None:
    await stage(database, "e1", "ada")
    run_id = await run(database, state="failed", outcome="dead")
    await die(database, run_id)
    found = (await api.get("/v1/dead-letters", params={"user": "ada"})).json()["items"]
    assert [(each["event_id"], each["run_id"], each["reason"]) for each in found] == [("e1", str(run_id), "unreadable")]
    assert (await api.get("/v1/pending", params=W)).json()["waiting_for"] == "dead"
    retried = await api.post(f"/v1/runs/{run_id}/retry")
    assert (retried.status_code, retried.json()["pending"], retried.json()["waiting_for"]) == (202, 1, "due")
    assert (await api.get("/v1/dead-letters")).json()["items"] == []


async def test_a_repeated_retry_changes_nothing_while_the_chats_wait(api: Api, database: LocalDatabase) -> None:
    await stage(database, "e1", "ada")
    run_id = await run(database, state="failed", outcome="dead")
    assert problem(await api.post(f"/v1/runs/{run_id}/retry")) == (409, "not_dead")
    await die(database, run_id)
    await sql(database, "UPDATE chat SET staged_at = now() - interval '40 days'")
    first = (await api.post(f"/v1/runs/{run_id}/retry")).json()
    waiting = await sql(database, "SELECT * FROM batch")
    again = await api.post(f"/v1/runs/{run_id}/retry")
    assert (again.status_code, again.json()) == (202, first)
    assert await sql(database, "SELECT * FROM batch") == waiting
    # It waits anew: retention does not take it away as it is made pending.
    assert (await sql(database, "SELECT staged_at > now() - interval '1 minute' AS fresh FROM chat"))[0]["fresh"]
    await sql(database, "UPDATE chat SET state = 'read', run_id = gen_random_uuid(), settled_at = now()")
    assert problem(await api.post(f"/v1/runs/{run_id}/retry")) == (409, "not_dead")


async def test_a_chat_whose_text_has_left_is_listed_but_keeps_nobody_waiting(api: Api, database: LocalDatabase) -> None:
    await stage(database, "e1", "ada")
    await die(database, await run(database, state="failed", outcome="dead"))
    await sql(database, "UPDATE chat SET prompt = NULL, response = NULL")
    assert len((await api.get("/v1/dead-letters")).json()["items"]) == 1
    assert (await api.get("/v1/pending", params=W)).json()["waiting_for"] is None


async def test_a_dead_chat_whose_text_has_left_cannot_be_read_again(api: Api, database: LocalDatabase) -> None:
    await stage(database, "e1", "ada")
    run_id = await run(database, state="failed", outcome="dead")
    await die(database, run_id)
    await sql(database, "UPDATE chat SET prompt = NULL, response = NULL")
    assert problem(await api.post(f"/v1/runs/{run_id}/retry")) == (409, "not_dead")


async def test_dead_letters_come_in_pages(api: Api, database: LocalDatabase) -> None:
    run_id = uuid4()
    for n in range(5):
        await stage(database, f"e{n}", "ada")
    await die(database, run_id)
    first = (await api.get("/v1/dead-letters", params={"limit": 3})).json()
    second = (await api.get("/v1/dead-letters", params={"limit": 3, "cursor": first["next_cursor"]})).json()
    assert [each["event_id"] for each in first["items"] + second["items"]] == ["e4", "e3", "e2", "e1", "e0"]
    assert second["next_cursor"] is None


async def test_a_person_sees_and_retries_their_own_in_their_workspaces(api: Api, database: LocalDatabase) -> None:
    await stage(database, "e1", "ada")
    mine, elsewhere, bobs = await run(database), await run(database, workspace="x"), await run(database, "bob")
    await die(database, mine)
    token = await api.token("ada", workspaces=["w"])
    assert [each["id"] for each in (await token.get("/v1/runs")).json()["items"]] == [str(mine)]
    for other in (elsewhere, bobs, uuid4(), "x", "%00"):
        assert problem(await token.get(f"/v1/runs/{other}")) == (404, "not_found")
        assert problem(await token.post(f"/v1/runs/{other}/retry")) == (404, "not_found")
    for query in ({"user": "bob"}, {"workspace": "x"}, {"user": "ada", "workspace": "x"}):
        assert problem(await token.get("/v1/runs", params=query)) == (404, "not_found")
        assert problem(await token.get("/v1/dead-letters", params=query)) == (404, "not_found")
    for query in ({"user": "bob"}, {"user": "ada", "workspace": "x"}):
        assert problem(await token.get("/v1/pending", params=query)) == (404, "not_found")
        assert problem(await token.post("/v1/runs", json=query)) == (404, "not_found")
    assert len((await token.get("/v1/dead-letters")).json()["items"]) == 1
    assert (await token.post(f"/v1/runs/{mine}/retry")).status_code == 202
    none = await api.token("ada", workspaces=[])
    assert (await none.get("/v1/runs")).json()["items"] == []
    assert problem(await none.get(f"/v1/runs/{mine}")) == (404, "not_found")


@pytest.mark.parametrize("route", ["/v1/runs", "/v1/dead-letters"])
async def test_keys_that_are_no_administrators_see_no_runs(api: Api, route: str) -> None:
    key = await api.key("facts:read", "facts:write", "chats:write", "assemble", "tokens:mint")
    assert problem(await key.get(route)) == (403, "forbidden")
    admin = await api.key("admin")
    assert (await admin.get(route)).status_code == 200

"""Facts over HTTP, in this process: what happens to each, whose it is, and what is refused."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from deploy.local.database import Database as LocalDatabase
from tests.integration.memory_store.conftest import Api

ADA = {"user": "ada", "workspace": "work"}


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


async def fact(api: Api, content: str, **wanted: Any) -> dict[str, Any]:
    answer = await api.post("/v1/facts", json={**ADA, "content": content, **wanted})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def listed(api: Api, **query: Any) -> dict[str, Any]:
    answer = await api.get("/v1/facts", params={**ADA, **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def sql(database: LocalDatabase, statement: str, *values: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(database.superuser_url)
    try:
        rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
        return rows
    finally:
        await connection.close()


async def pending(database: LocalDatabase, content: str, reason: str = "limit", contests: str | None = None) -> str:
    """An extracted fact that waits, as a run would leave it."""
    rows = await sql(
        database,
        """
        WITH f AS (
          INSERT INTO fact (tenant, usr, workspace, content, same_key, state, pending_reason, origin, contests)
          VALUES ('default', 'ada', 'work', $1, keyed_hash((SELECT hash_key FROM tenant WHERE tenant = 'default'), lower($1)),
                  'pending', $2, 'extraction', $3) RETURNING *)
        INSERT INTO fact_version (tenant, usr, fact_id, version, workspace, content, state, pending_reason, category, sensitive, locked,
                                  contests, actor)
        SELECT tenant, usr, id, version, workspace, content, state, pending_reason, category, sensitive, locked, contests, 'run:x' FROM f
        RETURNING fact_id
        """,
        content,
        reason,
        contests,
    )
    return str(rows[0]["fact_id"])


async def chat(
    database: LocalDatabase, event_id: str, prompt: str | None, user: str = "ada", workspace: str = "work"
) -> None:
    await sql(
        database,
        """
        INSERT INTO chat (tenant, usr, event_id, workspace, thread, state, prompt, occurred_at, recorded_at, src_offset, src_partition)
        VALUES ('default', $1, $2, $3, 't1', 'read', $4, '2027-05-14T10:00Z', '2027-05-14T10:01Z', 1, 0)
        """,
        user,
        event_id,
        workspace,
        prompt,
    )


async def test_what_a_created_fact_says_of_itself(api: Api) -> None:
    answer = await api.post("/v1/facts", json={**ADA, "content": "  Likes  tea. "})
    made = answer.json()
    assert answer.status_code == 201
    assert (answer.headers["etag"], answer.headers["location"]) == ('"1"', f"/v1/facts/{made['id']}")
    assert made == {
        "id": made["id"],
        "user": "ada",
        "workspace": "work",
        "scope": "workspace",
        "content": "Likes  tea.",
        "state": "active",
        "pending_reason": None,
        "category": "other",
        "sensitive": False,
        "origin": "person",
        "confidence": None,
        "locked": True,
        "version": 1,
        "valid_from": None,
        "valid_to": None,
        "past": False,
        "superseded_by": None,
        "contests": None,
        "created_at": made["created_at"],
        "updated_at": made["created_at"],
        "last_confirmed_at": None,
        "last_used_at": None,
        "use_count": 0,
        "evidence": [],
    }
    assert (await api.get(f"/v1/facts/{made['id']}")).json() == made
    assert (await listed(api))["workspace"] == [made]


async def test_scope_follows_from_the_workspace(api: Api) -> None:
    assert (await fact(api, "a", workspace=None))["scope"] == "global"
    assert (await fact(api, "b", scope="global"))["workspace"] is None
    without = await api.post("/v1/facts", json={"user": "ada", "content": "c", "scope": "workspace"})
    assert problem(without) == (422, "invalid")
    found = await listed(api)
    assert [each["content"] for each in found["global"]] == ["b", "a"]
    assert found["workspace"] == []
    alone = (await api.get("/v1/facts", params={"user": "ada"})).json()
    assert len(alone["global"]) == 2
    assert alone["limits"] == {"global": {"used": 2, "max": 5, "waiting": 0}, "workspace": None}


async def test_a_delete_leaves_a_tombstone_that_only_agents_meet(api: Api) -> None:
    made = await fact(api, "Likes tea")
    assert (await api.delete(f"/v1/facts/{made['id']}")).status_code == 204
    assert problem(await api.delete(f"/v1/facts/{made['id']}")) == (409, "not_active")
    assert problem(await api.patch(f"/v1/facts/{made['id']}", json={"locked": False})) == (409, "not_active")
    assert (await listed(api))["workspace"] == []
    assert [each["id"] for each in (await listed(api, state="deleted"))["workspace"]] == [made["id"]]
    agent = {**ADA, "content": "likes TEA!", "origin": "agent"}
    assert problem(await api.post("/v1/facts", json=agent)) == (409, "forgotten")
    assert problem(await api.post("/v1/facts", json=agent | {"scope": "global"})) == (409, "forgotten")
    await fact(api, "likes tea", scope="global")  # the person may say it again
    assert (await api.post(f"/v1/facts/{made['id']}/restore")).json()["state"] == "active"


async def test_agents_facts_are_not_locked_and_hold_no_links(api: Api) -> None:
    assert (await fact(api, "Works on parsers", origin="agent"))["locked"] is False
    for content, code in (
        ("See https://example.org/x", "markup"),
        ("Mail ada@example.org", "contact_data"),
        ("password: hunter2hunter2", "secret"),
    ):
        answer = await api.post("/v1/facts", json={**ADA, "content": content, "origin": "agent"})
        assert problem(answer) == (422, code)
        assert "hunter2" not in answer.text
    await fact(api, "My site is https://example.org/x")


async def test_evidence_must_be_the_persons_words_in_a_chat_of_theirs(api: Api, database: LocalDatabase) -> None:
    await chat(database, "e1", "I  work\non parsers, mostly")
    await chat(database, "gone", None)
    await chat(database, "bobs", "I work on parsers", user="bob")
    await chat(database, "elsewhere", "I work on parsers", workspace="home")
    made = await fact(api, "Works on parsers", evidence=[{"event_id": "e1", "quote": "work on  parsers"}])
    assert made["evidence"] == [
        {"event_id": "e1", "thread": "t1", "occurred_at": "2027-05-14T10:00:00Z", "quote": "work on parsers"}
    ]
    assert made["last_confirmed_at"] == made["created_at"]
    for event_id, quote in (
        ("e1", "play golf"),
        *((each, "work on parsers") for each in ("gone", "bobs", "elsewhere", "none")),
    ):
        evidence = [{"event_id": event_id, "quote": quote}]
        answer = await api.post("/v1/facts", json={**ADA, "content": "x", "evidence": evidence})
        assert problem(answer) == (422, "invalid"), event_id


async def test_an_edit_locks_and_says_who_changed_what_and_when(api: Api) -> None:
    made = await fact(api, "Likes tea", origin="agent")
    edited = await api.patch(f"/v1/facts/{made['id']}", json={"content": "Likes green tea"})
    assert edited.headers["etag"] == '"2"'
    assert (edited.json()["content"], edited.json()["locked"]) == ("Likes green tea", True)
    assert (await api.patch(f"/v1/facts/{made['id']}", json={"locked": False})).json()["locked"] is False
    unchanged = await api.patch(f"/v1/facts/{made['id']}", json={"content": " Likes green tea ", "locked": False})
    assert unchanged.json()["version"] == 3
    items = (await api.get(f"/v1/facts/{made['id']}/history")).json()["items"]
    assert [(each["version"], each["content"], each["actor"]) for each in items] == [
        (1, "Likes tea", "operator"),
        (2, "Likes green tea", "operator"),
        (3, "Likes green tea", "operator"),
    ]
    assert [each["known_to"] for each in items[:-1]] == [each["known_from"] for each in items[1:]]
    assert items[-1]["known_to"] is None
    pages = (await api.get(f"/v1/facts/{made['id']}/history", params={"limit": 2})).json()
    rest = await api.get(f"/v1/facts/{made['id']}/history", params={"limit": 2, "cursor": pages["next_cursor"]})
    assert pages["items"] + rest.json()["items"] == items
    assert rest.json()["next_cursor"] is None


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ('"1"', 200),
        ("*", 200),
        ('"7", "1"', 200),
        ('"2"', 412),
        ('W/"1"', 412),
        ('"x"', 412),
        ("1", 422),
        ("", 422),
        ('"1', 422),
    ],
)
async def test_if_match(api: Api, header: str, status: int) -> None:
    made = await fact(api, "Likes tea")
    answer = await api.patch(f"/v1/facts/{made['id']}", json={"content": "b"}, headers={"If-Match": header})
    assert answer.status_code == status
    if status == 412:
        assert answer.json()["code"] == "version_conflict"
        assert problem(await api.delete(f"/v1/facts/{made['id']}", headers={"If-Match": header})) == (
            412,
            "version_conflict",
        )
        assert answer.headers["etag"] == '"1"'


async def test_an_edit_into_what_another_fact_says_is_a_duplicate(api: Api) -> None:
    tea, coffee = await fact(api, "Likes tea"), await fact(api, "Likes coffee")
    answer = await api.patch(f"/v1/facts/{coffee['id']}", json={"content": "likes tea."})
    assert problem(answer) == (409, "duplicate")
    assert answer.json()["existing"] == tea["id"]
    assert (await api.patch(f"/v1/facts/{tea['id']}", json={"content": "LIKES tea!"})).status_code == 200


async def test_moving_between_scopes(api: Api) -> None:
    made = await fact(api, "Likes tea")
    path = f"/v1/facts/{made['id']}"
    assert problem(await api.post(f"{path}/demote", json={"workspace": "home"})) == (409, "not_global")
    assert (await api.post(f"{path}/demote", json={"workspace": "work"})).json()["version"] == 1
    promoted = (await api.post(f"{path}/promote")).json()
    assert (promoted["workspace"], promoted["scope"], promoted["locked"], promoted["version"]) == (
        None,
        "global",
        True,
        2,
    )
    assert (await api.post(f"{path}/promote", json={})).json()["version"] == 2
    demoted = (await api.post(f"{path}/demote", json={"workspace": "home"})).json()
    assert (demoted["workspace"], demoted["id"]) == ("home", made["id"])
    same = await fact(api, "likes tea", scope="global")
    clash = await api.post(f"{path}/promote")
    assert (problem(clash), clash.json()["existing"]) == ((409, "duplicate"), same["id"])
    await api.delete(path)
    assert problem(await api.post(f"{path}/promote")) == (409, "not_active")


async def test_replace_gives_a_slot_in_one_step_on_all_that_need_one(api: Api, database: LocalDatabase) -> None:
    await api.patch("/v1/settings", json={"max_workspace_facts": 1, "max_global_facts": 1})
    first = await fact(api, "first")
    assert problem(await api.post("/v1/facts", json={**ADA, "content": "second"})) == (409, "limit_reached")
    second = await fact(api, "second", replace=first["id"])
    assert (await api.get(f"/v1/facts/{first['id']}")).json()["state"] == "deleted"
    assert (await api.get(f"/v1/facts/{first['id']}/history")).json()["items"][-1]["reason"] == "replaced"

    assert problem(await api.post(f"/v1/facts/{first['id']}/restore")) == (409, "limit_reached")
    restored = await api.post(f"/v1/facts/{first['id']}/restore", json={"replace": second["id"]})
    assert restored.json()["state"] == "active"

    waiting = await pending(database, "third")
    assert (await listed(api))["limits"]["workspace"] == {"used": 1, "max": 1, "waiting": 1}
    assert problem(await api.post(f"/v1/facts/{waiting}/approve")) == (409, "limit_reached")
    approved = (await api.post(f"/v1/facts/{waiting}/approve", json={"replace": first["id"]})).json()
    assert (approved["state"], approved["pending_reason"], approved["locked"]) == ("active", None, False)

    world = await fact(api, "global", scope="global")
    assert problem(await api.post(f"/v1/facts/{waiting}/promote")) == (409, "limit_reached")
    assert (await api.post(f"/v1/facts/{waiting}/promote", json={"replace": world["id"]})).json()["scope"] == "global"
    fourth = await fact(api, "fourth")
    assert problem(await api.post(f"/v1/facts/{waiting}/demote", json={"workspace": "work"})) == (409, "limit_reached")
    body = {"workspace": "work", "replace": fourth["id"]}
    assert (await api.post(f"/v1/facts/{waiting}/demote", json=body)).json()["workspace"] == "work"


async def test_what_cannot_be_replaced(api: Api) -> None:
    gone, world = await fact(api, "gone"), await fact(api, "global", scope="global")
    await api.delete(f"/v1/facts/{gone['id']}")
    bobs = await fact(api, "bobs", user="bob")
    for replace, expected in (
        (gone["id"], (409, "not_active")),
        (world["id"], (422, "invalid")),
        (bobs["id"], (404, "not_found")),
        (str(uuid4()), (404, "not_found")),
        ("x", (404, "not_found")),
        (5, (422, "invalid")),
    ):
        assert problem(await api.post("/v1/facts", json={**ADA, "content": "x", "replace": replace})) == expected
    assert (await api.get(f"/v1/facts/{world['id']}")).json()["state"] == "active"
    assert (await api.get(f"/v1/facts/{bobs['id']}")).json()["state"] == "active"


async def test_approve_and_reject(api: Api, database: LocalDatabase) -> None:
    active = await fact(api, "active")
    assert (await api.post(f"/v1/facts/{active['id']}/approve")).json()["version"] == 1
    assert problem(await api.post(f"/v1/facts/{active['id']}/reject")) == (409, "not_pending")
    waiting = await pending(database, "wears hats", "approval")
    assert (await api.post(f"/v1/facts/{waiting}/reject")).json()["state"] == "rejected"
    assert (await api.post(f"/v1/facts/{waiting}/reject")).status_code == 200
    assert problem(await api.post(f"/v1/facts/{waiting}/approve")) == (409, "not_pending")
    agent = await api.post("/v1/facts", json={**ADA, "content": "Wears hats", "origin": "agent"})
    assert problem(agent) == (409, "forgotten")
    assert (await api.post(f"/v1/facts/{waiting}/restore")).json()["state"] == "active"


async def test_approving_what_contests_supersedes_and_takes_the_slot(api: Api, database: LocalDatabase) -> None:
    await api.patch("/v1/settings", json={"max_workspace_facts": 1})
    old = await fact(api, "works at acme")
    new = await pending(database, "works at initech", "contested", old["id"])
    approved = (await api.post(f"/v1/facts/{new}/approve")).json()
    assert (approved["state"], approved["contests"]) == ("active", None)
    was = (await api.get(f"/v1/facts/{old['id']}")).json()
    assert (was["state"], was["superseded_by"]) == ("superseded", new)
    today = datetime.now(UTC).date().isoformat()
    assert was["valid_to"] == today
    assert [each["id"] for each in (await listed(api, valid_at=today))["workspace"]] == [new, old["id"]]
    back = (await api.post(f"/v1/facts/{old['id']}/restore", json={"replace": new})).json()
    assert (back["state"], back["superseded_by"], back["valid_to"]) == ("active", None, None)


async def test_a_past_fact_holds_no_slot(api: Api, database: LocalDatabase) -> None:
    await api.patch("/v1/settings", json={"max_workspace_facts": 1})
    made = await fact(api, "lives in Rome until 2020")
    await sql(database, "UPDATE fact SET valid_from = '2019-05', valid_to = '2020' WHERE id = $1::uuid", made["id"])
    found = await listed(api)
    assert found["workspace"][0]["past"] is True
    assert found["limits"]["workspace"]["used"] == 0
    await fact(api, "another")
    assert len((await listed(api, valid_at="2020-12-31"))["workspace"]) == 2
    for before_or_after in ("2019-04-30", "2019-04", "2018", "2021-01-01", "2021-01-01T00:00:00Z"):
        found = await listed(api, valid_at=before_or_after)
        assert [each["content"] for each in found["workspace"]] == ["another"], before_or_after
    for within in ("2019", "2019-05-01", "2020-12", "2021-01-01T01:00:00+02:00"):
        assert len((await listed(api, valid_at=within))["workspace"]) == 2, within


async def test_as_of_shows_what_was_believed(api: Api) -> None:
    made = await fact(api, "one")
    path = f"/v1/facts/{made['id']}"
    await api.patch(path, json={"content": "two"})
    await api.post(f"{path}/promote")
    await api.delete(path)
    history = (await api.get(f"{path}/history")).json()["items"]
    seen = []
    for version in history:
        found = await listed(api, as_of=version["known_from"], state="active,deleted")
        facts = found["global"] + found["workspace"]
        seen += [(each["content"], each["scope"], each["state"], each["version"]) for each in facts]
    assert seen == [
        ("one", "workspace", "active", 1),
        ("two", "workspace", "active", 2),
        ("two", "global", "active", 3),
        ("two", "global", "deleted", 4),
    ]
    assert (await listed(api, as_of="2020-01-01T00:00:00Z"))["workspace"] == []


async def test_restoring_an_older_version(api: Api) -> None:
    made = await fact(api, "one")
    path = f"/v1/facts/{made['id']}"
    await api.patch(path, json={"content": "two"})
    assert (await api.post(f"{path}/restore")).json()["version"] == 2
    restored = (await api.post(f"{path}/restore", json={"version": 1})).json()
    assert (restored["content"], restored["version"], restored["state"]) == ("one", 3, "active")
    await api.delete(path)
    assert (await api.post(f"{path}/restore", json={"version": 2})).json()["content"] == "two"
    assert problem(await api.post(f"{path}/restore", json={"version": 99})) == (422, "invalid")
    await fact(api, "one")
    assert problem(await api.post(f"{path}/restore", json={"version": 1})) == (409, "duplicate")


async def test_pages_hold_each_fact_once_newest_first(api: Api) -> None:
    names = [
        (await fact(api, f"fact {n}", scope="global" if n % 3 == 0 else "workspace"))["content"] for n in range(12)
    ]
    seen: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = await listed(api, limit=5, **({"cursor": cursor} if cursor else {}))
        assert page["limits"]["workspace"]["used"] == 8
        seen += page["global"] + page["workspace"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(each["content"] for each in seen) == sorted(names)
    whole = await listed(api)
    assert [each["content"] for each in whole["workspace"]] == [
        name for n, name in reversed(list(enumerate(names))) if n % 3
    ]


@pytest.mark.parametrize(
    "query",
    [
        {"state": "gone"},
        {"state": ""},
        {"as_of": "yesterday"},
        {"as_of": "2027-05-14"},
        {"as_of": "0001-01-01T00:00:00+14:00"},
        {"as_of": "9999-12-31T23:59:00-12:00"},
        {"valid_at": "0000"},
        {"valid_at": "2027-02-30"},
        {"valid_at": "10000"},
        {"limit": 0},
        {"limit": 201},
        {"limit": 10**30},
        {"cursor": "x"},
        {"cursor": "WyIyMDI3LTAxLTAxVDAwOjAwOjAwWiIsOTk5OTk5OTk5OTk5OTk5OTk5OTk5LCJ4Il0"},
        {"workspace": "x" * 201},
        {"workspace": "\0"},
        {"unknown": "x"},
    ],
)
async def test_queries_that_are_refused(api: Api, query: dict[str, Any]) -> None:
    assert problem(await api.get("/v1/facts", params={**ADA, **query})) == (422, "invalid")


async def test_several_states(api: Api, database: LocalDatabase) -> None:
    await fact(api, "active")
    await pending(database, "waits")
    assert len((await listed(api, state="active,pending"))["workspace"]) == 2
    assert len((await listed(api, state=["active", "pending"]))["workspace"]) == 2
    assert [each["content"] for each in (await listed(api, state="pending"))["workspace"]] == ["waits"]


async def test_tokens_and_keys_see_their_users_and_workspaces_alone(api: Api) -> None:
    work, home = await fact(api, "w"), await fact(api, "h", workspace="home")
    world, bobs = await fact(api, "g", scope="global"), await fact(api, "b", user="bob")
    token = await api.token("ada", workspaces=["work"])
    key = await api.key("facts:read", "facts:write", workspaces=["work"])
    for holder, hidden in ((token, (home, bobs)), (key, (home,))):
        for each in hidden:
            path = f"/v1/facts/{each['id']}"
            for request in (
                holder.get(path),
                holder.patch(path, json={"locked": False}),
                holder.delete(path),
                holder.get(f"{path}/history"),
                holder.post(f"{path}/promote"),
                holder.post(f"{path}/demote", json={"workspace": "work"}),
                holder.post(f"{path}/restore"),
                holder.post(f"{path}/approve"),
                holder.post(f"{path}/reject"),
            ):
                assert problem(await request) == (404, "not_found")
        for seen in (work, world):
            assert (await holder.get(f"/v1/facts/{seen['id']}")).status_code == 200
        body = {**ADA, "content": "x", "replace": home["id"]}
        assert problem(await holder.post("/v1/facts", json=body)) == (404, "not_found")
        assert problem(await holder.get("/v1/facts", params={"user": "ada", "workspace": "home"})) == (404, "not_found")
        demote = await holder.post(f"/v1/facts/{world['id']}/demote", json={"workspace": "home"})
        assert problem(demote) == (404, "not_found")
    assert problem(await token.get("/v1/facts", params={"user": "bob"})) == (404, "not_found")
    assert problem(await token.post("/v1/facts", json={"user": "bob", "content": "x"})) == (404, "not_found")
    assert (await key.get(f"/v1/facts/{bobs['id']}")).status_code == 200


async def test_another_tenant_does_not_exist(api: Api) -> None:
    made = await fact(api, "mine")
    await api.post("/v1/tenants", json={"tenant": "acme"})
    acme = {"Keepsake-Tenant": "acme"}
    for path in (f"/v1/facts/{made['id']}", f"/v1/facts/{made['id']}/history"):
        assert problem(await api.get(path, headers=acme)) == (404, "not_found")
    assert problem(await api.delete(f"/v1/facts/{made['id']}", headers=acme)) == (404, "not_found")
    assert (await api.get("/v1/facts", params=ADA, headers=acme)).json()["workspace"] == []


async def test_ids_that_look_like_syntax_stay_apart(api: Api) -> None:
    users = ["a/b", "a%2Fb", "a b", "a&user=c", "a=c", "a'b", 'a"b', "a\\", "a:b", "$1", "a\U0001f600", "A/B", "a/b "]
    for user in users:
        await fact(api, f"of {user}", user=user, workspace="w/x'\"\\ y")
    for user in users:
        found = (await api.get("/v1/facts", params={"user": user, "workspace": "w/x'\"\\ y"})).json()
        assert [each["content"] for each in found["workspace"]] == [f"of {user}".strip()]


async def test_every_change_is_in_outbox_and_audit_without_text(api: Api, database: LocalDatabase) -> None:
    made = await fact(api, "canary")
    path = f"/v1/facts/{made['id']}"
    await api.patch(path, json={"content": "canary two"})
    await api.post(f"{path}/promote")
    await api.delete(path)
    await api.post(f"{path}/restore")
    outbox = await sql(database, "SELECT type, fact_id, version, workspace, usr FROM outbox ORDER BY id")
    assert [(row["type"], row["version"]) for row in outbox] == [
        ("fact.created", 1),
        ("fact.updated", 2),
        ("fact.updated", 3),
        ("fact.deleted", 4),
        ("fact.restored", 5),
    ]
    audit = await sql(
        database, "SELECT to_jsonb(a)::text AS row, action, actor FROM audit a WHERE fact_id IS NOT NULL ORDER BY id"
    )
    assert [row["action"] for row in audit] == [row["type"] for row in outbox]
    assert {row["actor"] for row in audit} == {"operator"}
    assert not any("canary" in row["row"] for row in audit)

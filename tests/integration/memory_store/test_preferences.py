from typing import Any

import pytest

from deploy.local.database import Database as LocalDatabase
from tests.integration.memory_store.conftest import Api
from tests.integration.memory_store.test_facts import problem, sql

DEFAULTS = {
    "personalization": "on",
    "auto_extraction": "on",
    "require_approval": "off",
    "sensitive": "approve",
    "max_workspace_facts": 20,
    "max_global_facts": 5,
    "model": None,
    "heading": "## Things I Remember About You",
}


async def test_a_patch_changes_what_it_names_and_null_takes_the_default_back(api: Api) -> None:
    assert (await api.get("/v1/settings")).json() == DEFAULTS
    patch = {"max_workspace_facts": 3, "require_approval": True, "heading": " # What I know ", "model": "large"}
    changed = DEFAULTS | {
        "max_workspace_facts": 3,
        "require_approval": "on",
        "heading": "# What I know",
        "model": "large",
    }
    assert (await api.patch("/v1/settings", json=patch)).json() == changed
    assert (await api.get("/v1/settings")).json() == changed
    back = await api.patch("/v1/settings", json=dict.fromkeys(patch))
    assert back.json() == DEFAULTS


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({}, "invalid"),
        ({"max_workspace_facts": -1}, "invalid"),
        ({"max_workspace_facts": 10**30}, "invalid"),
        ({"max_global_facts": "many"}, "invalid"),
        ({"personalization": "perhaps"}, "invalid"),
        ({"sensitive": "on"}, "invalid"),
        ({"heading": " "}, "invalid"),
        ({"heading": "a\nb"}, "invalid"),
        ({"heading": "a\0b"}, "invalid"),
        ({"model": "openai:gpt"}, "unknown_model"),
        ({"model": "\0"}, "unknown_model"),
        ({"base_url": "http://x"}, "invalid"),
        ([], "invalid"),
    ],
)
async def test_settings_that_are_refused(api: Api, patch: Any, code: str) -> None:
    assert problem(await api.patch("/v1/settings", json=patch)) == (422, code)
    assert (await api.get("/v1/settings")).json() == DEFAULTS


async def test_the_workspaces_chat_model_wins_then_its_agent_model_then_the_tenants_then_the_default(api: Api) -> None:
    async def effective(workspace: str = "w") -> Any:
        return (await api.get("/v1/settings/effective", params={"workspace": workspace})).json()["model"]

    path = "/v1/workspaces/settings?workspace=w"
    assert await effective() == "small"
    await api.patch("/v1/settings", json={"model": "large"})
    assert await effective() == "large"
    await api.patch(path, json={"agent_model": "small"})
    assert await effective() == "small"
    both = await api.patch(path, json={"chat_model": "large"})
    assert both.json() == {"chat_model": "large", "agent_model": "small"}
    assert (await api.get(path)).json() == both.json()
    assert await effective() == "large"
    await api.patch(path, json={"chat_model": None})
    assert await effective() == "small"
    assert await effective("another") == "large"
    assert problem(await api.patch(path, json={"chat_model": "nobody's"})) == (422, "unknown_model")


async def test_effective_settings_are_for_whoever_holds_a_credential(api: Api) -> None:
    await api.patch("/v1/users/settings", params={"user": "ada"}, json={"memory": "off"})
    token = await (await api.key("tokens:mint")).token("ada")
    found = (await token.get("/v1/settings/effective")).json()
    assert found == DEFAULTS | {"model": "small", "memory": "off", "learning": "on"}
    assert problem(await token.get("/v1/settings/effective", params={"user": "bob"})) == (404, "not_found")
    assert (await api.get("/v1/settings/effective", params={"user": "bob"})).json()["memory"] == "on"
    assert (await api.get("/v1/settings/effective")).json()["memory"] == "on"


async def test_a_users_settings_are_theirs(api: Api) -> None:
    token = await api.token("ada")
    path = "/v1/users/settings"
    assert (await token.get(path, params={"user": "ada"})).json() == {"memory": "on", "learning": "on"}
    patched = await token.patch(path, params={"user": "ada"}, json={"memory": "off"})
    assert patched.json() == {"memory": "off", "learning": "on"}
    assert problem(await token.patch(path, params={"user": "bob"}, json={"memory": "off"})) == (404, "not_found")
    assert problem(await token.get(path, params={"user": "bob"})) == (404, "not_found")
    assert (await api.get(path, params={"user": "bob"})).json()["memory"] == "on"
    assert problem(await api.patch(path, params={"user": "guest"}, json={"memory": "off"})) == (422, "invalid")
    key = await api.key("facts:write", "facts:read")
    assert problem(await key.get(path, params={"user": "ada"})) == (403, "forbidden")


async def stage(database: LocalDatabase, event_id: str, user: str, recorded_at: str = "now()") -> None:
    await sql(
        database,
        f"""
        WITH c AS (
          INSERT INTO chat (tenant, usr, event_id, workspace, prompt, response, occurred_at, recorded_at, src_offset, src_partition)
          VALUES ('default', $1, $2, 'w', 'a canary', 'yes', now(), {recorded_at}, 1, 0))
        INSERT INTO batch (tenant, usr, workspace, pending, oldest_staged_at, last_staged_at)
        VALUES ('default', $1, 'w', 1, now(), now())
        ON CONFLICT (tenant, usr, workspace) DO UPDATE SET pending = batch.pending + 1
        """,
        user,
        event_id,
    )


async def test_opting_out_deletes_what_waits_and_nobody_elses(api: Api, database: LocalDatabase) -> None:
    for user in ("ada", "bob"):
        await stage(database, "e1", user, "now() + interval '1 second'")  # a broker whose clock is ahead
    patch = await api.patch("/v1/users/settings", params={"user": "ada"}, json={"learning": "off"})
    assert patch.json()["learning"] == "off"
    chats = await sql(database, "SELECT usr, state, prompt, reason FROM chat ORDER BY usr")
    assert [tuple(row) for row in chats] == [
        ("ada", "excluded", None, "opted_out"),
        ("bob", "pending", "a canary", None),
    ]
    waiting = (await api.get("/v1/pending", params={"user": "ada", "workspace": "w"})).json()
    assert (waiting["pending"], waiting["waiting_for"]) == (0, "opted_out")
    assert (await api.get("/v1/pending", params={"user": "bob", "workspace": "w"})).json()["pending"] == 1


async def test_what_was_said_while_learning_was_off_stays_behind_a_barrier(api: Api, database: LocalDatabase) -> None:
    async def barriers() -> list[tuple[str, bool, bool]]:
        rows = await sql(
            database, "SELECT kind, usr_key = '' AS all, since = '-infinity' AS ever FROM barrier ORDER BY kind"
        )
        return [tuple(row) for row in rows]

    await stage(database, "before", "ada")
    await api.patch("/v1/settings", json={"personalization": "off"})
    await api.patch("/v1/settings", json={"auto_extraction": "off"})
    assert await barriers() == []
    assert (await api.get("/v1/pending", params={"user": "ada", "workspace": "w"})).json()["waiting_for"] == "off"
    await api.patch("/v1/settings", json={"personalization": "on"})
    assert await barriers() == []  # still off by the other switch
    await api.patch("/v1/settings", json={"auto_extraction": "on"})
    assert await barriers() == [("off", True, False)]
    # What waited before is still to be read; what was said meanwhile is not.
    rows = await sql(
        database, "SELECT c.recorded_at < b.since AS before, b.until <= now() AS closed FROM chat c, barrier b"
    )
    assert [tuple(row) for row in rows] == [(True, True)]
    await api.patch("/v1/users/settings", params={"user": "ada"}, json={"learning": "off"})
    await api.patch("/v1/users/settings", params={"user": "ada"}, json={"learning": "on"})
    assert await barriers() == [("off", True, False), ("opted_out", False, True)]

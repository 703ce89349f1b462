import asyncio
from typing import Any

import asyncpg
import httpx
import pytest

from tests.integration.memory_store.conftest import Api


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


async def test_no_wrong_or_endless_credential_opens_anything(api: Api) -> None:
    for header in ({}, {"Authorization": ""}, {"Authorization": "Basic x"}, {"Authorization": "Bearer ks_nobody"}):
        api.headers.pop("Authorization", None)
        answer = await api.get("/v1/facts", params={"user": "ada"}, headers=header)
        assert problem(answer) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert problem(await api.as_holder("x" * 5000).get("/v1/keys")) == (401, "unauthenticated")


async def test_a_key_opens_what_its_scopes_say_until_it_is_revoked(api: Api) -> None:
    made = await api.post("/v1/keys", json={"name": "app", "scopes": ["facts:read", "facts:read"]})
    assert made.status_code == 201
    key = made.json()
    assert key["key"].startswith(f"ks_{key['id']}")
    assert key["scopes"] == ["facts:read"]
    holder = api.as_holder(key["key"])
    assert (await holder.get("/v1/facts", params={"user": "ada"})).status_code == 200
    assert problem(await holder.post("/v1/facts", json={"user": "ada", "content": "x"})) == (403, "forbidden")
    assert problem(await holder.get("/v1/keys")) == (403, "forbidden")

    listed = (await api.get("/v1/keys")).json()["items"]
    assert [each["id"] for each in listed] == [key["id"]]
    assert "key" not in listed[0]
    assert key["key"] not in str(listed)

    assert (await api.delete(f"/v1/keys/{key['id']}")).status_code == 204
    assert problem(await holder.get("/v1/facts", params={"user": "ada"})) == (401, "unauthenticated")
    assert (await api.get("/v1/keys")).json()["items"] == []
    assert problem(await api.delete(f"/v1/keys/{key['id']}")) == (404, "not_found")


async def test_only_a_hash_of_a_key_is_kept(api: Api, database: Any) -> None:
    key = (await api.post("/v1/keys", json={"name": "app", "scopes": ["tokens:mint", "facts:read"]})).json()["key"]
    token = (await api.as_holder(key).post("/v1/tokens", json={"user": "ada"})).json()["token"]
    connection = await asyncpg.connect(database.superuser_url)
    rows = await connection.fetch(
        "SELECT to_jsonb(k)::text AS row FROM api_key k UNION ALL SELECT to_jsonb(t)::text FROM user_token t"
        " UNION ALL SELECT to_jsonb(a)::text FROM audit a"
    )
    await connection.close()
    assert len(rows) >= 3
    assert not any(key[-43:] in row["row"] or token[-43:] in row["row"] for row in rows)


async def test_keys_come_in_pages(api: Api) -> None:
    names = [f"key {n}" for n in range(5)]
    for name in names:
        await api.post("/v1/keys", json={"name": name, "scopes": ["assemble"]})
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = (await api.get("/v1/keys", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [each["name"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == names


async def test_a_user_token_is_its_users_alone_and_has_no_more_than_its_key(api: Api) -> None:
    key = await api.key("tokens:mint", "facts:read", "admin")
    token = await key.token("ada")
    assert (await token.get("/v1/facts", params={"user": "ada"})).status_code == 200
    assert problem(await token.get("/v1/facts", params={"user": "bob"})) == (404, "not_found")
    assert problem(await token.post("/v1/facts", json={"user": "ada", "content": "x"})) == (403, "forbidden")
    assert problem(await token.get("/v1/settings")) == (403, "forbidden")
    assert problem(await token.post("/v1/tokens", json={"user": "bob"})) == (403, "forbidden")
    admin = await key.token("ada", admin=True)
    assert (await admin.get("/v1/settings")).status_code == 200
    plain = await api.key("tokens:mint", "facts:read")
    assert problem(await plain.post("/v1/tokens", json={"user": "ada", "admin": True})) == (403, "forbidden")


async def test_an_administrators_token_without_a_user_opens_no_users_things(api: Api) -> None:
    assert problem(await api.post("/v1/tokens", json={"user": None})) == (422, "invalid")
    token = await api.token(None, admin=True)
    assert (await token.get("/v1/settings")).status_code == 200
    assert problem(await token.get("/v1/facts", params={"user": "ada"})) == (403, "forbidden")


async def test_a_token_ends_with_its_time_and_with_its_key(api: Api) -> None:
    made = (await api.post("/v1/keys", json={"name": "app", "scopes": ["tokens:mint", "facts:read"]})).json()
    key = api.as_holder(made["key"])
    short, long = await key.token("ada", ttl=1), await key.token("ada", ttl=3600)
    async with asyncio.timeout(5):
        while (await short.get("/v1/facts", params={"user": "ada"})).status_code == 200:  # noqa: ASYNC110 (polled, within a deadline)
            await asyncio.sleep(0.05)
    assert (await long.get("/v1/facts", params={"user": "ada"})).status_code == 200
    await api.delete(f"/v1/keys/{made['id']}")
    assert problem(await long.get("/v1/facts", params={"user": "ada"})) == (401, "unauthenticated")


@pytest.mark.parametrize(
    "wanted",
    [
        {"user": "ada", "ttl": 3601},
        {"user": "ada", "ttl": 0},
        {"user": "Guest"},
        {"user": ""},
        {"user": "a\0b"},
        {"user": "ada", "scopes": ["admin"]},
        {"user": "ada", "workspaces": [""]},
        {"user": 1},
    ],
)
async def test_tokens_that_are_not_minted(api: Api, wanted: dict[str, object]) -> None:
    assert problem(await api.post("/v1/tokens", json=wanted)) == (422, "invalid")


async def test_workspaces_of_a_key_bound_its_tokens(api: Api) -> None:
    key = await api.key("tokens:mint", "facts:read", workspaces=["a", "b"])
    assert problem(await key.post("/v1/tokens", json={"user": "ada", "workspaces": ["c"]})) == (404, "not_found")
    for workspaces, seen in ((None, {"a", "b"}), (["a"], {"a"}), ([], set())):
        token = await key.token("ada", workspaces=workspaces)
        for workspace in ("a", "b", "c"):
            status = (await token.get("/v1/facts", params={"user": "ada", "workspace": workspace})).status_code
            assert status == (200 if workspace in seen else 404), (workspaces, workspace)


async def test_tenants_are_the_operators(api: Api) -> None:
    assert (await api.post("/v1/tenants", json={"tenant": "acme"})).status_code == 201
    assert (await api.post("/v1/tenants", json={"tenant": "acme"})).status_code == 200
    assert [each["tenant"] for each in (await api.get("/v1/tenants")).json()["items"]] == ["acme", "default"]
    admin = await api.key("admin")
    assert problem(await admin.get("/v1/tenants")) == (403, "forbidden")
    assert problem(await admin.post("/v1/tenants", json={"tenant": "x"})) == (403, "forbidden")
    for bad in ("", "a\0", "\ue000", "x" * 201, 5, None):
        assert problem(await api.post("/v1/tenants", json={"tenant": bad})) == (422, "invalid")


async def test_the_header_names_the_operators_tenant_and_nobody_elses(api: Api) -> None:
    await api.post("/v1/tenants", json={"tenant": "acme"})
    acme = {"Keepsake-Tenant": "acme"}
    made = await api.post("/v1/keys", json={"name": "app", "scopes": ["admin"]}, headers=acme)
    holder = api.as_holder(made.json()["key"])
    assert [each["id"] for each in (await holder.get("/v1/keys")).json()["items"]] == [made.json()["id"]]
    assert (await api.get("/v1/keys")).json()["items"] == []
    assert problem(await api.delete(f"/v1/keys/{made.json()['id']}")) == (404, "not_found")
    assert problem(await api.get("/v1/keys", headers={"Keepsake-Tenant": "nobody"})) == (404, "not_found")
    assert (await holder.get("/v1/keys", headers=acme)).status_code == 200
    assert problem(await holder.get("/v1/keys", headers={"Keepsake-Tenant": "default"})) == (404, "not_found")


@pytest.mark.parametrize(
    "cursor", ["x", "äöü", "e30", "WyIwMDAxLTAxLTAxVDAwOjAwKzE0OjAwIiwgIngiXQ", "A" * 2999, "\0", ""]
)
async def test_a_cursor_is_input_like_any_other(api: Api, cursor: str) -> None:
    for route in ("/v1/keys", "/v1/tenants", "/v1/runs", "/v1/dead-letters"):
        assert problem(await api.get(route, params={"cursor": cursor})) == (422, "invalid")


@pytest.mark.parametrize("key_id", ["x", "a" * 16 + "%00", "%F0%9F%98%80", "..%2F", "0" * 16])
async def test_a_key_that_is_not_there(api: Api, key_id: str) -> None:
    assert problem(await api.delete(f"/v1/keys/{key_id}")) == (404, "not_found")

"""The service over HTTP, with memory-store out of reach unless a test says otherwise."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from structlog.testing import capture_logs

from services.injection.app import build
from services.injection.settings import InjectionSettings
from shared.auth import Principal
from shared.problems import Problem, unauthenticated
from shared.rpc.errors import RpcError
from tests.support.ports import free_port


class Keys:
    """`good` has both scopes, `reader` cannot assemble."""

    async def authenticate(self, credential: str, tenant: str | None) -> Principal:
        if tenant == "gone":
            raise Problem("not_found")
        scopes = {"good": {"assemble", "facts:read"}, "reader": {"facts:read"}}.get(credential)
        if scopes is None:
            raise unauthenticated()
        return Principal("default", f"key:{credential}", frozenset(scopes))


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[FastAPI]:
    settings = InjectionSettings(
        service_key=SecretStr("key"),
        memory_store_url=f"http://127.0.0.1:{free_port()}",
        ranker_model=tmp_path / "missing",
    )
    app = build(settings)
    with capture_logs() as logs:
        async with app.router.lifespan_context(app):
            warnings = [entry for entry in logs if entry["log_level"] == "warning"]
            assert [entry["event"] for entry in warnings] == ["ranker_unavailable"]
            yield app


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": "Bearer good"}
    async with httpx.AsyncClient(transport=transport, base_url="http://injection", headers=headers) as client:
        yield client


async def test_store_away_also_for_authentication(client: httpx.AsyncClient) -> None:
    started = time.monotonic()
    answer = await client.post("/v1/assemble", json={"user": "ada", "system_prompt": "You help."})
    assert time.monotonic() - started < 0.4
    assert answer.status_code == 200
    assert answer.json() == {
        "system_prompt": "You help.",
        "block": "",
        "facts": [],
        "ranking": "none",
        "reason": None,
        "degraded": "store_unavailable",
    }
    search = await client.post("/v1/facts/search", json={"user": "ada", "query": "tea"})
    assert (search.status_code, search.json()["code"]) == (503, "unavailable")
    assert (await client.get("/readyz")).status_code == 200
    assert (await client.get("/healthz")).status_code == 200


async def test_store_that_hangs_while_it_authenticates(app: FastAPI, client: httpx.AsyncClient) -> None:
    class Hanging:
        async def authenticate(self, credential: str, tenant: str | None) -> Principal:
            raise RpcError("deadline_exceeded")

    app.state.authenticator._inner = Hanging()
    answer = await client.post("/v1/assemble", json={"user": "ada"})
    assert answer.json()["degraded"] == "store_unavailable"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer reader"}, 403),
        ({"Keepsake-Tenant": "gone"}, 404),
    ],
)
async def test_refused_callers(app: FastAPI, client: httpx.AsyncClient, headers: dict[str, str], code: int) -> None:
    app.state.authenticator._inner = Keys()
    assert (await client.post("/v1/assemble", json={"user": "ada"}, headers=headers)).status_code == code


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user": "ada", "more": 1},
        {"user": "ada\0"},
        {"user": 7},
        {"user": "ada", "workspace": ""},
        {"user": "ada", "thread": "x" * 201},
        {"user": "ada", "limit": 21},
        {"user": "ada", "limit": -1},
        {"user": "ada", "limit": "many"},
        {"user": "ada", "max_tokens": -1},
        {"user": "ada", "previous": "id"},
        {"user": "ada", "previous": [None]},
        {"user": "ada", "history": [{}]},
        {"user": "ada", "history": [{"role": "user", "content": {"text": "tea"}}]},
        {"user": "ada", "message": ["tea"]},
        [],
        None,
        "ada",
    ],
)
async def test_what_does_not_fit_is_refused(app: FastAPI, client: httpx.AsyncClient, body: Any) -> None:
    app.state.authenticator._inner = Keys()
    answer = await client.post("/v1/assemble", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff", b'{"user":"\\ud800"}', b'{"user": "ada", "limit": NaN}', b"[" * 100]
)
async def test_what_is_no_json_is_refused(app: FastAPI, client: httpx.AsyncClient, body: bytes) -> None:
    app.state.authenticator._inner = Keys()
    answer = await client.post("/v1/assemble", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


@pytest.mark.parametrize(
    "body",
    [
        {"user": "ada"},
        {"user": "ada", "query": ""},
        {"user": None, "query": "tea"},
        {"user": "ada", "query": "x", "limit": 0},
    ],
)
async def test_search_refuses_what_does_not_fit(app: FastAPI, client: httpx.AsyncClient, body: Any) -> None:
    app.state.authenticator._inner = Keys()
    assert (await client.post("/v1/facts/search", json=body)).status_code == 422

"""The limits, errors and gates that every service's HTTP side shares."""

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, ConfigDict

from shared.auth import Principal, Requires
from shared.loops import Loops
from shared.problems import Problem, unauthenticated
from shared.web import create_app, deeper_than


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: str


router = APIRouter()


@router.post("/v1/echo/{number}")
async def echo(number: int, body: Body, who: Annotated[Principal, Requires("facts:write")]) -> Body:
    if number == 13:
        raise RuntimeError(f"secret {body.user}")
    who.check_user(body.user)
    return body


class OneKey:
    async def authenticate(self, credential: str, tenant: str | None) -> Principal:
        if tenant == "gone":
            raise Problem("not_found")
        scopes = {"writer": ["facts:write"], "reader": ["facts:read"]}.get(credential)
        if scopes is None:
            raise unauthenticated()
        return Principal("default", f"key:{credential}", frozenset(scopes), user="ada")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield


@pytest.fixture
def loops() -> Loops:
    return Loops()


@pytest.fixture
async def client(loops: Loops) -> AsyncIterator[httpx.AsyncClient]:
    async def not_ready() -> str | None:
        return "database"

    app = create_app("test", routers=[router], lifespan=lifespan, loops=loops, not_ready=not_ready)
    app.state.authenticator = OneKey()
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers={"Authorization": "Bearer writer"}
    ) as http:
        yield http


async def post(client: httpx.AsyncClient, body: bytes, path: str = "/v1/echo/1", **headers: str) -> tuple[int, str]:
    reply = await client.post(path, content=body, headers={"Content-Type": "application/json", **headers})
    return reply.status_code, reply.json().get("code", "")


async def test_a_fitting_request_passes(client: httpx.AsyncClient) -> None:
    assert await post(client, b'{"user":"ada"}') == (200, "")


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"", (422, "invalid")),
        (b"{", (422, "invalid")),
        (b"\xff", (422, "invalid")),
        (b'{"user":3}', (422, "invalid")),
        (b'{"user":"ada","more":1}', (422, "invalid")),
        (b'{"user":"\\ud800"}', (422, "invalid")),
        (b"[" * 33 + b"]" * 33, (422, "invalid")),
        (b"[" * 4_000_000, (422, "invalid")),
        (b'{"user":"' + b"x" * (4 << 20) + b'"}', (413, "too_large")),
        (b'{"user":"bob"}', (404, "not_found")),
    ],
)
async def test_bad_bodies_get_a_stable_code(client: httpx.AsyncClient, body: bytes, answer: tuple[int, str]) -> None:
    assert await post(client, body) == answer


async def test_an_emoji_written_as_a_surrogate_pair_is_text(client: httpx.AsyncClient) -> None:
    assert await post(client, b'{"user":"\\ud83d\\ude00"}') == (404, "not_found")


async def test_a_compressed_request_is_refused_unread(client: httpx.AsyncClient) -> None:
    body = gzip.compress(b'{"user":"ada"}')
    assert await post(client, body, **{"Content-Encoding": "gzip"}) == (415, "unsupported_encoding")


@pytest.mark.parametrize(
    ("credential", "answer"),
    [("", (401, "unauthenticated")), ("x" * 600, (401, "unauthenticated")), ("reader", (403, "forbidden"))],
)
async def test_credentials(client: httpx.AsyncClient, credential: str, answer: tuple[int, str]) -> None:
    assert await post(client, b'{"user":"ada"}', Authorization=f"Bearer {credential}") == answer


async def test_an_id_in_a_path_that_is_none_is_not_found(client: httpx.AsyncClient) -> None:
    assert await post(client, b'{"user":"ada"}', "/v1/echo/first") == (404, "not_found")
    assert await post(client, b"{}", "/v1/nothing") == (404, "not_found")


async def test_a_fault_of_ours_says_nothing(client: httpx.AsyncClient) -> None:
    reply = await client.post("/v1/echo/13", json={"user": "ada"})
    assert (reply.status_code, reply.json()["code"]) == (500, "internal")
    assert "secret" not in reply.text


async def test_probes(client: httpx.AsyncClient, loops: Loops) -> None:
    assert (await client.get("/healthz")).status_code == 200
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "database")
    loops.register("reading", bound_s=0.0)
    assert (await client.get("/healthz")).json()["stalled"] == ["reading"]


async def test_unknown_paths_make_no_new_series(client: httpx.AsyncClient) -> None:
    async def series() -> int:
        text = (await client.get("/metrics")).text
        return sum(line.startswith("keepsake_http_requests_total{") for line in text.splitlines())

    await client.get("/scan/0")
    await series()  # its own route is in the next one
    before = await series()
    for number in range(1, 50):
        await client.get(f"/scan/{number}")
    assert await series() == before


@pytest.mark.parametrize(
    ("body", "deep"),
    [
        (b'{"a":' * 32 + b"1" + b"}" * 32, False),
        (b'{"a":' * 33 + b"1" + b"}" * 33, True),
        (b"[{}" * 17 + b"]" * 17, False),
        (b'[{"a":' * 17 + b"1" + b"}]" * 17, True),
        (b"[" + b"[]," * 999 + b"[]]", False),
        (b'"' + b"[" * 99 + b'"', False),
        (b'"\\"' + b"[" * 99 + b'"', False),
        (b'["\\\\",' + b"[" * 40 + b"]" * 40 + b"]", True),
    ],
)
def test_depth_counts_brackets_outside_strings(body: bytes, deep: bool) -> None:
    assert deeper_than(body, 32) is deep

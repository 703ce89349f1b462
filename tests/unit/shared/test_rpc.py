"""Connect JSON on both sides: our client against our server, errors, deadlines and retries."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.applications import Starlette

from shared.auth import Principal, RpcAuthenticator, hash_credential
from shared.problems import Problem
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.rpc.server import Method, rpc_route

LIST = m.ListFacts(tenant="t", user="u", workspace="w")


class Store:
    """Answers as it is told, and counts how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0
        self.failures: list[Exception] = []
        self.pause = 0.0
        self.revoked = False

    async def list_facts(self, _: m.ListFacts, caller: str) -> m.ListFactsReply:
        self.calls += 1
        await asyncio.sleep(self.pause)
        if self.failures:
            raise self.failures.pop(0)
        return m.ListFactsReply(facts=[], heading=f"for {caller}")

    async def record_use(self, _: m.RecordUse, __: str) -> m.Done:
        return m.Done()

    async def authenticate(self, ask: m.Authenticate, _: str) -> m.AuthenticateReply:
        self.calls += 1
        if self.revoked or ask.key_sha256 != hash_credential("good"):
            raise RpcError("unauthenticated")
        return m.AuthenticateReply(actor="key:1", tenant="t", scopes=["assemble"], workspaces=[])


def authorise(bearer: str, method: str) -> str:
    if bearer != "key":
        raise RpcError("unauthenticated")
    if method == "RecordUse":
        raise RpcError("permission_denied")
    return "injection"


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def transport(store: Store) -> httpx.ASGITransport:
    methods: dict[str, Method[Any]] = {
        "ListFacts": Method(m.ListFacts, store.list_facts),
        "RecordUse": Method(m.RecordUse, store.record_use),
        "Authenticate": Method(m.Authenticate, store.authenticate),
    }
    return httpx.ASGITransport(app=Starlette(routes=[rpc_route(methods, authorise)]))


@pytest.fixture
async def client(transport: httpx.ASGITransport) -> AsyncIterator[MemoryStoreClient]:
    async with MemoryStoreClient("http://store", "key", transport=transport) as client:
        yield client


async def code_of(call: object) -> str:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value.code


async def test_a_call_is_answered(client: MemoryStoreClient) -> None:
    assert (await client.list_facts(LIST)).heading == "for injection"


async def test_unavailable_is_tried_again_within_the_deadline(client: MemoryStoreClient, store: Store) -> None:
    store.failures = [RpcError("unavailable"), RpcError("unavailable")]
    assert (await client.list_facts(LIST)).facts == []
    assert store.calls == 3


async def test_what_is_wrong_is_not_tried_again(client: MemoryStoreClient, store: Store) -> None:
    store.failures = [RpcError("failed_precondition")]
    assert await code_of(client.list_facts(LIST)) == "failed_precondition"
    assert store.calls == 1


async def test_a_late_answer_is_deadline_exceeded(client: MemoryStoreClient, store: Store) -> None:
    store.pause = 5
    assert await code_of(client.list_facts(LIST, timeout=0.05)) == "deadline_exceeded"


async def test_a_fault_of_the_server_is_internal_and_says_nothing(client: MemoryStoreClient, store: Store) -> None:
    store.failures = [ValueError("secret text")]
    with pytest.raises(RpcError) as caught:
        await client.list_facts(LIST)
    assert (caught.value.code, "secret" in caught.value.message) == ("internal", False)


async def test_a_service_may_call_what_it_may(client: MemoryStoreClient, transport: httpx.ASGITransport) -> None:
    use = m.RecordUse(tenant="t", user="u", fact_ids=[uuid4()], at=datetime.now(UTC))
    assert await code_of(client.record_use(use)) == "permission_denied"
    async with MemoryStoreClient("http://store", "other", transport=transport) as stranger:
        assert await code_of(stranger.list_facts(LIST)) == "unauthenticated"


async def test_nobody_there_is_unavailable() -> None:
    async with MemoryStoreClient("http://127.0.0.1:9", "key") as client:
        assert await code_of(client.list_facts(LIST, timeout=0.5)) == "unavailable"


@pytest.mark.parametrize(
    ("path", "content", "headers", "answer"),
    [
        ("ListFacts", b"{", {}, (400, "invalid_argument")),
        ("ListFacts", b"{}", {}, (400, "invalid_argument")),
        (
            "ListFacts",
            LIST.model_dump_json().encode(),
            {"Connect-Timeout-Ms": "12345678901"},
            (400, "invalid_argument"),
        ),
        ("ListFacts", b"{}", {"Authorization": "Bearer no"}, (401, "unauthenticated")),
        ("Nothing", b"{}", {}, (501, "unimplemented")),
    ],
)
async def test_the_wire(
    transport: httpx.ASGITransport, path: str, content: bytes, headers: dict[str, str], answer: tuple[int, str]
) -> None:
    async with httpx.AsyncClient(transport=transport, base_url=f"http://store/{m.SERVICE}/") as http:
        base = {"Authorization": "Bearer key", "Content-Type": "application/json"}
        reply = await http.post(path, content=content, headers=base | headers)
        assert (reply.status_code, reply.json()["code"]) == answer
        assert (
            await http.post("ListFacts", content=b"x", headers={**base, "Content-Type": "application/proto"})
        ).status_code == 415


class TestRemembering:
    async def test_an_answer_is_remembered_until_its_time(self, client: MemoryStoreClient, store: Store) -> None:
        now = [0.0]
        auth = RpcAuthenticator(client, ttl_s=20, clock=lambda: now[0])
        expected = Principal("t", "key:1", frozenset({"assemble"}), workspaces=frozenset())
        assert [await auth.authenticate("good", None) for _ in range(3)] == [expected] * 3
        assert store.calls == 1
        store.revoked = True
        now[0] = 21
        with pytest.raises(Problem) as caught:
            await auth.authenticate("good", None)
        assert caught.value.code == "unauthenticated"

    async def test_what_is_remembered_is_bounded(self, client: MemoryStoreClient) -> None:
        auth = RpcAuthenticator(client, max_entries=10)
        for number in range(50):
            with pytest.raises(Problem):
                await auth.authenticate(f"guess {number}", None)
        assert len(auth._known) == 10

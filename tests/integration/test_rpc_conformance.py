"""Another implementation's client against our server: the kept `connectrpc` package speaks Connect JSON over real HTTP."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from connectrpc.client import ConnectClient
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from starlette.applications import Starlette

from shared.rpc import messages as m
from shared.rpc.errors import RpcError
from shared.rpc.server import Method, rpc_route


class PydanticJson:
    """A codec for `connectrpc` that carries our messages instead of protobuf's."""

    def name(self) -> str:
        return "json"

    def encode(self, message: m.Message) -> bytes:
        return message.model_dump_json().encode()

    def decode(self, data: bytes | bytearray, message_class: type[m.Message]) -> m.Message:
        return message_class.model_validate_json(data)


async def list_facts(ask: m.ListFacts, caller: str) -> m.ListFactsReply:
    if ask.user == "nobody":
        raise RpcError("failed_precondition", "another run holds the batch")
    return m.ListFactsReply(facts=[], heading=f"{caller} {ask.user}")


@pytest.fixture
def address() -> Iterator[str]:
    methods: dict[str, Method[Any]] = {"ListFacts": Method(m.ListFacts, list_facts)}
    app = Starlette(routes=[rpc_route(methods, lambda bearer, _: bearer)])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # connections wait in the backlog until the server serves
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    listener.close()


def method(name: str) -> MethodInfo[Any, Any]:
    return MethodInfo(
        name=name,
        service_name=m.SERVICE,
        input=m.ListFacts,
        output=m.ListFactsReply,
        idempotency_level=IdempotencyLevel.UNKNOWN,
        stream_type=StreamType.UNARY,
    )


async def call(address: str, user: str, name: str = "ListFacts") -> m.ListFactsReply:
    client = ConnectClient(address, codec=PydanticJson(), send_compression=None, accept_compression=[], timeout_ms=5000)
    request = m.ListFacts(tenant="t", user=user, workspace="w")
    reply: m.ListFactsReply = await client.execute_unary(
        request=request, method=method(name), headers={"Authorization": "Bearer injection"}
    )
    return reply


async def test_a_stranger_s_client_is_answered(address: str) -> None:
    assert (await call(address, "ada")).heading == "injection ada"


async def test_a_stranger_s_client_reads_our_errors(address: str) -> None:
    with pytest.raises(ConnectError) as caught:
        await call(address, "nobody")
    assert (caught.value.code, caught.value.message) == (Code.FAILED_PRECONDITION, "another run holds the batch")
    with pytest.raises(ConnectError) as caught:
        await call(address, "ada", "Nothing")
    assert caught.value.code == Code.UNIMPLEMENTED

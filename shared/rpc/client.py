"""The client of memory-store: one typed method per RPC, with a deadline and retries where repeating is harmless."""

import asyncio
import json
import time
from types import TracebackType
from typing import Self, TypeVar

import httpx
from pydantic import ValidationError

from shared.backoff import jittered
from shared.rpc import messages as m
from shared.rpc.errors import CODES, FROM_STATUS, RpcError
from shared.telemetry.tracing import outgoing_headers

Reply = TypeVar("Reply", bound=m.Message)

RETRY_PAUSES_S = (0.05, 0.2)


class MemoryStoreClient:
    """Every method raises RpcError; `unavailable` and `deadline_exceeded` mean that nothing is known of the outcome.

    All methods of memory-store but RecordUse are idempotent, so an `unavailable` is tried again within the deadline.
    """

    def __init__(self, base_url: str, service_key: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{base_url.rstrip('/')}/{m.SERVICE}/",
            headers={
                "Authorization": f"Bearer {service_key}",
                "Content-Type": "application/json",
                "Connect-Protocol-Version": "1",
            },
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=32, keepalive_expiry=30),
            transport=transport,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def authenticate(self, request: m.Authenticate, *, timeout: float = 2.0) -> m.AuthenticateReply:
        return await self._call("Authenticate", request, m.AuthenticateReply, timeout)

    async def stage_chats(self, request: m.StageChats, *, timeout: float = 30.0) -> m.StageChatsReply:
        """Raises RpcError `invalid_argument` or `resource_exhausted` for a request that will never pass: split it."""
        return await self._call("StageChats", request, m.StageChatsReply, timeout, retry=False)

    async def claim_run(self, request: m.ClaimRun, *, timeout: float = 10.0) -> m.ClaimRunReply:
        return await self._call("ClaimRun", request, m.ClaimRunReply, timeout)

    async def renew_lease(self, request: m.RenewLease, *, timeout: float = 5.0) -> m.RenewLeaseReply:
        """Raises RpcError `failed_precondition` where another run has taken the batch."""
        return await self._call("RenewLease", request, m.RenewLeaseReply, timeout)

    async def complete_run(self, request: m.CompleteRun, *, timeout: float = 20.0) -> m.RunEnd:
        """Raises RpcError `failed_precondition` where another run has taken the batch: nothing was changed."""
        return await self._call("CompleteRun", request, m.RunEnd, timeout)

    async def fail_run(self, request: m.FailRun, *, timeout: float = 10.0) -> m.RunEnd:
        """Raises RpcError `failed_precondition` where another run has taken the batch: nothing was changed."""
        return await self._call("FailRun", request, m.RunEnd, timeout)

    async def list_facts(self, request: m.ListFacts, *, timeout: float = 1.0) -> m.ListFactsReply:
        return await self._call("ListFacts", request, m.ListFactsReply, timeout)

    async def put_vectors(self, request: m.PutVectors, *, timeout: float = 5.0) -> m.Done:
        return await self._call("PutVectors", request, m.Done, timeout)

    async def record_use(self, request: m.RecordUse, *, timeout: float = 5.0) -> m.Done:
        return await self._call("RecordUse", request, m.Done, timeout, retry=False)

    async def _call(
        self, method: str, request: m.Message, reply: type[Reply], timeout: float, *, retry: bool = True
    ) -> Reply:
        deadline = time.monotonic() + timeout
        # The models are the contract on both sides; pydantic writes the bytes once and httpx sends them as they are.
        body = request.model_dump_json(exclude_none=True, by_alias=True).encode()
        for pause in (*RETRY_PAUSES_S, None) if retry else (None,):
            left = deadline - time.monotonic()
            try:
                return await self._once(method, body, reply, max(left, 0.001))
            except RpcError as error:
                if error.code != "unavailable" or pause is None or pause >= deadline - time.monotonic():
                    raise
            await asyncio.sleep(jittered(pause))
        raise AssertionError("the last try returns or raises")

    async def _once(self, method: str, body: bytes, reply: type[Reply], timeout: float) -> Reply:
        headers = {"Connect-Timeout-Ms": str(int(timeout * 1000)), **outgoing_headers()}
        try:
            async with asyncio.timeout(timeout):
                response = await self._http.post(method, content=body, headers=headers, timeout=timeout)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise RpcError("deadline_exceeded", "memory-store did not answer in time") from None
        except httpx.HTTPError:
            raise RpcError("unavailable", "memory-store cannot be reached") from None
        if response.status_code != 200:
            raise _error_of(response)
        try:
            return reply.model_validate_json(response.content)
        except ValidationError:
            raise RpcError("internal", "memory-store answered with something else than the contract says") from None


def _error_of(response: httpx.Response) -> RpcError:
    try:
        body = json.loads(response.content)
    except ValueError:
        body = None
    if isinstance(body, dict) and body.get("code") in CODES:
        return RpcError(body["code"], str(body.get("message", "")))
    return RpcError(FROM_STATUS.get(response.status_code, "unknown"))

"""Connect protocol, unary JSON, over Starlette: the server's side."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shared.problems import place_of
from shared.rpc.errors import HTTP_STATUS, RpcError
from shared.rpc.messages import SERVICE, Message
from shared.telemetry.tracing import span
from shared.web import PlainRoute

log = structlog.get_logger()

Ask = TypeVar("Ask", bound=Message)
_TIMEOUT = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Method(Generic[Ask]):
    """One RPC: the request's type and what answers it. The handler gets the request and the calling service's name."""

    request: type[Ask]
    handle: Callable[[Ask, str], Awaitable[Message]]


Authorise = Callable[[str, str], str]
"""(bearer, method) → the calling service's name. Raises RpcError unauthenticated or permission_denied."""


class UnknownCodec(Exception):
    """The request is in another codec than JSON."""


def rpc_route(methods: Mapping[str, Method[Any]], authorise: Authorise) -> Route:
    async def endpoint(request: Request) -> Response:
        name = request.path_params["method"]
        method = methods.get(name)
        with span(f"{SERVICE}/{name if method else 'unknown'}") as current:
            try:
                reply = await _answer(request, name, method, authorise)
            except RpcError as error:
                current.set_attribute("error.type", error.code)
                return _error(error)
            except UnknownCodec:
                return Response(status_code=415, headers={"Accept-Post": "application/json"})
            except Exception as error:
                log.error("rpc_handler_failed", method=name, exc_info=error)
                return _error(RpcError("internal", "the error was logged"))
        return Response(reply.model_dump_json(exclude_none=True, by_alias=True), media_type="application/json")

    return PlainRoute(f"/{SERVICE}/{{method}}", endpoint, methods=["POST"])


async def _answer(request: Request, name: str, method: Method[Any] | None, authorise: Authorise) -> Message:
    if method is None:
        raise RpcError("unimplemented", "no such method")
    bearer = request.headers.get("authorization", "")
    caller = authorise(bearer.removeprefix("Bearer "), name)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise UnknownCodec
    body = await request.body()
    try:
        ask = method.request.model_validate_json(body)
    except ValidationError as error:
        places = sorted({place_of(issue) for issue in error.errors(include_input=False)})
        raise RpcError("invalid_argument", ", ".join(places)[:300]) from None
    # What is logged on the way says for which run.
    run_id = getattr(ask, "run_id", None)
    try:
        with structlog.contextvars.bound_contextvars(**({"run_id": str(run_id)} if run_id else {})):
            async with asyncio.timeout(_deadline(request)):
                return await method.handle(ask, caller)
    except TimeoutError:
        raise RpcError("deadline_exceeded") from None


def _deadline(request: Request) -> float | None:
    value = request.headers.get("connect-timeout-ms")
    if value is None:
        return None
    if not _TIMEOUT.fullmatch(value):
        raise RpcError("invalid_argument", "Connect-Timeout-Ms")
    return int(value) / 1000


def _error(error: RpcError) -> Response:
    return JSONResponse({"code": error.code, "message": error.message}, status_code=HTTP_STATUS[error.code])

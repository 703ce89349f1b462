"""What every service's HTTP side has: limits on bodies, problems, probes, metrics, and a start that fails clearly."""

import asyncio
import errno
import gc
import json
import re
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager

import structlog
import uvicorn
from fastapi import APIRouter, FastAPI
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared import problems
from shared.loops import Loops
from shared.problems import Problem
from shared.settings import ServiceSettings, fail, variable
from shared.telemetry.logs import configure_logs
from shared.telemetry.metrics import HTTP_REQUESTS, HTTP_SECONDS, begin, exposition
from shared.telemetry.tracing import configure_tracing, incoming_context, span

log = structlog.get_logger()

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_RPC_BODY_BYTES = 64 * 1024 * 1024
LARGE_BODY_BYTES = 64 * 1024
BODY_TIMEOUT_S = 10.0
MAX_JSON_DEPTH = 32

NotReady = Callable[[], Awaitable[str | None]]
"""Says why a service is not ready, in a word, or None."""


def create_app(
    title: str,
    *,
    routers: Sequence[APIRouter],
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    loops: Loops,
    not_ready: NotReady,
    cors_origins: Sequence[str] = (),
    routes: Sequence[BaseRoute] = (),
    strict_paths: Collection[str] = (),
) -> FastAPI:
    """An app with the routers' routes, `/healthz`, `/readyz`, `/metrics` and `/openapi.json`. `routes` are plain ones (RPC).

    Routes of `strict_paths` check depth and surrogates of their JSON themselves, in the one pass that parses it.
    """
    # No documentation pages: theirs load scripts from elsewhere.
    app = FastAPI(
        title=title,
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=problems.DOCUMENTED,
        # FastAPI's own would put raw paths, queries and validation errors on spans; `Observed` makes ours.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    problems.install(app)
    for router in routers:
        app.include_router(router)
    app.router.routes.extend(routes)

    async def healthz(_: Request) -> Response:
        stalled = loops.stalled()
        return JSONResponse({"status": "stalled" if stalled else "ok", "stalled": stalled}, 503 if stalled else 200)

    async def readyz(_: Request) -> Response:
        reason = await not_ready()
        return JSONResponse({"status": "ok" if reason is None else reason}, 503 if reason else 200)

    async def metrics(_: Request) -> Response:
        return Response(exposition(), media_type=CONTENT_TYPE_LATEST)

    app.router.routes.extend(
        [PlainRoute("/healthz", healthz), PlainRoute("/readyz", readyz), PlainRoute("/metrics", metrics)]
    )
    app.add_middleware(BodyLimits, strict_paths=strict_paths)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "If-Match", "Idempotency-Key", "Keepsake-Tenant"],
            expose_headers=["ETag", "Retry-After"],
        )
    app.add_middleware(Observed)
    return app


class PlainRoute(Route):
    """Starlette's route, which under FastAPI's router does not say that it was taken, as FastAPI's own do."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, found if match is Match.NONE else {**found, "route": self}


class Observed:
    """A span, a count and a time per request, under the route's template."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        context = incoming_context(Headers(scope=scope).get("traceparent"))
        with span("http", context=context, kind=SpanKind.SERVER) as current:
            try:
                await self._app(scope, receive, counted)
            finally:
                route = scope.get("route")
                template = getattr(route, "path", "unmatched")
                method = scope["method"] if scope["method"] in _METHODS else "other"
                current.update_name(f"{method} {template}")
                current.set_attribute("http.response.status_code", status)
                if status >= 500:
                    current.set_status(StatusCode.ERROR)
                HTTP_REQUESTS.labels(template, method, str(status)).inc()
                HTTP_SECONDS.labels(template).observe(time.perf_counter() - started)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class BodyLimits:
    """Reads a body whole, within size, depth and time, before the app sees the request.

    A body is at most 4 MiB (an RPC's 64 MiB: a poll of a thousand chats), counted while it is read; it comes without
    Content-Encoding, within 10 s, and its JSON is at most 32 deep.
    """

    def __init__(self, app: ASGIApp, strict_paths: Collection[str] = ()) -> None:
        self._app = app
        self._strict_paths = strict_paths
        self._one_large = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        rpc = scope["path"].startswith("/keepsake.")
        try:
            if Headers(scope=scope).get("content-encoding", "identity").lower() != "identity":
                raise Problem("unsupported_encoding", "requests come without Content-Encoding")
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await _read(receive, MAX_RPC_BODY_BYTES if rpc else MAX_BODY_BYTES)
            if not rpc and body and scope["path"] not in self._strict_paths:
                await self._check(body)
        except TimeoutError:
            await Problem("timeout", "the body did not come in time").response()(scope, receive, send)
            return
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        if body is None:
            return
        await self._app(scope, _replay(body, receive), send)

    async def _check(self, body: bytes) -> None:
        if len(body) < LARGE_BODY_BYTES:
            _check_json(body)
            return
        # One in each round of the event loop, so that many at once leave room for small requests.
        async with self._one_large:
            _check_json(body)
            await asyncio.sleep(0)


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The body, or None where the client has gone. Raises Problem too_large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise Problem("too_large", f"a body is at most {limit} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _check_json(body: bytes) -> None:
    """Refuses what would pass a parser and fail later. Raises Problem invalid."""
    if deeper_than(body, MAX_JSON_DEPTH):
        raise Problem("invalid", f"JSON is at most {MAX_JSON_DEPTH} deep")
    if _SURROGATE.search(body):
        try:
            json.dumps(json.loads(body), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Problem("invalid", "text holds a lone surrogate") from None
        except ValueError:
            raise Problem("invalid", "the body is no JSON") from None


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def deeper_than(body: bytes, depth: int) -> bool:
    """Whether brackets outside strings nest deeper than `depth`. Linear: each round takes the innermost pairs away.

    What is no JSON may count as too deep; its parser would refuse it anyway.
    """
    if body.count(b"[") + body.count(b"{") <= depth:
        return False
    outside = b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    brackets = outside.translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(depth):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def serve(app: FastAPI, settings: ServiceSettings) -> None:
    """Runs until SIGTERM or SIGINT. A port in use ends the start with one line and exit code 2."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, int(settings.shutdown_grace_s)),
        backlog=2048,
    )
    _spare_the_collector()
    uvicorn.Server(config).run(sockets=[_listen(settings)])


def _spare_the_collector() -> None:
    """What was imported stays for good: no collection looks at it again, and one comes at every ten thousandth object, not the 700th.

    Measured in memory-store: collections took 5 to 10 of 33 ms while it reads a thousand chats; a full one holds all up for 40 to 50 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _listen(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else "cannot be listened on"
        fail(f"port {settings.port} on {settings.host} {why}: set {variable('port')} to another")
    return listener


def configure(service: str, settings: ServiceSettings) -> None:
    """Logs, traces and build information, before anything else of a service."""
    configure_logs(service, level=settings.log_level, log_format=settings.log_format)
    configure_tracing(service)
    begin(service)

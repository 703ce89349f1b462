"""What cannot be saved: a bare HTTP echo and a bare RPC echo, in a process of their own under the services' own server settings."""

import socket
import sys
from pathlib import Path
from typing import cast

from fastapi import FastAPI
from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deploy.local.paths import ROOT
from deploy.local.processes import Child, Server, start
from shared.rpc import messages as m
from shared.rpc.server import Method, rpc_route
from shared.settings import ServiceSettings, load
from shared.web import serve
from tests.support.ports import free_port

NAME = "tests.bench.echo"


class EchoSettings(ServiceSettings):
    port: int = Field(0, description="Port to listen on.")


class Echo(Server):
    name = "echo"

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "echo.log"

    def _launch(self) -> Child:
        return start(
            self.name, [sys.executable, "-m", NAME], env={"KEEPSAKE_PORT": str(self.port)}, log=self._log, cwd=ROOT
        )

    def _ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


async def _echo(request: Request) -> Response:
    return JSONResponse(await request.json())


async def _bytes(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


async def _done(_: m.RecordUse, __: str) -> m.Done:
    return m.Done()


def app() -> Starlette:
    """`POST /echo` answers the JSON it got, `POST /bytes` the bytes; RecordUse does nothing."""
    rpc = rpc_route({"RecordUse": Method(m.RecordUse, _done)}, lambda _bearer, _method: "bench")
    return Starlette(routes=[Route("/echo", _echo, methods=["POST"]), Route("/bytes", _bytes, methods=["POST"]), rpc])


if __name__ == "__main__":
    # serve takes any ASGI app; its type names the services' own.
    serve(cast(FastAPI, app()), load(EchoSettings, NAME))

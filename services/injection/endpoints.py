import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.responses import Response

from services.injection.assembling.schemas import AssembleReply, AssembleRequest, SearchReply, SearchRequest
from services.injection.assembling.service import Assembler
from services.injection.searching import Search
from shared.auth import Principal, Requires
from shared.web import LARGE_BODY_BYTES


class _QuickJson(Request):
    """Reads JSON with pydantic's parser: 0.2 ms for a message of 1 MB, where json.loads takes 2."""

    async def json(self) -> Any:
        body = await self.body()
        try:
            return from_json(body)
        except ValueError as error:
            raise json.JSONDecodeError(type(error).__name__, "", 0) from None


class _QuickRoute(APIRoute):
    """Large requests go through two at a time: fifty of 1 MB at once then leave the event loop to a small one every few ms."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        large = asyncio.Semaphore(2)

        async def quick(request: Request) -> Response:
            quick_request = _QuickJson(request.scope, request.receive)
            if len(await quick_request.body()) < LARGE_BODY_BYTES:
                return await handle(quick_request)
            async with large:
                return await handle(quick_request)

        return quick


router = APIRouter(route_class=_QuickRoute)


async def _now() -> float:
    return asyncio.get_running_loop().time()


@router.post("/v1/assemble", summary="The system prompt with the facts that matter now")
async def assemble(
    request: Request,
    ask: AssembleRequest,
    started: Annotated[float, Depends(_now)],  # before the credential is checked: that counts too
    who: Annotated[Principal, Requires("assemble")],
) -> AssembleReply:
    """Answers also while the ranker or memory-store is away: `degraded` says what was missing."""
    assembler: Assembler = request.app.state.assembler
    return await assembler.assemble(ask, who, started=started)


@router.post("/v1/facts/search", summary="A user's active facts, best first, for agents")
async def search(
    request: Request, ask: SearchRequest, who: Annotated[Principal, Requires("facts:read")]
) -> SearchReply:
    searching: Search = request.app.state.search
    return await searching.search(ask, who)

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from services.injection.assembling.schemas import AssembleReply, AssembleRequest, SearchReply, SearchRequest
from services.injection.assembling.service import Assembler
from services.injection.searching import Search
from shared.auth import Principal, Requires

router = APIRouter()


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

"""Routes of what waits, runs and dead letters."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request

from services.memory_store.cursors import PageCursor, PageSize
from services.memory_store.runs.overview import Overview
from services.memory_store.runs.schemas import AskForRun, DeadChatList, Pending, Run, RunList
from shared.auth import Principal, Requires
from shared.ids import DEFAULT_WORKSPACE, Id
from shared.rpc.messages import RunOutcome

router = APIRouter(tags=["runs"])


def _overview(request: Request) -> Overview:
    overview: Overview = request.app.state.overview
    return overview


Service = Annotated[Overview, Depends(_overview)]
Own = Annotated[Principal, Requires("admin", "own")]
MaybeId = Annotated[Id | None, Query()]


@router.get("/v1/pending", summary="Chats that wait to be read, and why they wait")
async def pending(
    overview: Service,
    who: Annotated[Principal, Requires("facts:read")],
    user: Annotated[Id, Query()],
    workspace: Annotated[Id, Query()] = DEFAULT_WORKSPACE,
) -> Pending:
    return await overview.pending(who, user, workspace)


@router.post("/v1/runs", status_code=202, summary="Make what waits due now")
async def ask_for_run(
    overview: Service, who: Annotated[Principal, Requires("facts:write")], wanted: AskForRun
) -> Pending:
    return await overview.ask_for_run(who, wanted.user, wanted.workspace)


@router.get("/v1/runs", summary="Runs, newest first")
async def runs(
    *,
    overview: Service,
    who: Own,
    user: MaybeId = None,
    workspace: MaybeId = None,
    outcome: Annotated[RunOutcome | None, Query()] = None,
    limit: PageSize = 50,
    cursor: PageCursor = None,
) -> RunList:
    return await overview.runs(who, user, workspace, outcome=outcome, cursor=cursor, limit=limit)


@router.get("/v1/runs/{run_id}", summary="One run with its candidates, decisions and what became of them")
async def run(overview: Service, who: Own, run_id: UUID) -> Run:
    return await overview.run(who, run_id)


@router.post("/v1/runs/{run_id}/retry", status_code=202, summary="Make the chats that this run gave up pending again")
async def retry(overview: Service, who: Own, run_id: UUID) -> Pending:
    return await overview.retry(who, run_id)


@router.get("/v1/dead-letters", summary="Chats that were given up, newest first")
async def dead_letters(
    *,
    overview: Service,
    who: Own,
    user: MaybeId = None,
    workspace: MaybeId = None,
    limit: PageSize = 50,
    cursor: PageCursor = None,
) -> DeadChatList:
    return await overview.dead_chats(who, user, workspace, cursor=cursor, limit=limit)

"""Routes of facts."""

import re
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from services.memory_store.cursors import PageCursor, PageSize
from services.memory_store.facts.reading import Views
from services.memory_store.facts.schemas import (
    CreateFact,
    Demote,
    EditFact,
    Fact,
    FactHistory,
    FactList,
    Filters,
    Restore,
    Slot,
)
from services.memory_store.facts.service import Facts
from shared.auth import Principal, Requires
from shared.problems import Problem

router = APIRouter(tags=["facts"])


def _facts(request: Request) -> Facts:
    facts: Facts = request.app.state.facts
    return facts


def _views(request: Request) -> Views:
    views: Views = request.app.state.views
    return views


def _if_match(header: Annotated[str | None, Header(alias="If-Match", max_length=400)] = None) -> list[int] | None:
    """Versions that the caller has seen; None: any. A weak or foreign tag matches nothing."""
    if header is None or header.strip() == "*":
        return None
    tags = [tag.strip() for tag in header.split(",")]
    if not all(re.fullmatch(r'(?:W/)?"[^"]*"', tag) for tag in tags):
        raise Problem("invalid", 'If-Match: the version in quotes, as in "3"')
    return [int(tag[1:-1]) for tag in tags if re.fullmatch(r'"[0-9]{1,9}"', tag)]


def _tagged(response: Response, fact: Fact) -> Fact:
    response.headers["ETag"] = f'"{fact.version}"'
    return fact


Reading = Annotated[Views, Depends(_views)]
Writing = Annotated[Facts, Depends(_facts)]
Reader = Annotated[Principal, Requires("facts:read")]
Writer = Annotated[Principal, Requires("facts:write")]
IfMatch = Annotated[list[int] | None, Depends(_if_match)]


@router.get("/v1/facts", summary="A user's global facts, and a workspace's")
async def list_facts(views: Reading, who: Reader, filters: Annotated[Filters, Query()]) -> FactList:
    return await views.page(who, filters)


@router.post("/v1/facts", status_code=201, summary="Remember a fact")
async def create(facts: Writing, who: Writer, wanted: CreateFact, response: Response) -> Fact:
    fact = await facts.create(who, wanted)
    response.headers["Location"] = f"/v1/facts/{fact.id}"
    return _tagged(response, fact)


@router.get("/v1/facts/{fact_id}", summary="One fact with its evidence")
async def one(views: Reading, who: Reader, fact_id: UUID, response: Response) -> Fact:
    return _tagged(response, await views.one(who, fact_id))


@router.patch("/v1/facts/{fact_id}", summary="Word it anew, lock or unlock it")
async def edit(
    *, facts: Writing, who: Writer, fact_id: UUID, wanted: EditFact, expected: IfMatch, response: Response
) -> Fact:
    return _tagged(response, await facts.edit(who, fact_id, wanted, expected))


@router.delete("/v1/facts/{fact_id}", status_code=204, summary="Delete it; it can be restored")
async def delete(facts: Writing, who: Writer, fact_id: UUID, expected: IfMatch) -> None:
    await facts.delete(who, fact_id, expected)


@router.post("/v1/facts/{fact_id}/promote", summary="Make a workspace's fact global")
async def promote(facts: Writing, who: Writer, fact_id: UUID, response: Response, wanted: Slot | None = None) -> Fact:
    return _tagged(response, await facts.move(who, fact_id, None, wanted.replace if wanted else None))


@router.post("/v1/facts/{fact_id}/demote", summary="Move a global fact into a workspace")
async def demote(facts: Writing, who: Writer, fact_id: UUID, response: Response, wanted: Demote) -> Fact:
    return _tagged(response, await facts.move(who, fact_id, wanted.workspace, wanted.replace))


@router.post("/v1/facts/{fact_id}/restore", summary="Bring back what was put away, or an older version")
async def restore(
    facts: Writing, who: Writer, fact_id: UUID, response: Response, wanted: Restore | None = None
) -> Fact:
    return _tagged(response, await facts.restore(who, fact_id, wanted or Restore()))


@router.post("/v1/facts/{fact_id}/approve", summary="Make a pending fact active")
async def approve(facts: Writing, who: Writer, fact_id: UUID, response: Response, wanted: Slot | None = None) -> Fact:
    return _tagged(response, await facts.approve(who, fact_id, wanted.replace if wanted else None))


@router.post("/v1/facts/{fact_id}/reject", summary="Refuse a pending fact for good")
async def reject(facts: Writing, who: Writer, fact_id: UUID, response: Response) -> Fact:
    return _tagged(response, await facts.reject(who, fact_id))


@router.get("/v1/facts/{fact_id}/history", summary="Its versions, oldest first")
async def history(
    views: Reading, who: Reader, fact_id: UUID, limit: PageSize = 100, cursor: PageCursor = None
) -> FactHistory:
    return await views.history(who, fact_id, cursor, limit)

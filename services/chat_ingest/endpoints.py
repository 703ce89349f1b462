"""The routes of chat-ingest."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer, SecurityScopes
from pydantic_core import to_json
from starlette.responses import Response

from services.chat_ingest.publisher import (
    Publisher,
    chat_records,
    name_chats,
    request_record,
)
from services.chat_ingest.schemas import CHATS_SCHEMA, Accepted, BadChats, Chat, Deletion, Reset, read_chats
from shared.auth import Principal, Requires, authenticated
from shared.ids import DEFAULT_WORKSPACE, MAX_ID_LENGTH
from shared.problems import Problem
from shared.telemetry.metrics import INGEST_CHATS

CHATS = "/v1/chats"
WRITE = "chats:write"
Writer = Annotated[Principal, Requires(WRITE)]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=MAX_ID_LENGTH)]

_bearer = HTTPBearer(auto_error=False)


class LeanRoute(APIRoute):
    """Documents `post_chats` like any route and resolves its parameters by hand: FastAPI's way costs as much as reading fifty chats."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handle(request: Request) -> Response:
            who = await authenticated(request, SecurityScopes([WRITE]), await _bearer(request))
            key = request.headers.get("idempotency-key")
            if key is not None and not 1 <= len(key) <= MAX_ID_LENGTH:
                raise Problem("invalid", f"an Idempotency-Key has 1 to {MAX_ID_LENGTH} characters")
            return await post_chats(request, who, key)

        return handle


router = APIRouter()
lean = APIRouter(route_class=LeanRoute)


@lean.post(CHATS, status_code=202, response_model=Accepted, openapi_extra={"requestBody": CHATS_SCHEMA})
async def post_chats(request: Request, who: Writer, idempotency_key: IdempotencyKey = None) -> Response:
    """Takes one finished chat or a list of up to 500; answers once Kafka has all of them.

    A list with one bad chat is refused whole. Sent again with the same event ids, or the same Idempotency-Key, each chat counts once.
    """
    try:
        chats = read_chats(await request.body())
        _check_owner(who, chats)
        event_ids = name_chats(who.tenant, chats, idempotency_key)
        records = chat_records(who.tenant, chats, event_ids)
    except BadChats:
        INGEST_CHATS.labels("refused").inc()
        raise
    await _publisher(request).publish(records, event_ids)
    return _accepted(event_ids)


@router.post("/v1/chats/reset", status_code=202, response_model=Accepted)
async def post_reset(request: Request, who: Writer, reset: Reset) -> Response:
    """Chats of this user and workspace (and thread, if given) that came before and are unread are never read."""
    who.check_user(reset.user)
    who.check_workspace(reset.workspace)
    event_id, record = request_record(who.tenant, "chat.reset", reset, reset.user, reset.workspace)
    await _publisher(request).publish([record], [event_id])
    return _accepted([event_id])


@router.post("/v1/chats/delete", status_code=202, response_model=Accepted)
async def post_delete(request: Request, who: Writer, deletion: Deletion) -> Response:
    """These chats leave, unread or as evidence; a fact that was learned from them alone goes too."""
    who.check_user(deletion.user)
    who.check_workspace(deletion.workspace)
    event_id, record = request_record(who.tenant, "chat.deleted", deletion, deletion.user, deletion.workspace)
    await _publisher(request).publish([record], [event_id])
    return _accepted([event_id])


def _check_owner(who: Principal, chats: list[Chat]) -> None:
    if who.user is None and who.workspaces is None:
        return
    for chat in chats:
        who.check_user(chat["user"])
        who.check_workspace(chat.get("workspace", DEFAULT_WORKSPACE))


def _publisher(request: Request) -> Publisher:
    publisher: Publisher = request.app.state.publisher
    return publisher


def _accepted(event_ids: list[str]) -> Response:
    return Response(to_json({"accepted": event_ids}), status_code=202, media_type="application/json")

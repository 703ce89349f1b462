"""What applications post, read strictly and in one pass: a list is judged whole before any of it is published."""

import re
from typing import Annotated, Any, NotRequired

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from shared.events import MAX_DELETED_IDS, Metadata, Text, Time, User, Zone
from shared.ids import DEFAULT_WORKSPACE, Id
from shared.problems import Problem

MAX_CHATS = 500


class Chat(TypedDict):
    """One finished chat. Without `event_id` one is made; without `occurred_at` the time is when Kafka got it."""

    # A dict, not a model: validated chats are written to JSON again at once, and a list of fifty has to cost little.
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    event_id: NotRequired[Id | None]
    user: User
    workspace: NotRequired[Id]
    thread: NotRequired[Id | None]
    prompt: Text
    response: Text
    occurred_at: NotRequired[Time | None]
    timezone: NotRequired[Zone | None]
    metadata: NotRequired[Metadata | None]


class Reset(BaseModel):
    """What was said before and is still unread is never read, in one thread or in all."""

    model_config = ConfigDict(extra="forbid")

    user: Id
    workspace: Id = DEFAULT_WORKSPACE
    thread: Id | None = None


class Deletion(BaseModel):
    """These chats leave, unread or as evidence."""

    model_config = ConfigDict(extra="forbid")

    user: Id
    workspace: Id = DEFAULT_WORKSPACE
    event_ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_DELETED_IDS)]


class Accepted(BaseModel):
    """The ids of what Kafka now has, in the order posted."""

    accepted: list[str]


_CHATS: TypeAdapter[list[Chat]] = TypeAdapter(Annotated[list[Chat], Field(min_length=1, max_length=MAX_CHATS)])
_CHAT: TypeAdapter[Chat] = TypeAdapter(Chat)
_IS_LIST = re.compile(rb"[ \t\r\n]*\[")

CHATS_SCHEMA: dict[str, Any] = {
    "required": True,
    "content": {"application/json": {"schema": {"anyOf": [_CHAT.json_schema(), _CHATS.json_schema()]}}},
}


class BadChats(Problem):
    """`errors` name index, field and rule; never what was sent."""

    def __init__(self, errors: list[dict[str, object]], detail: str = "nothing was published") -> None:
        super().__init__("invalid", detail, errors=errors)


def read_chats(body: bytes) -> list[Chat]:
    """Raises BadChats where any chat does not fit the contract."""
    try:
        return _CHATS.validate_json(body) if _IS_LIST.match(body) else [_CHAT.validate_json(body)]
    except ValidationError as error:
        issues = error.errors(include_input=False, include_url=False, include_context=False)
    if issues[0]["type"] == "json_invalid":
        raise BadChats([], "the body is no JSON")
    if issues[0]["type"] in ("too_long", "too_short") and issues[0]["loc"] == ():
        raise BadChats([], f"a list has 1 to {MAX_CHATS} chats")
    first: dict[int, dict[str, object]] = {}
    for issue in issues:
        index, *place = issue["loc"] if _IS_LIST.match(body) else (0, *issue["loc"])
        first.setdefault(int(index), _error(int(index), place, issue["type"]))
    raise BadChats(list(first.values()))


def _error(index: int, place: list[Any], kind: str) -> dict[str, object]:
    code = {"missing": "missing", "extra_forbidden": "unknown_field"}.get(kind, "invalid")
    # The name of an unknown field is the sender's text.
    field = place[0] if place and place[0] in Chat.__annotations__ else None
    return {"index": index, "field": field, "code": code} if field else {"index": index, "code": code}

"""What stands on Kafka: chat events, dead letters, memory changes, and the one strict reader of a chat event's bytes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NoReturn
from zoneinfo import available_timezones

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from shared.ids import DEFAULT_TENANT, DEFAULT_WORKSPACE, Id, IdOrEmpty

_fast_json: Callable[..., Any] | None
try:
    # The parser inside pydantic, which alone can also refuse a doubled field: a fifth of the cost of json with a hook.
    from jiter import from_json as _fast_json
except ImportError:  # it comes with the model library; elsewhere the slow reading below does the same
    _fast_json = None

MAX_EVENT_BYTES = 256 * 1024
MAX_METADATA_BYTES = 4096
MAX_JSON_DEPTH = 32
MAX_DELETED_IDS = 500
MAX_DEAD_LETTER_BYTES = 64 * 1024
# A millisecond since the epoch that Kafka, Postgres and datetime all hold, in every zone.
EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)

# Headers of a replayed dead letter: its first position, which barriers go by.
ORIGINAL_TIMESTAMP = "keepsake-original-timestamp"
ORIGINAL_PARTITION = "keepsake-original-partition"
ORIGINAL_OFFSET = "keepsake-original-offset"

DeadReason = Literal[
    "not_json", "invalid", "unknown_type", "unknown_tenant", "too_large", "too_old", "event_id_conflict"
]
ChangeType = Literal[
    "fact.created",
    "fact.updated",
    "fact.superseded",
    "fact.retired",
    "fact.deleted",
    "fact.restored",
    "fact.approved",
    "fact.rejected",
    "fact.erased",
    "user.erased",
    "workspace.erased",
]

_ZONES = frozenset(available_timezones())


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("text holds no NUL")
    return value


def _zone(value: str) -> str:
    if value not in _ZONES:
        raise ValueError("unknown time zone")
    return value


def _rfc3339(value: object) -> object:
    """Only an RFC 3339 string with an offset: pydantic alone would take numbers and naive times."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or len(value) < 20 or value[10] not in "Tt ":
        raise ValueError("a time is an RFC 3339 string with an offset")
    return value


def _in_range(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time has an offset")
    try:
        # Far from the ends no zone matters, and a comparison across zones is the dearest check of a record.
        ok = EARLIEST.year < value.year < LATEST.year or EARLIEST <= value <= LATEST
    except OverflowError:
        ok = False
    if not ok:
        raise ValueError("a time lies between 1970 and 9999")
    return value


def _metadata_size(value: dict[str, Any]) -> dict[str, Any]:
    if len(to_json(value)) > MAX_METADATA_BYTES:
        raise ValueError("metadata is at most 4 KiB")
    return value


Text = Annotated[str, AfterValidator(_text)]
User = IdOrEmpty | None
Zone = Annotated[str, AfterValidator(_zone)]
Time = Annotated[datetime, BeforeValidator(_rfc3339), AfterValidator(_in_range)]
Metadata = Annotated[dict[str, Any], AfterValidator(_metadata_size)]


class _Event(BaseModel):
    model_config = ConfigDict(strict=False, extra="ignore", frozen=True)

    event_id: Id
    tenant: Id = DEFAULT_TENANT
    workspace: Id = DEFAULT_WORKSPACE
    occurred_at: Time | None = None


class ChatCompleted(_Event):
    """One finished exchange: what the user said and what the assistant answered."""

    type: Literal["chat.completed"] = "chat.completed"
    # Null, "" and the stand-ins are anonymous.
    user: User
    thread: Id | None = None
    prompt: Text
    response: Text
    timezone: Zone | None = None
    # Checked for size, never stored and never read as an identity.
    metadata: Metadata | None = None


class ChatReset(_Event):
    """Pending chats of this user, workspace (and thread, if given) before this event's position are never read."""

    type: Literal["chat.reset"] = "chat.reset"
    user: Id
    thread: Id | None = None


class ChatDeleted(_Event):
    """Those chats leave, pending or as evidence; one that arrives later is dropped."""

    type: Literal["chat.deleted"] = "chat.deleted"
    user: Id
    event_ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_DELETED_IDS)]


ChatEvent = Annotated[ChatCompleted | ChatReset | ChatDeleted, Field(discriminator="type")]
_EVENT: TypeAdapter[ChatCompleted | ChatReset | ChatDeleted] = TypeAdapter(ChatEvent)
_KNOWN_FIELDS = {
    "chat.completed": frozenset(ChatCompleted.model_fields),
    "chat.reset": frozenset(ChatReset.model_fields),
    "chat.deleted": frozenset(ChatDeleted.model_fields),
}


class DeadLetter(BaseModel):
    """A record that can never be staged, with where it stood. `value_base64` holds the first 64 KiB; a cut one cannot be replayed."""

    topic: str
    partition: int
    offset: int
    timestamp: int = Field(description="milliseconds since the epoch, the broker's append time")
    reason: DeadReason
    detail: str
    size: int
    sha256: str
    value_base64: str


class MemoryChange(BaseModel):
    """One change of a person's memory. It never holds text: who wants the fact asks for it by id."""

    change_id: str
    type: ChangeType
    tenant: Id
    user: Id
    workspace: Id | None
    fact_id: str | None
    version: int | None
    at: datetime


class BadRecord(Exception):
    """A record that can never be staged. `detail` names fields and rules, never values."""

    def __init__(self, reason: DeadReason, detail: str) -> None:
        super().__init__(reason)
        self.reason: DeadReason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Decoded:
    event: ChatCompleted | ChatReset | ChatDeleted
    unknown_fields: int


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadRecord("invalid", "a field stands twice")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise BadRecord("not_json", f"{name} is not JSON")


def parse_json(value: bytes) -> Any:
    """Strict JSON: UTF-8, no NaN, no doubled field, no lone surrogate, at most 32 deep. Raises BadRecord."""
    if _fast_json is None:
        return _parse_slowly(value)
    try:
        parsed = _fast_json(value, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return _parse_slowly(value)
    # Below 33 brackets nothing is nested deeper than 32: the walk is for the rest.
    if value.count(b"[") + value.count(b"{") > MAX_JSON_DEPTH:
        _check_tree(parsed)
    return parsed


def _parse_slowly(value: bytes) -> Any:
    """The same rules with the standard library, which tells what was wrong."""
    try:
        parsed = json.loads(value.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise BadRecord("invalid", "nested too deep") from None
    except ValueError:  # UnicodeDecodeError, JSONDecodeError, and an integer of too many digits
        raise BadRecord("not_json", "the value is no UTF-8 JSON") from None
    _check_tree(parsed)
    return parsed


def _check_tree(parsed: Any) -> None:
    level = [parsed]
    for _ in range(MAX_JSON_DEPTH + 1):
        if not level:
            return
        children: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                children += node.keys()
                children += node.values()
            elif isinstance(node, list):
                children += node
            elif isinstance(node, str):
                try:
                    node.encode()
                except UnicodeEncodeError:
                    raise BadRecord("invalid", "text holds a lone surrogate") from None
        level = children
    raise BadRecord("invalid", "nested too deep")


def decode_event(value: bytes | None) -> Decoded:
    """Reads one record of `chat.events`. Raises BadRecord with the dead letter's reason."""
    if not value:
        raise BadRecord("not_json", "the value is empty")
    if len(value) > MAX_EVENT_BYTES:
        raise BadRecord("too_large", "the value is above 256 KiB")
    fields = parse_json(value)
    if not isinstance(fields, dict):
        raise BadRecord("invalid", "the value is no object")
    known = _KNOWN_FIELDS.get(kind) if isinstance(kind := fields.get("type"), str) else None
    if known is None:
        raise BadRecord("unknown_type" if isinstance(kind, str) else "invalid", "type")
    try:
        event = _EVENT.validate_python(fields)
    except ValidationError as error:
        # Rebuilt from names alone: pydantic's own text quotes the input.
        places = {
            ".".join(str(part) for part in issue["loc"][1:2] or issue["loc"][:1])
            for issue in error.errors(include_input=False, include_url=False)
        }
        raise BadRecord("invalid", ", ".join(sorted(places))[:200]) from None
    return Decoded(event, len(fields.keys() - known))

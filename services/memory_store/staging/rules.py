"""What is decided about a record without asking the database. No I/O."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from shared.events import ChatCompleted
from shared.ids import is_anonymous
from shared.rpc.messages import StageRecord, Verdict
from shared.text.secrets import redact

STAGED = Verdict(status="staged")
TOO_OLD = Verdict(status="rejected", reason="too_old")
UNKNOWN_TENANT = Verdict(status="rejected", reason="unknown_tenant")
ANONYMOUS = Verdict(status="dropped", reason="anonymous")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_370_764_800_000  # 9999-01-01
_INT4, _INT8 = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Position:
    """Where a record stands: the broker's append time, then its offset."""

    recorded_at: datetime
    offset: int
    partition: int


def position(record: StageRecord) -> Position:
    """Brought into what Postgres holds: a position is the caller's word and must never refuse a whole poll."""
    ms = min(max(record.timestamp_ms, 0), _LAST_MS)
    return Position(
        _EPOCH + timedelta(milliseconds=ms),
        min(max(record.offset, 0), _INT8),
        min(max(record.partition, 0), _INT4),
    )


def at_once(record: StageRecord, place: Position, *, oldest: datetime, stand_ins: Collection[str]) -> Verdict | None:
    """The verdict that needs no database, if there is one."""
    if is_anonymous(record.event.user, stand_ins):
        return ANONYMOUS
    return TOO_OLD if place.recorded_at < oldest else None


def digest(chat: ChatCompleted) -> bytes:
    """Tells another content under the same id. Of the text as it came: what counts as a secret may change between releases."""
    return sha256("\0".join((chat.workspace, chat.thread or "", chat.prompt, chat.response)).encode()).digest()


def repeat_key(chat: ChatCompleted) -> bytes | None:
    """Tells the same chat under another id, as a fork or a retry makes it; only a given time can say so."""
    if chat.occurred_at is None:
        return None
    at = chat.occurred_at.astimezone(UTC).isoformat()
    return sha256("\0".join((chat.workspace, chat.prompt, chat.response, at)).encode()).digest()


def without_secrets(text: str, kinds: dict[str, int]) -> str:
    """What may be stored; counts what was replaced."""
    redacted = redact(text.replace("\0", ""))
    for kind, count in redacted.kinds.items():
        kinds[kind] = kinds.get(kind, 0) + count
    return redacted.text

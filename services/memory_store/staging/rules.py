"""What is decided about a record without asking the database. No I/O."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

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


class Position(NamedTuple):
    """Where a record stands: the broker's append time, then its offset."""

    recorded_at: datetime
    offset: int
    partition: int


def position(record: StageRecord) -> Position:
    """Brought into what Postgres holds: a position is the caller's word and must never refuse a whole poll."""
    return Position(
        _moment(min(max(record.timestamp_ms, 0), _LAST_MS)),
        min(max(record.offset, 0), _INT8),
        min(max(record.partition, 0), _INT4),
    )


@lru_cache(maxsize=4096)
def _moment(ms: int) -> datetime:
    """A poll's records share few append times."""
    return _EPOCH + timedelta(milliseconds=ms)


def at_once(record: StageRecord, place: Position, *, oldest: datetime, stand_ins: Collection[str]) -> Verdict | None:
    """The verdict that needs no database, if there is one."""
    if is_anonymous(record.event.user, stand_ins):
        return ANONYMOUS
    return TOO_OLD if place.recorded_at < oldest else None


class Fingerprints(NamedTuple):
    """`digest` tells another content under the same id; `repeat` the same chat under another id, as a fork or a retry makes it, which
    only a given time can say. Both of the text as it came: what counts as a secret may change between releases."""

    digest: bytes
    repeat: bytes | None


def fingerprints(chat: ChatCompleted) -> Fingerprints:
    said = sha256("\0".join((chat.workspace, chat.prompt, chat.response, "")).encode())
    digest = said.copy()
    digest.update((chat.thread or "").encode())
    if chat.occurred_at is None:
        return Fingerprints(digest.digest(), None)
    said.update(f"{chat.occurred_at.timestamp():.6f}".encode())
    return Fingerprints(digest.digest(), said.digest())


def without_secrets(text: str, kinds: dict[str, int]) -> str:
    """What may be stored; counts what was replaced."""
    redacted = redact(text.replace("\0", ""))
    for kind, count in redacted.kinds.items():
        kinds[kind] = kinds.get(kind, 0) + count
    return redacted.text

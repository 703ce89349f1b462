"""Why nothing has been learned yet. No I/O."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from services.memory_store.runs.schemas import WaitingFor


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the database says of one user's batch in one workspace, at `now`. `due_at` is None while a run holds it."""

    now: datetime
    learns: bool
    opted_out: bool
    pending: int = 0
    dead: int = 0
    oldest_at: datetime | None = None
    last_staged_at: datetime | None = None
    running: bool = False
    asked: bool = False
    provider_away: bool = False
    not_before: datetime | None = None
    due_at: datetime | None = None


def waiting_for(what: Waiting, *, min_chats: int, window_chats: int, idle: timedelta) -> WaitingFor | None:
    """The first that holds, in the order of this list."""
    waits = what.pending > 0
    due = what.due_at is not None and what.due_at <= what.now
    few = what.pending < min(min_chats, window_chats) and not what.asked
    quiet_at = what.now if what.last_staged_at is None else what.last_staged_at + idle
    reasons: list[tuple[WaitingFor, bool]] = [
        ("off", not what.learns),
        ("opted_out", what.opted_out),
        ("running", what.running),
        ("provider", waits and what.provider_away),
        ("retry", waits and what.not_before is not None and what.not_before > what.now),
        ("dead", what.dead > 0),
        ("min_chats", waits and not due and few),
        ("idle", waits and not due and what.pending < window_chats and quiet_at > what.now),
        ("schedule", waits and not due),
        ("due", waits),
    ]
    return next((reason for reason, holds in reasons if holds), None)

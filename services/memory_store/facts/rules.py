"""What holds for facts whatever asks: states and who may move between them, caps, locks, stated dates. No I/O."""

import calendar
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal
from uuid import UUID

from shared.events import ChangeType
from shared.text.normal import ContentError, clean_content
from shared.text.refused import has_contact_data, has_markup
from shared.text.secrets import has_secret

State = Literal["active", "pending", "superseded", "retired", "deleted", "rejected"]
PendingReason = Literal["limit", "approval", "sensitive", "contested"]
Origin = Literal["person", "extraction", "agent"]
Act = Literal["edit", "move", "approve", "reject", "supersede", "retire", "delete", "restore"]
Code = Literal[
    "limit_reached",
    "duplicate",
    "forgotten",
    "not_global",
    "not_active",
    "not_pending",
    "invalid",
    "secret",
    "markup",
    "contact_data",
    "locked",
]

# Per scope: extracted facts that wait with reason `limit`; beyond it the oldest goes.
MAX_WAITING = 10


class Refused(Exception):
    """A rule says no. `code` is stable, `detail` says more without quoting; `existing` is the fact that already says it, of a duplicate."""

    def __init__(self, code: Code, detail: str = "", *, existing: UUID | None = None) -> None:
        super().__init__(code)
        self.code: Code = code
        self.detail = detail
        self.existing = existing


@dataclass(frozen=True, slots=True)
class Transition:
    """`to`: where an act leads from each state it may start in. `already`: states in which nothing is left to do."""

    change: ChangeType
    to: Mapping[State, State]
    otherwise: Code
    already: frozenset[State] = frozenset()


# The life of a fact. Every change of state goes through `follow`; what is not here cannot happen. A fact begins active or
# pending. `edit` is new content or lock (of a person or a run), `move` another scope.
TRANSITIONS: Mapping[Act, Transition] = {
    "edit": Transition("fact.updated", {"active": "active", "pending": "pending"}, "not_active"),
    "move": Transition("fact.updated", {"active": "active", "pending": "pending"}, "not_active"),
    "approve": Transition("fact.approved", {"pending": "active"}, "not_pending", frozenset({"active"})),
    "reject": Transition("fact.rejected", {"pending": "rejected"}, "not_pending", frozenset({"rejected"})),
    "supersede": Transition("fact.superseded", {"active": "superseded"}, "not_active"),
    "retire": Transition("fact.retired", {"active": "retired", "pending": "retired"}, "not_active"),
    "delete": Transition("fact.deleted", {"active": "deleted", "pending": "deleted"}, "not_active"),
    "restore": Transition(
        "fact.restored",
        {"superseded": "active", "retired": "active", "deleted": "active", "rejected": "active"},
        "not_active",
        frozenset({"active", "pending"}),
    ),
}


def follow(act: Act, state: State) -> State | None:
    """The state that `act` leads to, None where it is already done. Raises Refused."""
    transition = TRANSITIONS[act]
    if state in transition.already:
        return None
    if (to := transition.to.get(state)) is None:
        raise Refused(transition.otherwise)
    return to


def check_lock(act: Act, *, locked: bool) -> bool:
    """What a run may do to a fact: True where its supersede must wait as pending (`contested`). Raises Refused (`locked`).

    People are never held by a lock; do not ask for them.
    """
    if not locked:
        return False
    if act == "supersede":
        return True
    raise Refused("locked")


@dataclass(frozen=True, slots=True)
class Slots:
    """One scope's use: active facts that are not past, against the cap; and the facts waiting with reason `limit`."""

    used: int
    maximum: int
    waiting: int = 0

    @property
    def free(self) -> int:
        """Never below 0: a cap may have been lowered under what is there."""
        return max(0, self.maximum - self.used)


def check_slot(slots: Slots) -> None:
    """Raises Refused (`limit_reached`). Slots must have been counted under the person's lock, after what gives its place had gone."""
    if slots.free == 0:
        raise Refused("limit_reached")


def checked_content(raw: str, origin: Origin) -> str:
    """The content as it is kept: NFC, trimmed, one line of at most 500 code points.

    Raises Refused: `invalid` (detail blank, too_long or unprintable), `secret`; and `markup`, `contact_data` of what no person typed.
    """
    try:
        content = clean_content(raw)
    except ContentError as error:
        raise Refused("invalid", f"content: {error.reason}") from None
    if has_secret(content):
        raise Refused("secret")
    if origin != "person" and has_markup(content):
        raise Refused("markup")
    if origin != "person" and has_contact_data(content):
        raise Refused("contact_data")
    return content


def first_day(stated: str) -> date:
    """The first day of `2027`, `2027-05` or `2027-05-14`. Raises ValueError on anything else."""
    return _days(stated)[0]


def last_day(stated: str) -> date:
    """The last day of a stated date, itself included. Raises ValueError."""
    return _days(stated)[1]


def _days(stated: str) -> tuple[date, date]:
    parts = stated.split("-")
    widths = [4, 2, 2][: len(parts)]
    if [len(part) for part in parts] != widths or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError("a stated date is YYYY, YYYY-MM or YYYY-MM-DD")
    numbers = [int(part) for part in parts]
    year, month = numbers[0], numbers[1] if len(numbers) > 1 else None
    if len(numbers) == 3:
        day = date(*numbers)
        return day, day
    if month is None:
        return date(year, 1, 1), date(year, 12, 31)
    start = date(year, month, 1)
    return start, start.replace(day=calendar.monthrange(year, month)[1])


def truth_ended(next_from: str | None, today: date) -> str:
    """The `valid_to` of a superseded truth: where the next one begins, in the precision that was stated; else today."""
    return next_from or today.isoformat()


def is_past(valid_to: str | None, today: date) -> bool:
    """Whether its truth has ended: `valid_to` is inclusive, `today` is the UTC day."""
    return valid_to is not None and last_day(valid_to) < today

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from services.memory_store.runs.waiting import Waiting, waiting_for

NOW = datetime(2027, 5, 14, 12, tzinfo=UTC)
SOON, BEFORE = NOW + timedelta(minutes=5), NOW - timedelta(minutes=5)
FIVE = Waiting(now=NOW, learns=True, opted_out=False, pending=5, last_staged_at=BEFORE, due_at=BEFORE)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (replace(FIVE, pending=0, due_at=None), None),
        (FIVE, "due"),
        (replace(FIVE, learns=False, opted_out=True), "off"),
        (replace(FIVE, learns=False, pending=0), "off"),
        (replace(FIVE, opted_out=True, running=True), "opted_out"),
        (replace(FIVE, running=True, provider_away=True), "running"),
        (replace(FIVE, provider_away=True, not_before=SOON), "provider"),
        (replace(FIVE, pending=0, provider_away=True), None),
        (replace(FIVE, not_before=SOON, dead=1, due_at=SOON), "retry"),
        (replace(FIVE, not_before=BEFORE), "due"),
        (replace(FIVE, pending=0, dead=1), "dead"),
        (replace(FIVE, dead=1, due_at=SOON), "dead"),
        (replace(FIVE, pending=4, due_at=None), "min_chats"),
        (replace(FIVE, pending=4, due_at=SOON), "min_chats"),  # the longest wait will make it due
        (replace(FIVE, pending=4, due_at=BEFORE), "due"),  # it has
        (replace(FIVE, pending=1, asked=True, due_at=BEFORE), "due"),
        (replace(FIVE, last_staged_at=NOW, due_at=SOON), "idle"),
        (replace(FIVE, pending=20, last_staged_at=NOW, due_at=SOON), "schedule"),
        (replace(FIVE, last_staged_at=NOW - timedelta(minutes=21), due_at=SOON), "schedule"),
    ],
)
def test_the_first_reason_that_holds(what: Waiting, expected: str | None) -> None:
    assert waiting_for(what, min_chats=5, window_chats=20, idle=timedelta(minutes=20)) == expected

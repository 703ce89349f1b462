from datetime import date
from typing import get_args

import pytest

from services.memory_store.facts import rules
from services.memory_store.facts.rules import TRANSITIONS, Act, Refused, Slots, State

STATES: tuple[State, ...] = get_args(State)
ACTS: tuple[Act, ...] = get_args(Act)

# Written out a second time, on purpose: a change of the table must be meant.
EXPECTED: dict[str, dict[str, str | None]] = {
    "edit": {"active": "active", "pending": "pending"},
    "move": {"active": "active", "pending": "pending"},
    "approve": {"pending": "active", "active": None},
    "reject": {"pending": "rejected", "rejected": None},
    "supersede": {"active": "superseded"},
    "retire": {"active": "retired", "pending": "retired"},
    "delete": {"active": "deleted", "pending": "deleted"},
    "restore": {
        "superseded": "active",
        "retired": "active",
        "deleted": "active",
        "rejected": "active",
        "active": None,
        "pending": None,
    },
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("state", STATES)
def test_every_act_from_every_state(act: Act, state: State) -> None:
    expected = EXPECTED[act]
    if state in expected:
        assert rules.follow(act, state) == expected[state]
    else:
        with pytest.raises(Refused) as refused:
            rules.follow(act, state)
        assert refused.value.code == TRANSITIONS[act].otherwise


def test_every_state_can_be_left_but_by_erasing() -> None:
    for state in STATES:
        assert any(state in transition.to for transition in TRANSITIONS.values())


def test_a_lock_holds_against_runs_but_a_supersede_waits() -> None:
    for act in ACTS:
        assert rules.check_lock(act, locked=False) is False
    assert rules.check_lock("supersede", locked=True) is True
    for act in ("edit", "retire", "delete"):
        with pytest.raises(Refused, match="locked"):
            rules.check_lock(act, locked=True)


def test_a_full_scope_takes_no_more() -> None:
    rules.check_slot(Slots(used=19, maximum=20))
    for full in (Slots(used=20, maximum=20), Slots(used=25, maximum=20), Slots(used=0, maximum=0)):
        with pytest.raises(Refused, match="limit_reached"):
            rules.check_slot(full)
    assert Slots(used=25, maximum=20).free == 0


@pytest.mark.parametrize(
    ("stated", "first", "last"),
    [
        ("2027", date(2027, 1, 1), date(2027, 12, 31)),
        ("2028-02", date(2028, 2, 1), date(2028, 2, 29)),
        ("2027-05-14", date(2027, 5, 14), date(2027, 5, 14)),
        ("9999", date(9999, 1, 1), date(9999, 12, 31)),
        ("9999-12", date(9999, 12, 1), date(9999, 12, 31)),
    ],
)
def test_stated_dates(stated: str, first: date, last: date) -> None:
    assert (rules.first_day(stated), rules.last_day(stated)) == (first, last)


@pytest.mark.parametrize(
    "stated", ["", "27", "0000", "2027-13", "2027-02-30", "2027-1-1", "2027-05-14-01", "２０２７", "+202", "2027-"]
)
def test_what_is_no_stated_date(stated: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        rules.last_day(stated)


def test_past_means_the_last_day_has_gone() -> None:
    assert not rules.is_past(None, date(2027, 5, 14))
    assert not rules.is_past("2027-05-14", date(2027, 5, 14))
    assert rules.is_past("2027-05-14", date(2027, 5, 15))
    assert not rules.is_past("2027-05", date(2027, 5, 31))
    assert rules.is_past("2026", date(2027, 1, 1))


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("  likes tea \n", "likes tea"),
        ("e\u0301t\u00e9", "\u00e9t\u00e9"),
        ("x" * 500, "x" * 500),
        ("see https://example.org or ada@example.org", "see https://example.org or ada@example.org"),
    ],
)
def test_what_a_person_types_is_kept(raw: str, kept: str) -> None:
    assert rules.checked_content(raw, "person") == kept


@pytest.mark.parametrize(
    "raw", ["", "  ", "a\0b", "a\nb", "a\u2028b", "a\u202eb", "\ud800", "x" * 501, "e\u0301" * 501]
)
def test_what_is_no_content(raw: str) -> None:
    with pytest.raises(Refused, match="invalid"):
        rules.checked_content(raw, "person")


def test_secrets_are_refused_of_all_and_markup_and_contact_data_of_agents() -> None:
    with pytest.raises(Refused, match="secret"):
        rules.checked_content("my key is sk-proj-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c", "person")
    for origin in ("agent", "extraction"):
        with pytest.raises(Refused, match="markup"):
            rules.checked_content("see https://example.org", origin)
        with pytest.raises(Refused, match="contact_data"):
            rules.checked_content("reach me at ada@example.org", origin)

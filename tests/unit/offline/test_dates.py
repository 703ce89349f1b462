from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.extraction.offline import observe
from services.extraction.offline.dates import take_date
from tests.unit.offline.support import chat

SENT = date(2023, 5, 10)  # a Wednesday


@pytest.mark.parametrize(
    ("clause", "rest", "stated"),
    [
        ("Yesterday I moved to Porto", "I moved to Porto", "2023-05-09"),
        ("I moved to Porto last night", "I moved to Porto", "2023-05-09"),
        ("I moved to Porto today", "I moved to Porto", "2023-05-10"),
        ("I moved to Porto three days ago", "I moved to Porto", "2023-05-07"),
        ("I moved to Porto about 2 weeks ago", "I moved to Porto", "2023-04"),
        ("I moved to Porto a month ago", "I moved to Porto", "2023-04"),
        ("I moved to Porto 5 months ago", "I moved to Porto", "2022-12"),
        ("I moved to Porto two years ago", "I moved to Porto", "2021"),
        ("I moved to Porto last Monday", "I moved to Porto", "2023-05-08"),
        ("I moved to Porto last Wednesday", "I moved to Porto", "2023-05-03"),
        ("I moved to Porto last month", "I moved to Porto", "2023-04"),
        ("I moved to Porto last year", "I moved to Porto", "2022"),
        ("I moved to Porto this year", "I moved to Porto", "2023"),
        ("I moved to Porto in 2019", "I moved to Porto", "2019"),
        ("I work at Acme since March 2020", "I work at Acme", "2020-03"),
        ("I moved to Porto on March 3rd, 2021", "I moved to Porto", "2021-03-03"),
        ("I moved to Porto in April", "I moved to Porto", "2023-04"),
        ("I moved to Porto in June", "I moved to Porto", "2022-06"),
        ("In May 2021, I moved to Porto", "I moved to Porto", "2021-05"),
        ("I moved to Porto", "I moved to Porto", None),
        ("I use port 9077", "I use port 9077", None),
        ("I moved to Porto in 0000", "I moved to Porto", None),
        ("I moved to Porto in 9999", "I moved to Porto", None),
        ("I moved to Porto on February 30 2021", "I moved to Porto", None),
        ("I moved to Porto 999999999 days ago", "I moved to Porto", None),
        ("I moved to Porto 999999999 months ago", "I moved to Porto", None),
        ("I moved to Porto 5000 years ago", "I moved to Porto", None),
        ("十万年前 I moved to Porto", "十万年前 I moved to Porto", None),
    ],
)
def test_e10_a_stated_date_is_resolved(clause: str, rest: str, stated: str | None) -> None:
    found = take_date(clause, SENT)
    assert (found.text, found.date) == (rest, stated)


@pytest.mark.parametrize("sent", [date.min, date.max, date(2024, 2, 29)])
@pytest.mark.parametrize(
    "clause",
    [
        "I moved yesterday",
        "I moved last week",
        "I moved last year",
        "I moved a month ago",
        "I moved in May",
        "I moved last Monday",
    ],
)
def test_e10_the_ends_of_the_calendar_crash_nothing(clause: str, sent: date) -> None:
    take_date(clause, sent)


@given(st.text(alphabet="0123456789 agoinMrchdysweklast,./thn", max_size=40), st.dates())
def test_no_text_crashes(text: str, sent: date) -> None:
    take_date(text, sent)


@pytest.mark.parametrize(
    ("at", "zone", "day"),
    [
        ("2023-05-07T22:30:00-04:00", None, "2023-05-06"),
        ("2023-05-08T02:30:00+00:00", "America/New_York", "2023-05-06"),
        ("2023-05-06T18:40:00+00:00", "Asia/Kolkata", "2023-05-06"),  # 00:10 on the 7th
        ("2023-03-26T01:30:00+00:00", "Europe/Berlin", "2023-03-25"),  # in the hour that is left out
        ("2023-10-29T00:30:00+00:00", "Europe/Berlin", "2023-10-28"),  # in the hour that comes twice
        ("2023-05-07T22:30:00-04:00", "Nowhere/Land", "2023-05-06"),
    ],
)
def test_e10_yesterday_is_reckoned_where_the_person_was(at: str, zone: str | None, day: str) -> None:
    (fact,) = observe([chat("Yesterday I moved to Porto", at=at, zone=zone)])
    assert (fact.content, fact.valid_from) == ("User lives in Porto.", day)


def test_e10_the_last_known_zone_serves_where_the_chat_tells_none() -> None:
    (fact,) = observe([chat("Yesterday I moved to Porto", at="2023-05-08T02:30:00+00:00")], "America/New_York")
    assert fact.valid_from == "2023-05-06"


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"])
def test_e10_odd_times_crash_nothing(at: str) -> None:
    (fact,) = observe([chat("Yesterday I moved to Porto", at=at, zone="Asia/Kolkata")])
    assert fact.content == "User lives in Porto."

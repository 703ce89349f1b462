"""Dates as people state them, resolved in the zone the chat was sent from, to the precision that was stated."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {
    word: n
    for n, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    )
}
_NUMBERS |= {"a": 1, "an": 1, "a couple of": 2}
_NUMBER = rf"\d{{1,9}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))}"
_MONTH = "|".join(f"{name}|{name[:3]}" if name != "may" else name for name in _MONTHS)


def _ago(found: re.Match[str], sent: date) -> str:
    count = _NUMBERS.get(found["n"].lower()) if not found["n"].isdecimal() else int(found["n"])
    unit = found["unit"].lower()
    if unit == "day":
        return str(sent - timedelta(count or 0))
    if unit == "week":
        return (sent - timedelta(weeks=count or 0)).isoformat()[:7]
    if unit == "month":
        month = sent.year * 12 + sent.month - 1 - (count or 0)
        return date(month // 12, month % 12 + 1, 1).isoformat()[:7]
    return date(sent.year - (count or 0), 1, 1).isoformat()[:4]


def _last(found: re.Match[str], sent: date) -> str:
    unit = found["unit"].lower()
    if unit in _DAYS:
        return str(sent - timedelta((sent.weekday() - _DAYS.index(unit) - 1) % 7 + 1))
    if unit == "week":
        return (sent - timedelta(7)).isoformat()[:7]
    return (
        date(sent.year - 1, 1, 1).isoformat()[:4]
        if unit == "year"
        else (sent.replace(day=1) - timedelta(1)).isoformat()[:7]
    )


def _stated(found: re.Match[str], sent: date) -> str:
    month, day, year = found["month"], found["day"], found["year"] or found["only"]
    if month is None:
        return date(int(year), 1, 1).isoformat()[:4]
    number = next(n for n, name in enumerate(_MONTHS, 1) if name.startswith(month.lower()[:3]))
    day_number = int(day or 1)
    # A month without a year is the latest that has begun.
    stated = date(
        int(year or sent.year - ((number, day_number) > (sent.month, sent.day))), number, day_number
    ).isoformat()
    return stated if day else stated[:7]


_PHRASES: tuple[tuple[str, Callable[[re.Match[str], date], str]], ...] = (
    (r"yesterday(?: (?:morning|afternoon|evening|night))?|last night", lambda _, sent: str(sent - timedelta(1))),
    (r"the day before yesterday", lambda _, sent: str(sent - timedelta(2))),
    (r"today|this (?:morning|afternoon|evening)|tonight", lambda _, sent: str(sent)),
    (
        r"this (?P<unit>month|year)",
        lambda found, sent: sent.isoformat()[: 7 if found["unit"].lower() == "month" else 4],
    ),
    (rf"(?:(?:about|around|almost|nearly|over) )?(?P<n>{_NUMBER}) (?P<unit>day|week|month|year)s? ago", _ago),
    (rf"(?:last|this past) (?P<unit>week|month|year|{'|'.join(_DAYS)})", _last),
    (
        rf"(?:back )?(?:in|since|on) (?:(?:early|late|mid) )?(?:(?P<only>\d{{4}})|"
        rf"(?P<month>{_MONTH})\.?(?: (?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?!\d))?(?:,? (?P<year>\d{{4}}))?)(?!\d)",
        _stated,
    ),
)
_COMPILED = tuple((re.compile(rf"(?:^|,? )(?:{pattern})(?![\w-])", re.I), resolve) for pattern, resolve in _PHRASES)


@dataclass(frozen=True)
class Dated:
    """A clause without its date phrase, and the date it states: `2027`, `2027-05`, `2027-05-14`, or None."""

    text: str
    date: str | None


def take_date(clause: str, sent: date) -> Dated:
    """Takes the first date phrase out of a clause. `sent` is the day where the person was. A date no calendar holds is no date."""
    for pattern, resolve in _COMPILED:
        if found := pattern.search(clause):
            rest = " ".join(f"{clause[: found.start()]} {clause[found.end() :]}".split()).strip(" ,")
            try:
                stated = resolve(found, sent)
            except (ValueError, OverflowError):
                return Dated(rest, None)
            return Dated(rest, stated if stated <= str(sent) else None)
    return Dated(clause, None)

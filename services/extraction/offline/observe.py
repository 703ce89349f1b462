"""From chats to candidates: what their prompts state, the latest of what excludes each other, the best first."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from services.extraction.observer.window import local_zone
from services.extraction.offline.dates import take_date
from services.extraction.offline.frames import FRAMES
from services.extraction.offline.reading import Reading, read
from services.extraction.offline.segments import Clause, own_clauses
from services.extraction.offline.words import LISTS, asked_for, told
from shared.rpc.messages import Candidate, Category, ClaimedChat, Evidence
from shared.text.normal import ContentError, clean_content, same_fact_key
from shared.text.refused import has_contact_data, has_markup
from shared.text.secrets import has_secret

MAX_EVIDENCE = 5
_ORDER = {frame.name: place for place, frame in enumerate(FRAMES)}
_SENSITIVE = re.compile(rf"\b(?:{LISTS['sensitive']})\b", re.I)


@dataclass(frozen=True)
class _Found:
    content: str
    category: Category
    sensitive: bool
    rank: int
    quote: str
    event_id: str
    reading: Reading | None = None
    valid_from: str | None = None
    valid_to: str | None = None


def observe(chats: Sequence[ClaimedChat], zone: str | None = None) -> list[Candidate]:
    """Candidates of a window, the best first. `zone` is the person's last known time zone."""
    found: list[_Found] = []
    for chat in chats:
        understood = True
        for clause in own_clauses(chat.prompt):
            read_here = _read(clause, chat, zone) if understood or not clause.follows else []
            understood = bool(read_here)
            found += read_here
    kept: dict[str, list[_Found]] = {}
    for one in found:
        for key in [key for key, others in kept.items() if _excludes(one.reading, others[-1].reading)]:
            del kept[key]
        kept.setdefault(_identity(one), []).append(one)
    newest = {key: place for place, key in enumerate(kept)}
    return [_candidate(kept[key]) for key in sorted(kept, key=lambda key: (kept[key][-1].rank, -newest[key]))]


def _identity(one: _Found) -> str:
    """Equal for two wordings of one statement."""
    said = one.reading
    return f"{said.frame.name}/{said.slot}/{said.value}/{said.ended}" if said else same_fact_key(one.content)


def _excludes(new: Reading | None, old: Reading | None) -> bool:
    if new is None or old is None or (new.frame.name, new.slot) != (old.frame.name, old.slot):
        return False
    if new.ended:
        return not old.ended and new.value in {"", old.value}
    if new.frame.single:
        return old.ended or new.value != old.value
    return old.ended and new.value == old.value


def _read(clause: Clause, chat: ClaimedChat, zone: str | None) -> list[_Found]:
    if clause.forget:
        return _checked(
            [_Found(f"User asked to forget {asked_for(clause.text)}.", "other", False, 0, clause.quote, chat.event_id)]
        )
    dated = take_date(clause.text, _day(chat, zone))
    readings = read(dated.text, greeted=clause.greeted)
    if dated.text != clause.text:
        readings = [reading for reading in readings if reading.frame.dated or reading.ended]
    stated = dated.date
    found = [
        _Found(
            reading.content,
            reading.frame.category,
            reading.frame.sensitive,
            _rank(clause, reading),
            clause.quote,
            chat.event_id,
            reading,
            None if reading.ended else stated,
            stated if reading.ended else None,
        )
        for reading in (readings[:1] if readings and readings[0].ended else readings)
    ]
    if not found and clause.remember and (content := told(clause.text)):
        found = [_Found(content, "other", False, 1, clause.quote, chat.event_id)]
    return _checked(found)


def _day(chat: ClaimedChat, zone: str | None) -> date:
    """The day it was where the chat was sent."""
    try:
        return chat.occurred_at.astimezone(local_zone(chat, zone)[0]).date()
    except OverflowError:
        return chat.occurred_at.date()


def _rank(clause: Clause, reading: Reading) -> int:
    """Asked for, then ended, then in the order of the table."""
    return 1 if clause.remember else 2 if reading.ended else 3 + _ORDER[reading.frame.name]


def _checked(found: list[_Found]) -> list[_Found]:
    return [one for one in found if _may_be_kept(one.content)]


def _may_be_kept(content: str) -> bool:
    try:
        clean_content(content)
    except ContentError:
        return False
    return not (has_markup(content) or has_contact_data(content) or has_secret(content))


def _candidate(found: list[_Found]) -> Candidate:
    one = found[-1]
    quotes = dict.fromkeys((each.event_id, each.quote) for each in reversed(found))
    return Candidate(
        content=one.content,
        category=one.category,
        sensitive=one.sensitive or _SENSITIVE.search(one.content) is not None,
        confidence="high",
        reasoning=f"Stated in the first person ({one.reading.frame.name})." if one.reading else "Asked for.",
        evidence=[Evidence(event_id=event_id, quote=quote) for event_id, quote in list(quotes)[:MAX_EVIDENCE]],
        valid_from=next((each.valid_from for each in reversed(found) if each.valid_from), None),
        valid_to=one.valid_to,
    )

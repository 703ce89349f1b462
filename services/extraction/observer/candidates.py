"""What of a model's proposals counts: checked field by field, evidence checked against the chats, the good ones first."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, cast, get_args

from services.extraction.observer.own_words import Prompt
from shared.rpc.messages import Candidate, CandidateRecord, Category, Confidence, Evidence
from shared.text.normal import MAX_CONTENT, MAX_QUOTE, ContentError, clean_content, fold_whitespace

CONTENT_KEYS = ("content", "fact", "text", "statement", "memory")
MAX_EVIDENCE = 5
MAX_REASONING = 500
# What a run keeps of a reply that proposes hundreds.
MAX_RECORDS = 50
_CATEGORIES = frozenset(get_args(Category))
_CONFIDENCES = frozenset(get_args(Confidence))
_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?")


def select(
    items: Sequence[Mapping[str, Any]], prompts: Mapping[str, str], limit: int, heading: str
) -> list[CandidateRecord]:
    """The candidates of a run: at most `limit` kept, in the order proposed, then the dropped with their reason.

    `prompts` are the window's, by event id; `heading` is that of memory blocks. Reasons: invalid, quote_not_found, over_limit.
    """
    read = {event_id: Prompt(text, heading) for event_id, text in prompts.items()} if items else {}
    records = [check(item, read) for item in items[:MAX_RECORDS]]
    good = [record for record in records if record.dropped is None]
    over = [CandidateRecord(candidate=record.candidate, dropped="over_limit") for record in good[limit:]]
    return [*good[:limit], *over, *(record for record in records if record.dropped)]


def check(item: Mapping[str, Any], prompts: Mapping[str, Prompt]) -> CandidateRecord:
    content = next((item[key] for key in CONTENT_KEYS if item.get(key)), "")
    confidence = _word(item.get("confidence"))
    cleaned = _cleaned(content)
    given = _evidence(item)
    found = [each for each in given if each.event_id in prompts and prompts[each.event_id].has_own(each.quote)]
    dropped = None
    if cleaned is None or confidence not in _CONFIDENCES:
        dropped = "invalid"
    elif not found:
        dropped = "quote_not_found"
    category = _word(item.get("category"))
    candidate = Candidate(
        content=plain(content, MAX_CONTENT).strip() if cleaned is None else cleaned,
        category=cast(Category, category) if category in _CATEGORIES else "other",
        sensitive=item.get("sensitive") is True or _word(item.get("sensitive")) == "true",
        confidence=cast(Confidence, confidence) if confidence in _CONFIDENCES else "low",
        reasoning=plain(item.get("reasoning"), MAX_REASONING),
        evidence=found or [Evidence(event_id=plain(e.event_id, 200), quote=e.quote[:MAX_QUOTE]) for e in given],
        valid_from=stated_date(item.get("valid_from")),
        valid_to=stated_date(item.get("valid_to")),
    )
    return CandidateRecord(candidate=candidate, dropped=dropped)


def _cleaned(content: object) -> str | None:
    if not isinstance(content, str):
        return None
    try:
        return clean_content(fold_whitespace(content[: 8 * MAX_CONTENT]))
    except ContentError:
        return None


def _evidence(item: Mapping[str, Any]) -> list[Evidence]:
    listed = item.get("evidence")
    entries = listed if isinstance(listed, list) else [listed]
    return [
        Evidence(event_id=event_id, quote=plain(quote, 4 * MAX_QUOTE))
        for entry in entries[:MAX_EVIDENCE]
        if isinstance(entry, dict)
        and isinstance(event_id := entry.get("event_id"), str)
        and isinstance(quote := entry.get("quote"), str)
    ]


def stated_date(value: object) -> str | None:
    """`2027`, `2027-05` or `2027-05-14`; whatever is no such date is none."""
    if not isinstance(value, str) or not _DATE.fullmatch(value.strip()):
        return None
    try:
        date.fromisoformat(f"{value.strip()}-01-01"[:10])
    except ValueError:
        return None
    return value.strip()


def _word(value: object) -> str:
    return value.strip().lower() if isinstance(value, str) else ""


def plain(value: object, limit: int) -> str:
    """Text that can be sent and stored whatever a model wrote: no NUL, no lone surrogate, at most `limit` characters."""
    if not isinstance(value, str):
        return ""
    return value[:limit].encode("utf-8", "replace").decode().replace("\0", "")

"""Dead letters on a terminal or as JSON. What a person said is shown by `text` alone; everything else is shape, size and ids."""

import json
from typing import Any

from pydantic_core import from_json

from deploy.dead_letters.topic import Found, moment
from shared.events import BadRecord, ChatCompleted, ChatDeleted, ChatReset, decode_event

_FIELDS = (
    "type",
    *dict.fromkeys(name for kind in (ChatCompleted, ChatReset, ChatDeleted) for name in kind.model_fields),
)
# What may stand in them is an id, a time or a closed set; as long as it looks like one.
_IDS = frozenset({"type", "event_id", "tenant", "workspace", "user", "thread", "occurred_at", "timezone"})
_LONGEST_ID = 200


def line(found: Found) -> str:
    letter = found.letter
    origin = f"{printable(letter.topic)}/{letter.partition}/{letter.offset}"
    cut = "" if found.whole else "  (cut: cannot be replayed)"
    at = found.at.isoformat(timespec="seconds")
    return f"{found.id:<10} {at}  {letter.reason:<18} {letter.size:>7} bytes  {origin}  {_detail(found)}{cut}"


def item(found: Found) -> dict[str, Any]:
    """As `list --json` shows it: {id, at, reason, detail, origin: {topic, partition, offset, at}, size, sha256, whole}."""
    letter = found.letter
    return {
        "id": found.id,
        "at": found.at.isoformat(),
        "reason": letter.reason,
        "detail": _detail(found),
        "origin": {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "at": moment(letter.timestamp).isoformat(),
        },
        "size": letter.size,
        "sha256": letter.sha256,
        "whole": found.whole,
    }


def record(found: Found) -> dict[str, Any]:
    """The record as far as it can be decoded: {key, read_now, fields, unknown_fields}; fields is None where it is no JSON object."""
    fields = _fields(found)
    return {
        "key": _key(found.key),
        "read_now": _read_now(found),
        "fields": None if fields is None else {name: _shape(name, fields[name]) for name in _FIELDS if name in fields},
        "unknown_fields": 0 if fields is None else len(fields.keys() - set(_FIELDS)),
    }


def page(found: Found, *, text: bool) -> list[str]:
    """As `show` prints it."""
    shown = record(found)
    lines = [line(found), f"  came      {item(found)['origin']['at']}"]
    lines += [f"  key       {shown['key']}", f"  read now  {shown['read_now']}"]
    if shown["fields"] is None:
        lines.append(f"  record    {len(found.value)} bytes, no JSON object")
    else:
        lines += [f"  .{name:<12} {shape}" for name, shape in shown["fields"].items()]
        if shown["unknown_fields"]:
            lines.append(f"  and {shown['unknown_fields']} unknown fields")
    if text:
        lines += ["  text:", *said(found).splitlines()]
    return lines


def said(found: Found) -> str:
    """The record itself, laid out if it is JSON."""
    fields = _fields(found)
    if fields is not None and found.whole:
        return printable(json.dumps(fields, ensure_ascii=False, indent=2))
    return printable(found.value.decode(errors="replace"))


def printable(text: str) -> str:
    """Nothing that a terminal would obey, nor a lone surrogate that it could not write."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def _fields(found: Found) -> dict[str, Any] | None:
    try:
        parsed = from_json(found.value, allow_partial=False if found.whole else "trailing-strings")
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _shape(name: str, value: Any) -> str:
    if isinstance(value, str):
        if name in _IDS and len(value) <= _LONGEST_ID and value.isprintable() and not any(map(str.isspace, value)):
            return json.dumps(value, ensure_ascii=False)
        return f"string of {len(value)} characters"
    if isinstance(value, dict):
        return f"object of {len(value)} fields"
    if isinstance(value, list):
        return f"list of {len(value)}"
    return {bool: "boolean", int: "number", float: "number"}.get(type(value), "null")


def _read_now(found: Found) -> str:
    """Whether this release could read it; whether it would be staged only memory-store can say."""
    if not found.whole:
        return "unknown: only its beginning was kept"
    try:
        decode_event(found.value)
    except BadRecord as bad:
        return f"no: {bad.reason}, {bad.detail}"
    return "yes"


def _key(key: bytes | None) -> str | None:
    if key is None:
        return None
    shown = key.decode("ascii", "replace")
    # Ours are percent-encoded; another's may hold anything.
    return shown if len(shown) <= 3 * _LONGEST_ID and shown.isprintable() and " " not in shown else f"{len(key)} bytes"


def _detail(found: Found) -> str:
    return printable(found.letter.detail)[:_LONGEST_ID]

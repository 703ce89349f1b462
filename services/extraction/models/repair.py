"""What a model meant to reply, out of what it said. Every step is linear in the text.

Told in this order: a reply that is JSON as it stands, or in a fence; else, behind reasoning tags, the first JSON value in it that
holds the list (after prose, with bad escapes or trailing commas); of one that was cut off, the items that are whole. The list may
stand under another key, in a wrapper as `{"name", "arguments"}`, or bare. What holds no list is unreadable, never empty.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from services.extraction.models.tool import Tool

# A reply of three candidates has some 2,000 characters; behind its reasoning more than this is taken for cut off.
_MAX_REPLY = 128 * 1024
_MAX_DEPTH = 32
# How often the search may begin anew behind a bracket that turned out to be prose, and how many signs it may look at in all.
_MAX_STARTS = 16
_MAX_STEPS = 50_000
_REASONING_ENDS = re.compile(r"</(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_STRUCTURE = re.compile(r'["\[\]{}]')
_STRING_REST = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# A backslash that begins no escape of JSON; pairs before it are escaped backslashes.
_BAD_ESCAPE = re.compile(r'(?<!\\)((?:\\\\)*+)\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_TRAILING_COMMA = re.compile(r",\s*(?=[\]}])")
_WRAPPERS = ("arguments", "parameters", "input", "function", "args")
_CLOSING = {"{": "}", "[": "]"}


class Unreadable(Exception):
    """No list of the expected items in what was said."""


def read_items(said: str | dict[str, Any], tool: Tool) -> list[dict[str, Any]]:
    """The items of the list that are objects of the expected kind. Raises Unreadable, also where there are items but none of them is.

    An empty list is only what was said to be empty.
    """
    values = iter([said]) if isinstance(said, dict) else _values(said)
    lists = [items for value in values if (items := _items(value, tool)) is not None]
    if not lists:
        raise Unreadable
    items = next(filter(None, lists), [])
    objects = [item for item in items if _is_item(item, tool)]
    if items and not objects:
        raise Unreadable
    return objects


def _items(value: Any, tool: Tool) -> list[Any] | None:
    """The list in a value, or None where there is none."""
    for _ in range(4):
        if isinstance(value, list):
            return value if not value or any(_is_item(item, tool) for item in value) else None
        if not isinstance(value, dict):
            return None
        if isinstance(listed := value.get(tool.key), list):
            return listed
        if len(tool.marks & value.keys()) > 1:
            return [value]
        inner = next((value[key] for key in (tool.key, *_WRAPPERS) if value.get(key)), None)
        if inner is None:
            renamed = [entry for entry in value.values() if isinstance(entry, list) and entry and _items(entry, tool)]
            return renamed[0] if len(renamed) == 1 else None
        value = _loads(inner) if isinstance(inner, str) else inner
    return None


def _is_item(item: Any, tool: Tool) -> bool:
    return isinstance(item, dict) and bool(tool.marks & item.keys())


def _values(text: str) -> Iterator[Any]:
    """JSON values in the text in their order. A bare `[]` counts only where it is all that was said."""
    if (whole := _strict(text)) is not None:
        yield whole
        return
    ends = [found.end() for found in _REASONING_ENDS.finditer(text)]
    text = text[ends[-1] if ends else 0 :].strip()[:_MAX_REPLY]
    if (whole := _loads(_unfenced(text))) is not None:
        yield whole
        return
    scanner = _Scanner(text)
    for _ in range(_MAX_STARTS):
        if (span := scanner.next_span()) is None:
            return
        value = _loads(span) if span else None
        if value:
            yield value
        elif value is None:
            scanner.back_up()


def _unfenced(text: str) -> str:
    end = text.rfind("```")
    first_line = text.find("\n")
    return text[first_line + 1 : end] if text.startswith("```") and 0 < first_line < end else text


class _Scanner:
    """Finds the spans of JSON values from bracket to bracket."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._start = 0
        self._steps = _MAX_STEPS

    def back_up(self) -> None:
        """The last span was no JSON: look again behind its first bracket."""
        self._position = self._start + 1

    def next_span(self) -> str | None:
        """From the next bracket to its partner; of a value that is cut off, its whole items, closed; "" for brackets that do not pair."""
        while (sign := self._sign()) == '"' or (sign and sign in "]}"):
            pass
        if not sign:
            return None
        self._start = self._position - 1
        stack = [sign]
        list_depth = 1 if sign == "[" else 0
        whole_end, closing = 0, ""
        while sign := self._sign():
            if sign == '"':
                if (rest := _STRING_REST.match(self._text, self._position)) is None:
                    break
                self._position = rest.end()
            elif sign in "{[":
                stack.append(sign)
                if sign == "[" and not list_depth:
                    list_depth = len(stack)
                if len(stack) > _MAX_DEPTH:
                    return ""
            elif _CLOSING[stack.pop()] != sign:
                return ""
            elif not stack:
                return self._text[self._start : self._position]
            elif len(stack) == list_depth and sign == "}":
                whole_end, closing = self._position, "".join(_CLOSING[opened] for opened in reversed(stack))
        return self._text[self._start : whole_end] + closing if whole_end else ""

    def _sign(self) -> str:
        found = _STRUCTURE.search(self._text, self._position) if self._steps else None
        if found is None:
            return ""
        self._steps -= 1
        self._position = found.end()
        return found[0]


def _loads(text: str) -> Any | None:
    """Strict JSON but for raw line breaks in strings; else with bad escapes and trailing commas mended. None where it is no JSON."""
    if (value := _strict(text)) is not None:
        return value
    return _strict(_TRAILING_COMMA.sub("", _BAD_ESCAPE.sub(r"\1\\\\", text)))


def _strict(text: str) -> Any | None:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None

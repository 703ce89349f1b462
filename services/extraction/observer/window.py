"""The window as the observer reads it: chats between tags with a random word, each message cut, times in the person's zone."""

import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from services.extraction.observer.own_words import without_memory_blocks
from shared.rpc.messages import ClaimedChat

HEAD, TAIL = 1000, 500
# Bytes of UTF-8 a token has at least, about: 4 in English, 3 in Chinese, where a sign is often one token.
_BYTES_PER_TOKEN = 3
_SHORTEST = 50


def window_text(chats: Sequence[ClaimedChat], *, zone: str | None, heading: str, max_tokens: int) -> tuple[str, int]:
    """The first of the chats that fit `max_tokens` together, and how many they are: never none. Only a chat that alone is too long is
    cut shorter than stated. `zone` is the person's last known one, `heading` that of their memory blocks.
    """
    mark = secrets.token_hex(4)
    room = max_tokens * _BYTES_PER_TOKEN
    shown: list[str] = []
    for chat in chats:
        text = _chat(chat, mark, zone, heading)
        if shown and len(text.encode()) + 2 > room:
            break
        ends = HEAD, TAIL
        while len(text.encode()) > room and ends[0] > _SHORTEST:
            ends = ends[0] // 2, ends[1] // 2
            text = _chat(chat, mark, zone, heading, ends)
        shown.append(text)
        room -= len(text.encode()) + 2
    return "\n\n".join(shown), len(shown)


def _chat(chat: ClaimedChat, mark: str, zone: str | None, heading: str, ends: tuple[int, int] = (HEAD, TAIL)) -> str:
    place, zone_name = local_zone(chat, zone)
    sent = chat.occurred_at.astimezone(place)
    attributes = {
        "id": chat.event_id,
        "sent": sent.isoformat(timespec="minutes"),
        "day": sent.strftime("%A"),
        "zone": zone_name,
    }
    shown = " ".join(f"{name}={_quoted(value)}" for name, value in attributes.items())
    user = _message(chat.prompt, mark, heading, ends)
    assistant = _message(chat.response, mark, heading, ends)
    return (
        f"<chat-{mark} {shown}>\n<user-{mark}>\n{user}\n</user-{mark}>\n"
        f"<assistant-{mark}>\n{assistant}\n</assistant-{mark}>\n</chat-{mark}>"
    )


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")


def _message(text: str, mark: str, heading: str, ends: tuple[int, int]) -> str:
    return cut(without_memory_blocks(text, heading), *ends).replace(mark, "")


def cut(text: str, head: int = HEAD, tail: int = TAIL) -> str:
    """The first `head` and the last `tail` characters."""
    left_out = len(text) - head - tail
    return text if left_out <= 0 else f"{text[:head]}\n[… {left_out} characters left out …]\n{text[-tail:]}"


def local_zone(chat: ClaimedChat, known: str | None) -> tuple[tzinfo, str]:
    """Where the person was: the chat's zone, else the offset its time was given with, else their last known zone, else UTC."""
    for name in (chat.timezone, None if _has_offset(chat.occurred_at) else known):
        if name:
            try:
                return ZoneInfo(name), name
            except (ZoneInfoNotFoundError, ValueError, OSError):
                continue
    return chat.occurred_at.tzinfo or UTC, "UTC" if not _has_offset(chat.occurred_at) else chat.occurred_at.strftime(
        "%z"
    )


def _has_offset(moment: datetime) -> bool:
    """`Z` is how applications send a time whose zone they do not know."""
    return bool(moment.utcoffset())

"""What the user said, out of a message and a history of OpenAI-style messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from services.injection.assembling.schemas import HistoryMessage
from shared.encoder import MAX_TEXT

TURNS = 3


@dataclass(frozen=True, slots=True)
class Said:
    """The message and up to three user turns before it, the last first, each cut to what is read."""

    message: str
    turns: tuple[str, ...]


def said(message: str | None, history: Sequence[HistoryMessage] | None) -> Said | None:
    """None where the user said nothing. Without a message the last turn is it; a turn that repeats the message counts once."""
    now = (message or "")[:MAX_TEXT].strip()
    turns: list[str] = []
    for entry in reversed(history or ()):
        if len(turns) > TURNS:
            break
        if entry.role == "user" and (text := _text(entry.content)):
            turns.append(text)
    if turns and (not now or turns[0] == now):
        now = turns.pop(0)
    return Said(now, tuple(turns[:TURNS])) if now else None


def _text(content: str | list[Any] | None) -> str:
    if isinstance(content, str):
        return content[:MAX_TEXT].strip()
    texts = [
        part if isinstance(part, str) else part.get("text") for part in content or () if isinstance(part, str | dict)
    ]
    return " ".join(text[:MAX_TEXT] for text in texts if isinstance(text, str))[:MAX_TEXT].strip()

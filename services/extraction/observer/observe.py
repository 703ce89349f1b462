"""The observer: one question to the model, what in this window is worth remembering."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from services.extraction.models.gate import Turn
from services.extraction.models.tool import Tool
from services.extraction.observer.candidates import CONTENT_KEYS, select
from services.extraction.observer.window import window_text
from services.extraction.prompts import OBSERVER
from shared.rpc.messages import CandidateRecord, ClaimedRun

if TYPE_CHECKING:
    # The library behind it is loaded only where a model is configured.
    from services.extraction.models.client import ModelClient

# Ends the run's window with a chat, by its event id. Raises TryFailed.
Shorten = Callable[[str], Awaitable[None]]

_TEXT = {"type": "string"}
_CANDIDATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "content": _TEXT,
        "category": {"type": "string", "enum": ["identity", "work", "preference", "skill", "constraint", "other"]},
        "sensitive": {"type": "boolean"},
        "confidence": {"type": "string", "enum": ["high", "medium", "low"]},
        "reasoning": _TEXT,
        "evidence": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"event_id": _TEXT, "quote": _TEXT},
                "required": ["event_id", "quote"],
            },
        },
        "valid_from": _TEXT,
        "valid_to": _TEXT,
    },
    "required": ["content", "category", "sensitive", "confidence", "reasoning", "evidence"],
}
PROPOSE = Tool(
    phase="observer",
    name="propose_candidates",
    description="Proposes facts about the person that these chats show; an empty list if there are none.",
    schema={
        "type": "object",
        "properties": {"candidates": {"type": "array", "items": _CANDIDATE}},
        "required": ["candidates"],
    },
    key="candidates",
    marks=frozenset({*CONTENT_KEYS, "evidence"}),
)


async def observe(
    run: ClaimedRun, model: "ModelClient", turn: Turn, limit: int, shorten: Shorten
) -> list[CandidateRecord]:
    """Of a window that does not fit the model only the first chats are read; `shorten` tells the store so first. Raises TryFailed."""
    system = OBSERVER.replace("{limit}", str(limit))
    room = model.entry.context_tokens - len(system.encode()) // 3 - _REPLY_TOKENS
    window, count = window_text(run.chats, zone=run.zone, heading=run.heading, max_tokens=room)
    if count < len(run.chats):
        await shorten(run.chats[count - 1].event_id)
    items = await model.items(PROPOSE, system, window, turn)
    prompts = {chat.event_id: chat.prompt for chat in run.chats[:count]}
    if sum(map(len, prompts.values())) > _LONG:
        return await asyncio.to_thread(select, items, prompts, limit, run.heading)
    return select(items, prompts, limit, run.heading)


# Prompts above this, together, are looked through in a thread.
_LONG = 64 * 1024


# Room for the reply, the tool's schema and what the person cannot see.
_REPLY_TOKENS = len(json.dumps(PROPOSE.schema)) // 3 + 1000

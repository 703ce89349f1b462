"""A model that is right about every chat by rules, and fails on demand in the ways that models do (E3, D3)."""

import random
import re
import threading
from typing import Any

from tests.support.model_server import Asked, ScriptedModel

Json = Any

_STATEMENT = re.compile(r"I (really like|like|stopped liking|live in) ([^.]+)\.|My (motto) is ([^.]+)\.")
_CONTENTS = {
    "like": "User likes {}",
    "really like": "User really likes {}",
    "stopped liking": "User no longer likes {}",
    "live in": "User lives in {}",
    "motto": "User's motto is {}",
}
_LIVES, _MOTTO, _LIKES, _REALLY, _STOPPED = (
    "User lives in ",
    "User's motto is ",
    "User likes ",
    "User really likes ",
    "User no longer likes ",
)

# Shapes that lose nothing once they are mended.
_SHAPES = ("fence", "prose", "think", "bare_list", "renamed_key", "bad_escape", "twice")
# Clean failures of one try, each with its own outcome.
_SILENT = ("text", "schema", "empty")
_OUTAGES: dict[str, Json] = {
    "status_401": {"status": 401},
    "status_429": {"status": 429},
    "status_500": {"status": 500},
    "status_503": {"status": 503},
    "hang": {"hang": 4},
    "drop": {"drop": True},
}
_POISON = {
    "POISON-500": {"status": 500},
    "POISON-422": {"status": 422},
    "POISON-text": {"text": "I would rather talk about cheese."},
}


def content_of(statement: str) -> str | None:
    """The fact that a sentence states."""
    found = _STATEMENT.search(statement)
    if found is None:
        return None
    return _CONTENTS[found[1] or found[3]].format(found[2] or found[4])


def statements(prompt: str) -> list[str]:
    """The sentences of a prompt that state a fact."""
    return [found[0] for found in _STATEMENT.finditer(prompt)]


class RightModel(ScriptedModel):
    """`outage` names a way in which every request fails, or is None.

    `failures` counts replies that no try can succeed with; `maimed` are the ids of chats whose candidates were once cut off or spoilt.
    """

    def __init__(self, seed: int, oddness: float = 0.25) -> None:
        super().__init__()
        self.outage: str | None = None
        self.failures = 0
        self.maimed: set[str] = set()
        self._rng = random.Random(f"model {seed}")
        self._oddness = oddness
        self._lock = threading.Lock()

    def _reply_for(self, asked: Asked) -> Json:
        with self._lock:
            return self._choose(asked)

    def _choose(self, asked: Asked) -> Json:
        del self.requests[:-10]  # a run of an hour has thousands
        events = [event_id for event_id, _ in asked.chats()]
        poison = next((reply for word, reply in _POISON.items() if word in asked.text), None)
        if self.outage or poison:
            self.failures += 1
            return _OUTAGES[self.outage] if self.outage else poison
        right = self._observe(asked) if asked.phase == "observer" else {"decisions": list(_decide(asked))}
        if self._rng.random() > self._oddness:
            return {"call": right, "delay": self._rng.random() * 0.3}
        return self._odd(asked, right, events)

    def _observe(self, asked: Asked) -> Json:
        candidates = []
        for event_id, prompt in asked.chats():
            for found in _STATEMENT.finditer(prompt):
                # The first text is mangled by the shape bad_escape: it must be one that nobody reads.
                candidate: dict[str, Json] = {
                    "reasoning": "stated plainly",
                    "content": content_of(found[0]),
                    "category": "other",
                }
                candidate |= {
                    "sensitive": False,
                    "confidence": "high",
                    "evidence": [{"event_id": event_id, "quote": found[0]}],
                }
                candidates.append(candidate)
        return {"candidates": candidates}

    def _odd(self, asked: Asked, right: Json, events: list[str]) -> Json:
        how = self._rng.choice((*_SHAPES, *_SHAPES, *_SILENT, "cut", "long"))
        if how == "twice":
            return {"calls": [right, right]}
        if how in _SILENT:
            self.failures += 1
            return {
                "text": {
                    "text": "Nothing comes to mind.",
                    "schema": '{"type": "object", "properties": {}}',
                    "empty": "",
                }[how]
            }
        if how == "cut":
            self.maimed.update(events)
            return {"call": right, "as": "cut"}
        if how == "long" and asked.phase == "observer" and right["candidates"]:
            self.maimed.update(events)
            right["candidates"][0]["content"] = "long " * 10_000
            return {"call": right}
        return {"call": right, "as": how} if how in _SHAPES else {"call": right}


def _decide(asked: Asked) -> list[Json]:
    """What a careful reader would decide, fact by fact."""
    known = {fact["content"]: fact["id"] for fact in asked.facts()}
    home = next((content for content in known if content.startswith(_LIVES)), None)
    candidates = asked.candidates()
    homes = [candidate["candidate"] for candidate in candidates if candidate["content"].startswith(_LIVES)]
    decisions = []
    for candidate in candidates:
        content, number = candidate["content"], candidate["candidate"]
        action, scope, target = "create", "workspace", None
        thing = content.removeprefix(_LIKES).removeprefix(_REALLY).removeprefix(_STOPPED)
        less, more = _LIKES + thing, _REALLY + thing
        if content in known:
            action, target = "skip", known[content]
        elif content.startswith(_LIVES):
            scope = "global"
            if number != homes[-1]:
                action = "skip"
            elif home is not None:
                action, target = "supersede", known[home]
        elif content.startswith(_MOTTO):
            scope = "global"
        elif content.startswith(_STOPPED):
            target = known.get(more) or known.get(less)
            action = "retire" if target else "skip"
        elif content.startswith(_REALLY) and less in known:
            action, target = "update", known[less]
        elif content.startswith(_LIKES) and more in known:
            action, target = "skip", known[more]
        decisions.append(
            {"reason": "by the rules", "candidate": number, "action": action, "scope": scope, "target": target}
        )
    return decisions

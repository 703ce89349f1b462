"""The reflector: one question to the model, what becomes of the candidates beside what is known."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

from services.extraction.models.gate import Turn
from services.extraction.models.tool import Tool
from services.extraction.observer.candidates import plain
from services.extraction.prompts import REFLECTOR
from shared.rpc.messages import Action, Candidate, ClaimedRun, Decision, KnownFact, Scope
from shared.text.normal import MAX_CONTENT

if TYPE_CHECKING:
    # The library behind it is loaded only where a model is configured.
    from services.extraction.models.client import ModelClient

MAX_REASON = 500
_ACTIONS: frozenset[str] = frozenset(get_args(Action))
_SCOPES: frozenset[str] = frozenset(get_args(Scope))
_DECISION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "candidate": {"type": "integer"},
        "action": {"type": "string", "enum": list(get_args(Action))},
        "scope": {"type": "string", "enum": list(get_args(Scope))},
        "target": {"type": ["string", "null"]},
        "content": {"type": ["string", "null"]},
        "reason": {"type": "string"},
    },
    "required": ["candidate", "action", "scope", "target", "reason"],
}
DECIDE = Tool(
    phase="reflector",
    name="decide",
    description="Decides on every candidate.",
    schema={
        "type": "object",
        "properties": {"decisions": {"type": "array", "items": _DECISION}},
        "required": ["decisions"],
    },
    key="decisions",
    marks=frozenset({"candidate", "action"}),
)


async def reflect(run: ClaimedRun, candidates: Sequence[Candidate], model: "ModelClient", turn: Turn) -> list[Decision]:
    """One decision per candidate. Raises TryFailed."""
    return read_decisions(await model.items(DECIDE, REFLECTOR, question(run, candidates), turn), len(candidates))


def question(run: ClaimedRun, candidates: Sequence[Candidate]) -> str:
    lines = [
        "Known facts, one a line:" if run.facts else "No facts are known yet.",
        *(_line(_fact(fact)) for fact in run.facts),
        f"Free places: workspace {run.free.workspace}, global {run.free.global_}.",
        "Candidates, one a line:",
        *(_line(_candidate(index, candidate)) for index, candidate in enumerate(candidates)),
    ]
    return "\n".join(lines)


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in fields.items() if value is not None}, ensure_ascii=False)


def _fact(fact: KnownFact) -> dict[str, Any]:
    return {
        "id": str(fact.id),
        "content": fact.content,
        "scope": fact.scope,
        "category": fact.category,
        "locked": fact.locked,
        "valid_from": fact.valid_from,
    }


def _candidate(index: int, candidate: Candidate) -> dict[str, Any]:
    fields = candidate.model_dump(exclude={"evidence"}, exclude_none=True)
    return {"candidate": index, **fields, "quotes": [evidence.quote for evidence in candidate.evidence]}


def _index(value: object) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 5:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def read_decisions(items: Sequence[Mapping[str, Any]], count: int) -> list[Decision]:
    """The first valid decision on each candidate; who has none is skipped, with `undecided` or what was wrong as the reason."""
    decided: dict[int, Decision] = {}
    wrong: dict[int, str] = {}
    for item in items:
        index = _index(item.get("candidate"))
        if index is None or index >= count or index in decided:
            continue
        action, scope = item.get("action"), item.get("scope", "workspace")
        if not isinstance(action, str) or action not in _ACTIONS:
            wrong[index] = "unknown action"
            continue
        if not isinstance(scope, str) or scope not in _SCOPES:
            wrong[index] = "unknown scope"
            continue
        target, content = item.get("target"), item.get("content")
        decided[index] = Decision(
            candidate=index,
            action=cast(Action, action),
            scope=cast(Scope, scope),
            target=plain(target, 200).strip() or None,
            content=plain(content, 8 * MAX_CONTENT) or None,
            reason=plain(item.get("reason"), MAX_REASON),
        )
    return [
        decided.get(index) or Decision(candidate=index, action="skip", reason=wrong.get(index, "undecided"))
        for index in range(count)
    ]

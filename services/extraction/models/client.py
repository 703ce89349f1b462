"""A model entry as the phases use it: a question in, the items of its reply out, within bounds."""

import asyncio
import json
import time
from types import TracebackType
from typing import Any, Self

from services.extraction.models.entries import ModelEntry
from services.extraction.models.faults import ModelFault, TryFailed, TryOutcome
from services.extraction.models.gate import Gate, Turn
from services.extraction.models.provider import Mode, Reply, ask, build_model
from services.extraction.models.repair import Unreadable, read_items
from services.extraction.models.tool import Tool
from services.extraction.models.wire import bounded_client
from shared.telemetry.metrics import MODEL_REQUESTS, MODEL_SECONDS, MODEL_TOKENS
from shared.telemetry.tracing import span

# Requests per phase and try, whatever they are for: repairing a reply or finding a way of asking that the model takes.
ROUNDS = 3
MODES: tuple[Mode, ...] = ("tool", "json_schema", "text")
# A reply above this is read in a thread.
_LONG = 64 * 1024
_MAX_CALLS = 8
# A 4xx for these is about this window, not about the way of asking.
_ABOUT_THE_WINDOW = frozenset({"context_window", "content_filter", "status_413"})


class ModelClient:
    """A context: it ends the entry's connections. Raises ValueError with a line for the operator where the entry cannot be used."""

    def __init__(self, entry: ModelEntry, *, probe_s: float) -> None:
        self.entry = entry
        self.gate = Gate(entry.name, probe_s=probe_s, patience_s=2 * entry.timeout_s + 5)
        self._http = bounded_client()
        self._model = build_model(entry, self._http)
        self._modes = MODES if entry.output == "auto" else (entry.output,)
        self._first = 0
        self._proven = False

    async def __aenter__(self) -> Self:
        await self._model.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._model.__aexit__(kind, error, trace)
        await self._http.aclose()

    async def items(self, tool: Tool, system: str, user: str, turn: Turn) -> list[dict[str, Any]]:
        """The items of the reply. Raises TryFailed."""
        mode = self._first
        note = ""
        failure = TryFailed("unreadable", tool.phase)
        for _ in range(ROUNDS):
            await self.gate.enter(turn)
            try:
                reply = await self._ask(self._modes[mode], tool, system, user + note)
                self.gate.answered(turn)
                items = await _read(reply, tool)
            except ModelFault as fault:
                if fault.kind == "rejected" and fault.reason not in _ABOUT_THE_WINDOW and mode + 1 < len(self._modes):
                    mode += 1
                    continue
                if fault.kind != "unreadable":
                    raise await self.gate.failed(self._judged(fault), turn) from None
                self.gate.answered(turn)
                failure, note = TryFailed("unreadable", fault.reason), ""
            except Unreadable:
                self._accept(mode)
                silent = self._modes[mode] == "tool" and not reply.calls
                outcome: TryOutcome = "no_tool_call" if silent else "unreadable"
                MODEL_REQUESTS.labels(tool.phase, outcome).inc()
                failure, note = TryFailed(outcome, tool.phase), _NOTE.format(name=tool.name, key=tool.key)
            else:
                self._accept(mode)
                MODEL_REQUESTS.labels(tool.phase, "ok").inc()
                return items
        raise failure

    def _judged(self, fault: ModelFault) -> ModelFault:
        """A 4xx to every way of asking means that the entry cannot serve, unless it has served before."""
        if fault.kind == "rejected" and fault.reason not in _ABOUT_THE_WINDOW and not self._proven:
            return ModelFault("unsupported", fault.reason)
        return fault

    def _accept(self, mode: int) -> None:
        self._first, self._proven = mode, True

    async def _ask(self, mode: Mode, tool: Tool, system: str, user: str) -> Reply:
        system += (
            _CALL.format(name=tool.name)
            if mode == "tool"
            else _SHAPE.format(name=tool.name, schema=json.dumps(tool.schema))
        )
        started = time.perf_counter()
        with span(f"model {tool.phase}"):
            try:
                reply = await ask(self._model, mode, tool, (system, user), self.entry.timeout_s)
                MODEL_TOKENS.labels(tool.phase, "input").inc(reply.input_tokens)
                MODEL_TOKENS.labels(tool.phase, "output").inc(reply.output_tokens)
                if reply.filtered:
                    raise ModelFault("rejected", "content_filter")
            except ModelFault as fault:
                MODEL_REQUESTS.labels(tool.phase, fault.kind).inc()
                raise
            except asyncio.CancelledError:
                MODEL_REQUESTS.labels(tool.phase, "cancelled").inc()
                raise
            finally:
                MODEL_SECONDS.labels(tool.phase).observe(time.perf_counter() - started)
        return reply


_CALL = "\n\nAnswer with one call of `{name}` and nothing else."
_SHAPE = "\n\nAnswer with one JSON object and nothing else: the arguments of `{name}`, which this schema describes.\n{schema}"
_NOTE = "\n\n(Your last reply could not be read. Reply once more, by `{name}` alone, with the list `{key}`.)"


async def _read(reply: Reply, tool: Tool) -> list[dict[str, Any]]:
    """Raises Unreadable where neither the calls nor the text hold the list. A tool called twice counts as one call with both lists."""
    size = len(reply.text) + sum(len(call) for call in reply.calls if isinstance(call, str))
    if size > _LONG:
        return await asyncio.to_thread(_read_all, reply, tool)
    return _read_all(reply, tool)


def _read_all(reply: Reply, tool: Tool) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    readable = 0
    for said in reply.calls[:_MAX_CALLS] or [reply.text]:
        try:
            listed = read_items(said, tool)
        except Unreadable:
            continue
        readable += 1
        items += listed if readable == 1 else [item for item in listed if item not in items]
    if not readable:
        raise Unreadable
    return items

"""A scripted OpenAI-compatible model server, to test Keepsake and to try it without a key.

    python -m tests.support.model_server --port 8099 [--script rules.json]

Point Keepsake at it with KEEPSAKE_MODEL=openai:scripted and KEEPSAKE_MODEL_BASE_URL=http://127.0.0.1:8099/v1. Without a script it
proposes the first "I am / I like / my name is …" sentence of the window with its real event id, and decides to create it.

A script is a list of rules; the first that fits a request answers it:

    {"phase": "observer" | "reflector",    any phase if absent, told by the tool's name in the request
     "when": "text" | ["all", "of", "these"], which must stand in the messages
     "given": "tools" | "json_schema" | "text",  the way the request asks for its reply
     "times": 3,                            spent after so many; for ever if absent
     "reply": {…}}

and a reply is one of

    {"call": {…}}                arguments of the tool; a string goes out as it is. `"as"` makes another shape of it (see SHAPES)
    {"calls": [{…}, {…}]}        the tool called more than once
    {"all": {"action": "create", "scope": "global"}}   one such decision per candidate of the request
    {"text": "…", "repeat": 1}   a message without a call
    {"status": 429, "body": "…", "headers": {…}}   any status, any body
    {"hang": 30}                 silence for so many seconds, then the connection is dropped
    {"drop": true}               the connection breaks in mid-reply
    {"stream": 1000000000, "every": 0}   a reply of so many bytes that never becomes JSON, a piece each `every` seconds
    {"default": true}            what would be said without a script; `"delay": 0.5` before any reply waits so long

In arguments, "$event:words" is the id of the chat whose text holds these words, "$fact:words" the id of such a known fact.

`POST /script` (a list of rules) replaces the script, `GET /requests` shows the requests so far as `[{at, phase, given, model, status,
body, usage}]`, `DELETE /requests` forgets them, `POST /refuse {"seconds": 3}` closes the port for that long.
"""

import argparse
import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

Json = Any
TOOLS = {"propose_candidates": "observer", "decide": "reflector"}
KEYS = {"observer": "candidates", "reflector": "decisions"}

SHAPES: dict[str, Callable[[str, str], str]] = {
    "fence": lambda _, arguments: f"```json\n{arguments}\n```",
    "prose": lambda _, arguments: (
        f"Sure! Here is what I found [as asked]:\n\n{arguments}\n\nLet me know if that helps."
    ),
    "think": lambda _, arguments: f'<think>The user says {{"hi"}} and [so on]</think>\n{arguments}',
    "bare_list": lambda key, arguments: json.dumps(json.loads(arguments)[key]),
    "renamed_key": lambda key, arguments: json.dumps({"results": json.loads(arguments)[key]}),
    "bad_escape": lambda _, arguments: arguments.replace('": "', '": "\\u12 \\x ', 1),
    "cut": lambda _, arguments: arguments[: len(arguments) * 2 // 3],
    "text": lambda _, arguments: arguments,
}
_CHAT = re.compile(r'<chat-(\w+) id=("(?:[^"\\]|\\.)*").*?>\n<user-\1>\n(.*?)\n</user-\1>', re.DOTALL)
_FACT = re.compile(r'^\{"id": "([0-9a-f-]{36})".*$', re.MULTILINE)
_CANDIDATE = re.compile(r'^\{"candidate": \d+.*$', re.MULTILINE)
_STATEMENT = re.compile(
    r"\b(?:I am|I'm|I like|I love|I prefer|I live|I work|My name is|Call me)\b[^.!?\n]*", re.IGNORECASE
)


class ScriptedModel:
    """The server: `async with ScriptedModel(port) as model` serves until the end of the block. Port 0 takes a free one."""

    def __init__(self, port: int = 0, rules: list[Json] | None = None) -> None:
        self._port = port
        self.rules: list[Json] = rules or []
        self.requests: list[Json] = []
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/script", self._set_script, methods=["POST"]),
                Route("/requests", self._show, methods=["GET", "DELETE"]),
                Route("/refuse", self._refuse, methods=["POST"]),
            ]
        )
        self._refuse_s = 0.0
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def script(self, *rules: Json) -> None:
        self.rules = list(rules)
        self.requests.clear()

    def seen(self, phase: str | None = None) -> list[Json]:
        return [request for request in self.requests if phase in (None, request["phase"])]

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self.serve(), name="scripted-model")
        while self._server is None or not self._server.started:
            if self._serving.done():
                await self._serving
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._serving is not None
        if self._server is not None:
            self._server.should_exit = self._server.force_exit = True
        with suppress(asyncio.CancelledError):
            await self._serving

    async def serve(self) -> None:
        """Serves; after `/refuse` the port is closed for a while and then served again."""
        while True:
            listener = socket.create_server(("127.0.0.1", self._port), backlog=512)
            self._port = listener.getsockname()[1]
            config = uvicorn.Config(self.app, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
            self._server = _NoSignals(config)
            await self._server.serve(sockets=[listener])
            listener.close()
            if not self._refuse_s:
                return
            refuse_s, self._refuse_s, self._server = self._refuse_s, 0.0, None
            await asyncio.sleep(refuse_s)

    async def refuse(self, seconds: float) -> None:
        """Closes the port: connections are refused until it opens again."""
        assert self._server is not None
        self._refuse_s = seconds
        self._server.should_exit = self._server.force_exit = True

    async def _refuse(self, request: Request) -> Response:
        seconds = float((await request.json())["seconds"])
        asyncio.get_running_loop().call_later(0.05, lambda: asyncio.ensure_future(self.refuse(seconds)))
        return JSONResponse({})

    async def _set_script(self, request: Request) -> Response:
        self.rules = await request.json()
        return JSONResponse({"rules": len(self.rules)})

    async def _show(self, request: Request) -> Response:
        shown = list(self.requests)
        if request.method == "DELETE":
            self.requests.clear()
        return JSONResponse(shown)

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        asked = Asked(body)
        reply = self._reply_for(asked)
        entry = {
            "at": time.time(),
            "phase": asked.phase,
            "given": asked.given,
            "model": body.get("model"),
            "status": reply.get("status", 200),
            "body": body,
        }
        self.requests.append(entry)
        if delay := reply.get("delay"):
            await asyncio.sleep(delay)
        if hang := reply.get("hang"):
            await asyncio.sleep(hang)
        if hang or reply.get("drop"):
            return Broken()
        if size := reply.get("stream"):
            return StreamingResponse(endless(size, reply.get("every", 0)), media_type="application/json")
        if "status" in reply or "body" in reply:
            error = json.dumps({"error": {"message": "scripted", "type": "scripted"}})
            return Response(
                reply.get("body", error),
                status_code=reply.get("status", 200),
                headers={"content-type": "application/json", **reply.get("headers", {})},
            )
        said = completion(asked, message(asked, reply))
        entry["usage"] = said["usage"]
        return JSONResponse(said)

    def _reply_for(self, asked: "Asked") -> Json:
        for rule in self.rules:
            when = rule.get("when", [])
            if (
                rule.get("times", 1) > 0
                and rule.get("phase") in (None, asked.phase)
                and rule.get("given") in (None, asked.given)
                and all(words in asked.text for words in ([when] if isinstance(when, str) else when))
            ):
                if "times" in rule:
                    rule["times"] -= 1
                return rule["reply"]
        return {"default": True}


class _NoSignals(uvicorn.Server):
    """Leaves signal handlers to whoever runs the loop."""

    def capture_signals(self) -> Any:
        return nullcontext()


class Broken(Response):
    """Promises more bytes than come, so that the server drops the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id": "x', "more_body": True})
        raise ConnectionAbortedError


async def endless(size: int, every: float) -> AsyncIterator[bytes]:
    piece = b" " * (1 if every else 65536)
    for _ in range(size // len(piece)):
        yield piece
        await asyncio.sleep(every)


class Asked:
    """What a request asks: phase, way of replying, and the texts in it."""

    def __init__(self, body: Json) -> None:
        contents = [item.get("content") for item in body.get("messages", [])]
        self.text = "\n".join(part for part in contents if isinstance(part, str))
        self.model = str(body.get("model"))
        tools = [tool["function"]["name"] for tool in body.get("tools") or []]
        schema = (body.get("response_format") or {}).get("json_schema", {}).get("name")
        self.given = "tools" if tools else "json_schema" if schema else "text"
        names = [*tools, schema, *(name for name in TOOLS if name in self.text)]
        self.tool = next((name for name in names if name in TOOLS), None)
        self.phase = TOOLS[self.tool] if self.tool else None

    def chats(self) -> list[tuple[str, str]]:
        """(event id, prompt) of each chat of the window."""
        return [(json.loads(found[2]), found[3]) for found in _CHAT.finditer(self.text)]

    def candidates(self) -> list[Json]:
        return [json.loads(line) for line in _CANDIDATE.findall(self.text)]

    def facts(self) -> list[Json]:
        return [json.loads(found[0]) for found in _FACT.finditer(self.text)]

    def resolve(self, value: Json) -> Json:
        """Puts real ids in place of `$event:words` and `$fact:words`."""
        if isinstance(value, dict):
            return {key: self.resolve(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.resolve(inner) for inner in value]
        if isinstance(value, str) and value.startswith("$event:"):
            return next((id_ for id_, prompt in self.chats() if value[7:] in prompt), value)
        if isinstance(value, str) and value.startswith("$fact:"):
            return next((fact["id"] for fact in self.facts() if value[6:] in fact["content"]), value)
        return value

    def default(self) -> Json:
        """What a very simple model would say: the first statement about oneself; create, unless it is known."""
        if self.phase == "observer":
            for event_id, prompt in self.chats():
                if said := _STATEMENT.search(prompt):
                    quote = said[0].strip()[:300]
                    evidence = [{"event_id": event_id, "quote": quote}]
                    fact = {"content": f"User said: {quote}", "category": "other", "sensitive": False}
                    candidate = {**fact, "confidence": "high", "reasoning": "stated plainly", "evidence": evidence}
                    return {"candidates": [candidate]}
            return {"candidates": []}
        known = {fact["content"]: fact["id"] for fact in self.facts()}
        return {
            "decisions": [
                {
                    "candidate": candidate["candidate"],
                    "action": "skip" if candidate["content"] in known else "create",
                    "scope": "workspace",
                    "target": known.get(candidate["content"]),
                    "reason": "known" if candidate["content"] in known else "new",
                }
                for candidate in self.candidates()
            ]
        }


def message(asked: Asked, reply: Json) -> Json:
    """The assistant's message for a scripted reply."""
    if "text" in reply:
        return {"role": "assistant", "content": reply["text"] * reply.get("repeat", 1)}
    if asked.phase is None:
        return {"role": "assistant", "content": "OK."}
    if "all" in reply:
        given = [{"candidate": candidate["candidate"], **reply["all"]} for candidate in asked.candidates()]
        calls: list[Json] = [{"decisions": given}]
    elif "calls" in reply:
        calls = reply["calls"]
    else:
        calls = [reply["call"] if "call" in reply else asked.default()]
    arguments = [
        call if isinstance(call, str) else json.dumps(asked.resolve(call), ensure_ascii=False) for call in calls
    ]
    if "as" in reply or asked.given != "tools":
        return {"role": "assistant", "content": SHAPES[reply.get("as", "text")](KEYS[asked.phase], arguments[0])}
    tool_calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": asked.tool, "arguments": text}}
        for n, text in enumerate(arguments)
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def completion(asked: Asked, said: Json) -> Json:
    tokens_in, tokens_out = len(asked.text) // 4, len(json.dumps(said)) // 4
    return {
        "id": f"chatcmpl-{time.time_ns()}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": asked.model,
        "choices": [{"index": 0, "finish_reason": "tool_calls" if "tool_calls" in said else "stop", "message": said}],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    }


Model = TypeVar("Model", bound=ScriptedModel)


@contextmanager
def running_model() -> Iterator[ScriptedModel]:
    """A server in a thread of its own, for tests that block."""
    with serving(ScriptedModel()) as model:
        yield model


@contextmanager
def serving(model: Model) -> Iterator[Model]:
    """The same for a model that was made already."""
    started, stop = threading.Event(), threading.Event()

    async def run() -> None:
        async with model:
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="scripted-model")
    thread.start()
    try:
        started.wait(10)
        yield model
    finally:
        stop.set()
        thread.join(10)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.model_server", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--script", type=Path, help="a JSON file with a list of rules")
    arguments = parser.parse_args()
    rules = json.loads(arguments.script.read_text()) if arguments.script else []
    model = ScriptedModel(arguments.port, rules)
    print(f"scripted model on http://127.0.0.1:{arguments.port}/v1 (model openai:scripted)", flush=True)
    with suppress(KeyboardInterrupt):
        asyncio.run(model.serve())


if __name__ == "__main__":
    main()

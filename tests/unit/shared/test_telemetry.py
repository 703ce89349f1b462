"""Logs are one JSON object per line with the ids there are; neither they nor spans hold what an error or a library was given."""

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from starlette.applications import Starlette
from starlette.testclient import TestClient

from shared.rpc.messages import SERVICE, Done, FailRun
from shared.rpc.server import Method, rpc_route
from shared.telemetry import tracing
from shared.telemetry.logs import configure_logs
from shared.telemetry.tracing import span

RUN = UUID(int=7)
SECRET = "what was said"


class Logged(StringIO):
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Logged]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    lines = Logged()
    monkeypatch.setattr("sys.stderr", lines)
    configure_logs("test", level="DEBUG", log_format="json")
    yield lines
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_TRACER", provider.get_tracer("test"))
    return exporter


def test_a_line_is_an_event_with_its_ids(logged: Logged, spans: InMemorySpanExporter) -> None:
    with span("work"), structlog.contextvars.bound_contextvars(run_id=str(RUN)):
        trace_id = f"{trace.get_current_span().get_span_context().trace_id:032x}"
        structlog.get_logger().info("run_ended", chats=3)
    [line] = logged.lines()
    assert line["event"] == "run_ended"
    assert (line["service"], line["level"], line["chats"]) == ("test", "info", 3)
    assert (line["run_id"], line["trace_id"]) == (str(RUN), trace_id)


def test_an_exception_is_its_type_and_places(logged: Logged) -> None:
    try:
        raise ValueError(SECRET)
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("went wrong")
    for line in logged.lines():
        assert line["exception"] == "ValueError"
        assert SECRET not in str(line)


def test_a_library_says_its_template(logged: Logged) -> None:
    logging.getLogger("library").warning("cannot send %s", SECRET)
    logging.getLogger("library").warning(f"cannot send {SECRET}")
    assert [line["event"] for line in logged.lines()] == ["library: cannot send %s", "library: message"]


def test_a_call_says_for_which_run(logged: Logged) -> None:
    async def fail(_: FailRun, __: str) -> Done:
        structlog.get_logger().warning("noted")
        return Done()

    app = Starlette(routes=[rpc_route({"FailRun": Method(FailRun, fail)}, lambda *_: "extraction")])
    ask = FailRun(run_id=RUN, outcome="released", reason="", extractor="offline")
    with TestClient(app) as client:
        headers = {"Content-Type": "application/json"}
        client.post(f"/{SERVICE}/FailRun", content=ask.model_dump_json(), headers=headers).raise_for_status()
    [noted] = [line for line in logged.lines() if line["event"] == "noted"]
    assert noted["run_id"] == str(RUN)


def test_a_span_keeps_an_errors_type_alone(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match=SECRET), span("work"):
        raise ValueError(SECRET)
    [ended] = spans.get_finished_spans()
    assert ended.status.status_code is StatusCode.ERROR
    assert dict(ended.attributes or {}) == {"error.type": "ValueError"}
    assert SECRET not in ended.to_json()
    assert ended.events == ()

"""One chat followed through the running system by its trace, at a collector of the test's own."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from starlette.requests import Request
from starlette.responses import Response

from tests.conftest import SystemFactory
from tests.support.model_server import ScriptedModel, serving
from tests.support.otlp import Receiver, running_receiver
from tests.support.system import System
from tests.support.waiting import until

SAID = "I am a nurse in Lisbon, and my cat is called Xanthippe."
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
RPC = "/keepsake.memory.v1.MemoryStore/{method}"
COMPLETE = "keepsake.memory.v1.MemoryStore/CompleteRun"


class ListeningModel(ScriptedModel):
    """Remembers what it was sent beside the body."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[dict[str, str]] = []

    async def _complete(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        return await super()._complete(request)


@pytest.fixture
def model() -> Iterator[ListeningModel]:
    with serving(ListeningModel()) as model:
        yield model


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with running_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        yield receiver


def records(system: System, topic: str) -> list[Any]:
    """What stands in a topic now."""

    async def read() -> list[Any]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=system.broker.bootstrap,
            auto_offset_reset="earliest",
            group_id=None,
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            found = await consumer.getmany(timeout_ms=3000)
            return [record for some in found.values() for record in some]
        finally:
            await consumer.stop()

    return asyncio.run(read())


def trace_of(record: Any) -> str:
    return str(dict(record.headers)["traceparent"].decode().split("-")[1])


def test_one_chat_is_followed_from_its_request_to_its_change(
    system: SystemFactory, receiver: Receiver, model: ListeningModel
) -> None:
    started = system(model="openai:scripted", model_base_url=model.url).start(
        "memory_store", "chat_ingest", "extraction"
    )
    with started.client("chat_ingest", traceparent=f"00-{TRACE}-{CALLER}-01") as client:
        client.post("/v1/chats", json={"user": "tracy", "prompt": SAID, "response": "Noted."}).raise_for_status()
    until(lambda: bool(receiver.named("run")) and bool(receiver.named(COMPLETE)))

    [posted] = receiver.named("POST /v1/chats", "chat-ingest")
    assert (posted.trace, posted.parent) == (TRACE, CALLER)
    [published] = records(started, started.topic_chat_events)
    assert dict(published.headers)["traceparent"].decode() == f"00-{TRACE}-{posted.span}-01"

    # Linked and not a child: one poll and one run serve chats of many traces.
    stage = next(span for span in receiver.named("stage", "extraction") if span.links)
    [run] = receiver.named("run", "extraction")
    for span in (stage, run):
        assert (TRACE, posted.span) in span.links
        assert span.trace != TRACE
        assert span.parent == ""

    # The calls that they make are theirs, in both services.
    staged = [span for span in receiver.named(f"POST {RPC}", "memory-store") if span.trace == stage.trace]
    assert [span.parent for span in staged] == [stage.span]
    [completed] = receiver.named(COMPLETE, "memory-store")
    assert completed.trace == run.trace
    [answered] = [span for span in receiver.spans if span.span == completed.parent]
    assert (answered.name, answered.parent) == (f"POST {RPC}", run.span)
    assert {span.name for span in receiver.spans if span.parent == run.span} >= {"model observer", "model reflector"}

    # The run's trace is on what it changed, and its id on the span.
    until(lambda: len(records(started, started.topic_memory_changes)) > 0)
    [change] = records(started, started.topic_memory_changes)
    assert json.loads(change.value)["type"] == "fact.created"
    assert trace_of(change) == run.trace
    with started.client("memory_store") as store:
        [shown] = store.get("/v1/runs", params={"user": "tracy", "workspace": "default"}).json()["items"]
    assert run.attributes["keepsake.run_id"] == shown["id"]

    # Logs name both.
    [ended] = [line for line in map(json.loads, started.log("extraction").splitlines()) if line["event"] == "run_ended"]
    assert (ended["run_id"], ended["trace_id"]) == (shown["id"], run.trace)

    assert len(model.headers) == 2
    assert not any({"traceparent", "tracestate", "baggage"} & set(headers) for headers in model.headers)
    for span in receiver.spans:
        assert span.events == 0
        assert not any(word in span.everything for word in ("tracy", "nurse", "Lisbon", "Xanthippe"))


def test_what_a_person_changes_carries_their_request(system: SystemFactory, receiver: Receiver) -> None:
    started = system().start("memory_store")
    with started.client("memory_store", traceparent=f"00-{TRACE}-{CALLER}-01") as client:
        client.post("/v1/facts", json={"user": "tracy", "content": "User sails"}).raise_for_status()
    until(lambda: len(records(started, started.topic_memory_changes)) > 0)
    [change] = records(started, started.topic_memory_changes)
    assert trace_of(change) == TRACE


def test_without_a_collector_nothing_is_recorded_and_the_callers_trace_goes_on(system: SystemFactory) -> None:
    started = system().start("memory_store", "chat_ingest")
    with started.client("chat_ingest", traceparent=f"00-{TRACE}-{CALLER}-01") as client:
        client.post("/v1/chats", json={"user": "tracy", "prompt": "Hi", "response": "Hello"}).raise_for_status()
    [published] = records(started, started.topic_chat_events)
    assert trace_of(published) == TRACE

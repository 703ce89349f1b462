"""The worker with a real model server, beside a store that can be made to fail at will."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from services.extraction.models.client import ModelClient
from services.extraction.models.entries import ModelEntry
from services.extraction.settings import ExtractionSettings
from services.extraction.worker.worker import Worker
from shared.loops import Loops
from shared.rpc.messages import CompleteRun, FailRun, KnownFact
from tests.support.fake_store import FakeStore, chat
from tests.support.model_server import Asked, ScriptedModel

PROBE_MS = 200


def entry(model: ScriptedModel, name: str = "m", **fields: Any) -> ModelEntry:
    return ModelEntry(**{"name": name, "model": "openai:scripted", "base_url": model.url, "timeout_s": 0.5} | fields)


@asynccontextmanager
async def working(store: FakeStore, *entries: ModelEntry, **settings: Any) -> AsyncIterator[asyncio.Event]:
    quick: dict[str, Any] = {"service_key": "k", "poll_interval_ms": 20, "breaker_probe_ms": PROBE_MS, "lease_ms": 3000}
    chosen = ExtractionSettings(**quick | {"shutdown_grace_s": 6.0} | settings)
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        models = {
            each.name: await stack.enter_async_context(ModelClient(each, probe_s=chosen.breaker_probe_ms / 1000))
            for each in entries
        }
        task = asyncio.create_task(Worker(chosen, store, models, Loops(), stop).run())
        try:
            yield stop
        finally:
            stop.set()
            await task


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (the condition is outside of this loop)
            await asyncio.sleep(0.005)


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as server:
        yield server


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def said(user: str = "dana") -> list[Any]:
    return [chat(f"{user}-1", f"I like tea and I am {user}")]


def fact(content: str) -> KnownFact:
    return KnownFact(id=uuid4(), content=content, scope="workspace", category="other", locked=False, version=1)


def outcomes(store: FakeStore) -> list[str]:
    return [end.outcome if isinstance(end, FailRun) else "complete" for end in store.ends]


async def test_a_statement_becomes_a_candidate_and_a_decision(store: FakeStore, model: ScriptedModel) -> None:
    store.add("dana", [chat("e1", "Call me Dana, I am a nurse in Lisbon")])
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    end = store.ends[0]
    assert isinstance(end, CompleteRun)
    assert [each.candidate.evidence[0].quote for each in end.candidates] == ["Call me Dana, I am a nurse in Lisbon"]
    assert [(decision.candidate, decision.action) for decision in end.decisions] == [(0, "create")]
    assert (end.extractor, end.model) == ("model", "m")
    assert end.prompt_version
    assert [request["phase"] for request in model.requests] == ["observer", "reflector"]


async def test_no_candidates_need_no_reflector(store: FakeStore, model: ScriptedModel) -> None:
    store.add("dana", [chat("e1", "What is the capital of France?")])
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    assert isinstance(store.ends[0], CompleteRun)
    assert [request["phase"] for request in model.requests] == ["observer"]


async def test_dropped_candidates_stay_on_the_run_behind_the_kept(store: FakeStore, model: ScriptedModel) -> None:
    proposed = [
        {
            "content": "User hates jazz",
            "confidence": "high",
            "evidence": [{"event_id": "dana-1", "quote": "I hate jazz"}],
        },
        {
            "content": "User likes tea",
            "confidence": "high",
            "evidence": [{"event_id": "dana-1", "quote": "I like tea"}],
        },
    ]
    model.script({"phase": "observer", "reply": {"call": {"candidates": proposed}}})
    store.add("dana", said())
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    end = store.ends[0]
    assert isinstance(end, CompleteRun)
    assert [(each.candidate.content, each.dropped) for each in end.candidates] == [
        ("User likes tea", None),
        ("User hates jazz", "quote_not_found"),
    ]
    assert [decision.candidate for decision in end.decisions] == [0]


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ({"status": 401}, "released"),
        ({"status": 403}, "released"),
        ({"status": 429, "headers": {"retry-after": "30"}}, "released"),
        ({"status": 500}, "model_failed"),
        ({"status": 503}, "model_failed"),
        ({"drop": True}, "model_failed"),
        ({"hang": 3}, "timed_out"),
        ({"stream": 1_000_000, "every": 0.1}, "timed_out"),
        ({"stream": 1_000_000_000}, "unreadable"),
        ({"status": 500, "body": "x" * 600_000}, "unreadable"),
        ({"status": 200, "body": "{}", "headers": {"content-encoding": "gzip"}}, "unreadable"),
        ({"status": 400}, "model_unsupported"),
        ({"status": 413}, "model_failed"),
        ({"status": 200, "body": "<html>hello</html>"}, "unreadable"),
        ({"status": 200, "body": "{}"}, "unreadable"),
        ({"status": 200, "body": '{"id":"x","choices":[]}'}, "unreadable"),
        ({"status": 200, "body": '{"choices":"abc"}'}, "unreadable"),
        ({"text": "There is nothing to remember."}, "no_tool_call"),
        ({"text": ""}, "no_tool_call"),
        ({"call": {}}, "unreadable"),
        ({"call": '{"candidates": [{"content": "User li'}, "unreadable"),
        ({"call": {"type": "object", "properties": {"candidates": {"type": "array"}}}}, "unreadable"),
    ],
)
async def test_each_fault_has_its_outcome(
    store: FakeStore, model: ScriptedModel, reply: dict[str, Any], outcome: str
) -> None:
    model.script({"reply": reply})
    store.add("dana", said())
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    assert outcomes(store)[0] == outcome
    assert len(model.requests) <= 3


async def test_a_refused_connection_releases_and_asks_once_a_probe(store: FakeStore, model: ScriptedModel) -> None:
    async with ScriptedModel() as gone:
        closed = gone.url
    for user in ("a", "b", "c"):
        store.add(user, said(user))
    started = time.monotonic()
    async with working(store, entry(model, base_url=closed), worker_concurrency=1):
        await until(lambda: len(store.ends) >= 4)
    assert set(outcomes(store)) == {"released"}
    assert time.monotonic() - started >= 3 * PROBE_MS / 1000 * 0.9
    assert [claim.only_model for claim in store.claims if claim.only_model] != []


async def test_an_outage_of_three_batches_burns_nothing_and_ends_with_one_request(
    store: FakeStore, model: ScriptedModel
) -> None:
    model.script({"reply": {"status": 500}})
    for user in ("a", "b", "c", "d"):
        store.add(user, said(user))
    async with working(store, entry(model), worker_concurrency=1):
        await until(lambda: len(store.ends) >= 5)
        model.rules.clear()
        healed = time.time()
        await until(lambda: outcomes(store).count("complete") == 4)
    assert set(outcomes(store)) == {"released", "complete"}
    in_first_second = [request for request in model.requests if healed <= request["at"] < healed + 1.0]
    assert len(in_first_second) <= 1


async def test_one_failing_batch_fails_when_others_are_served(store: FakeStore, model: ScriptedModel) -> None:
    model.script({"when": "I am poison", "reply": {"status": 500}})
    for user in ("poison", "b", "c"):
        store.add(user, said(user))
    async with working(store, entry(model), worker_concurrency=1):
        await until(lambda: len(store.ends) == 3)
    assert sorted(outcomes(store)) == ["complete", "complete", "model_failed"]


async def test_another_model_goes_on_while_one_is_out(store: FakeStore, model: ScriptedModel) -> None:
    async with ScriptedModel(rules=[{"reply": {"status": 401}}]) as broken:
        store.add("a", said("a"), model="broken")
        for user in ("b", "c", "d"):
            store.add(user, said(user))
        async with working(store, entry(broken, "broken"), entry(model)):
            await until(lambda: outcomes(store).count("complete") == 3)
    assert set(outcomes(store)) == {"released", "complete"}


@pytest.mark.parametrize("given", ["tools", "json_schema", "text"])
async def test_modes_fall_back_on_a_4xx_and_the_one_that_works_is_kept(
    store: FakeStore, model: ScriptedModel, given: str
) -> None:
    refused = {"tools": [], "json_schema": ["tools"], "text": ["tools", "json_schema"]}[given]
    model.script(*({"given": each, "reply": {"status": 400}} for each in refused))
    store.add("a", said("a"))
    async with working(store, entry(model), worker_concurrency=1):
        await until(lambda: len(store.ends) == 1)
        store.add("b", said("b"))
        await until(lambda: len(store.ends) == 2)
    assert outcomes(store) == ["complete", "complete"]
    assert [request["given"] for request in model.requests] == [*refused, given, given, given, given]


async def test_a_4xx_from_a_model_that_has_served_fails_the_try(store: FakeStore, model: ScriptedModel) -> None:
    model.script({"when": "I am poison", "reply": {"status": 400}})
    store.add("a", said("a"))
    async with working(store, entry(model), worker_concurrency=1):
        await until(lambda: len(store.ends) == 1)
        store.add("poison", said("poison"))
        await until(lambda: len(store.ends) == 2)
    assert outcomes(store) == ["complete", "model_failed"]


async def test_a_reply_is_asked_for_again_and_then_read(store: FakeStore, model: ScriptedModel) -> None:
    model.script({"phase": "observer", "times": 2, "reply": {"text": "I will think about it."}})
    store.add("a", said("a"))
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    assert outcomes(store) == ["complete"]
    assert len(model.seen("observer")) == 3
    assert "could not be read" in str(model.seen("observer")[1]["body"])


async def test_a_run_whose_batch_was_taken_is_given_up(store: FakeStore, model: ScriptedModel) -> None:
    model.script({"reply": {"hang": 5}})
    store.errors["renew"].append("failed_precondition")
    store.add("a", said("a"))
    async with working(store, entry(model, timeout_s=10), lease_ms=1000):
        await until(lambda: bool(store.renewals))
        await until(lambda: len(store.claims) > 5)
        assert store.ends == []
    assert store.ends == []


async def test_a_lease_is_renewed_while_the_store_stumbles(store: FakeStore, model: ScriptedModel) -> None:
    model.script({"times": 1, "reply": {"default": True, "delay": 1.5}})
    store.errors["renew"].extend(["unavailable", "deadline_exceeded"])
    store.add("a", said("a"))
    async with working(store, entry(model, timeout_s=10), lease_ms=1000):
        await until(lambda: bool(store.ends))
    assert outcomes(store) == ["complete"]
    assert len(store.renewals) >= 3


async def test_an_end_whose_answer_is_lost_is_told_again(store: FakeStore, model: ScriptedModel) -> None:
    store.errors["end"].extend(["unavailable", "deadline_exceeded", "unavailable"])
    store.add("a", said("a"))
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    assert outcomes(store) == ["complete"]


async def test_an_end_the_store_cannot_apply_fails_the_try(store: FakeStore, model: ScriptedModel) -> None:
    store.errors["end"].append("invalid_argument")
    store.add("a", said("a"))
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    assert outcomes(store) == ["unreadable"]


async def test_a_superseded_run_is_not_told_again(store: FakeStore, model: ScriptedModel) -> None:
    store.errors["end"].append("failed_precondition")
    store.add("a", said("a"))
    async with working(store, entry(model)):
        await until(lambda: len(model.requests) == 2)
        await until(lambda: len(store.claims) > 5)
    assert store.ends == []


async def test_a_claim_whose_answer_is_lost_keeps_its_run_id(store: FakeStore, model: ScriptedModel) -> None:
    store.errors["claim"].extend(["deadline_exceeded", "unavailable"])
    store.add("a", said("a"))
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    assert len({claim.run_id for claim in store.claims[:3]}) == 1
    assert store.claims[3].run_id != store.claims[2].run_id


async def test_a_claim_that_is_over_is_not_asked_for_again(store: FakeStore, model: ScriptedModel) -> None:
    store.errors["claim"].extend(["unavailable", "failed_precondition"])
    store.add("a", said("a"))
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    first, second, third = (claim.run_id for claim in store.claims[:3])
    assert first == second != third


async def test_stop_lets_a_short_run_finish(store: FakeStore, model: ScriptedModel) -> None:
    model.script({"reply": {"default": True, "delay": 0.2}})
    store.add("a", said("a"))
    async with working(store, entry(model, timeout_s=5)) as stop:
        await until(lambda: bool(model.requests))
        stop.set()
        await until(lambda: bool(store.ends))
    assert outcomes(store) == ["complete"]


async def test_stop_releases_a_run_that_outlasts_the_grace(store: FakeStore, model: ScriptedModel) -> None:
    model.script({"reply": {"hang": 30}})
    store.add("a", said("a"))
    started = time.monotonic()
    async with working(store, entry(model, timeout_s=60), shutdown_grace_s=5.2) as stop:
        await until(lambda: bool(model.requests))
        stop.set()
    assert outcomes(store) == ["released"]
    assert time.monotonic() - started < 5


async def test_a_model_nobody_configured_releases(store: FakeStore, model: ScriptedModel) -> None:
    store.add("a", said("a"), model="elsewhere")
    async with working(store, entry(model)):
        await until(lambda: bool(store.ends))
    end = store.ends[0]
    assert isinstance(end, FailRun)
    assert (end.outcome, end.reason) == ("released", "unknown_model")
    assert end.retry_after_ms > 0


PROPOSED = {
    "candidates": [
        {"content": f"User {n}", "confidence": "high", "evidence": [{"event_id": "a-1", "quote": quote}]}
        for n, quote in enumerate(("I like tea", "I am a"))
    ]
}


@pytest.mark.parametrize(
    ("reply", "contents"),
    [
        ({"call": PROPOSED}, ["User 0", "User 1"]),
        ({"call": PROPOSED, "as": "fence"}, ["User 0", "User 1"]),
        ({"call": PROPOSED, "as": "prose"}, ["User 0", "User 1"]),
        ({"call": PROPOSED, "as": "think"}, ["User 0", "User 1"]),
        ({"call": PROPOSED, "as": "bare_list"}, ["User 0", "User 1"]),
        ({"call": PROPOSED, "as": "renamed_key"}, ["User 0", "User 1"]),
        ({"call": PROPOSED, "as": "bad_escape"}, ["\\u12 \\x User 0", "User 1"]),
        ({"call": PROPOSED, "as": "cut"}, ["User 0"]),
        ({"calls": [PROPOSED, PROPOSED]}, ["User 0", "User 1"]),
        ({"calls": [{"candidates": []}, PROPOSED]}, ["User 0", "User 1"]),
        ({"calls": ["{", PROPOSED]}, ["User 0", "User 1"]),
        ({"text": "x" * 1_000_000}, None),
        ({"text": "<think></think>", "repeat": 70_000}, None),
        ({"call": '{"candidates": [' + "{" * 1_000_000}, None),
    ],
)
async def test_replies_of_every_shape_are_read_or_fail_cleanly(
    store: FakeStore, model: ScriptedModel, reply: dict[str, Any], contents: list[str] | None
) -> None:
    model.script({"phase": "observer", "reply": reply})
    store.add("a", said("a"))
    async with working(store, entry(model, timeout_s=10)):
        await until(lambda: bool(store.ends))
    end = store.ends[0]
    if contents is None:
        assert isinstance(end, FailRun)
        assert end.outcome in ("no_tool_call", "unreadable")
    else:
        assert isinstance(end, CompleteRun)
        assert [each.candidate.content for each in end.candidates if not each.dropped] == contents


@pytest.mark.parametrize(("output", "given"), [("tool", "tools"), ("json_schema", "json_schema"), ("text", "text")])
async def test_a_pinned_mode_is_the_only_one(store: FakeStore, model: ScriptedModel, output: str, given: str) -> None:
    store.add("a", said("a"))
    async with working(store, entry(model, output=output), worker_concurrency=1):
        await until(lambda: len(store.ends) == 1)
        model.script({"reply": {"status": 400}})
        store.add("b", said("b"))
        await until(lambda: len(store.ends) == 2)
    assert outcomes(store) == ["complete", "model_failed"]
    assert {request["given"] for request in model.requests} == {given}


async def test_a_window_that_does_not_fit_is_shortened_before_the_model_is_asked(
    store: FakeStore, model: ScriptedModel
) -> None:
    chats = [chat(f"e{n}", f"I like tea {n}. " + "word " * 300, "word " * 300) for n in range(20)]
    store.add("a", chats)
    small = entry(model, context_tokens=8192)
    async with working(store, small):
        await until(lambda: bool(store.ends))
    assert outcomes(store) == ["complete"]
    [last] = store.shortened
    asked = Asked(model.seen("observer")[0]["body"])
    shown = [event_id for event_id, _ in asked.chats()]
    assert shown == [f"e{n}" for n in range(len(shown))]
    assert 2 <= len(shown) < 20
    assert shown[-1] == last
    assert len(asked.text.encode()) / 3 < 8192


async def test_a_window_that_the_store_does_not_shorten_is_not_read(store: FakeStore, model: ScriptedModel) -> None:
    store.errors["renew"].append("unavailable")
    store.add("a", [chat(f"e{n}", "word " * 300, "word " * 300) for n in range(20)])
    async with working(store, entry(model, context_tokens=8192)):
        await until(lambda: len(store.ends) == 2)
    assert outcomes(store) == ["released", "complete"]
    assert len(model.seen("observer")) == 1


async def test_the_stable_part_of_a_request_comes_first(store: FakeStore, model: ScriptedModel) -> None:
    """What two requests of different people begin with is what a provider's prompt cache serves."""
    model.script({"phase": "observer", "times": 1, "reply": {"text": "Let me think."}})
    for user in ("a", "b"):
        store.add(user, said(user), facts=[fact(f"{user} likes rain")])
    async with working(store, entry(model), worker_concurrency=1):
        await until(lambda: len(store.ends) == 2)
    for phase in ("observer", "reflector"):
        *_, one, two = [request["body"] for request in model.seen(phase)]
        assert [message["role"] for message in one["messages"]] == ["system", "user"]
        assert one["tools"] == two["tools"]
        assert one["messages"][0] == two["messages"][0]
        assert len(one["messages"][0]["content"]) > 2 * len(one["messages"][1]["content"])
    first, repaired = [request["body"]["messages"][1]["content"] for request in model.seen("observer")][:2]
    assert repaired.startswith(first)
    assert len(repaired) < len(first) + 200

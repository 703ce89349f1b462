"""A model that fails in every way, seen from outside (D3, D4, D13, E13, E18)."""

import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.conftest import SystemFactory
from tests.support.model_server import Asked, ScriptedModel, running_model
from tests.support.system import System

Json = Any
PROBE_MS = 1000


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with running_model() as server:
        yield server


@pytest.fixture
def other() -> Iterator[ScriptedModel]:
    with running_model() as server:
        yield server


class Keepsake:
    def __init__(self, system: System) -> None:
        self.system = system
        self._store = system.client("memory_store")
        self._ingest = system.client("chat_ingest")

    def counted(self, metric: str, *labels: str) -> int:
        """The sum of a metric's samples that have these labels, as `direction="input"`."""
        with self.system.client("extraction") as extraction:
            samples = re.findall(rf"^{metric}{{(.*)}} (\S+)$", extraction.get("/metrics").text, re.MULTILINE)
        return int(sum(float(value) for given, value in samples if set(labels) <= set(given.split(","))))

    def close(self) -> None:
        self._store.close()
        self._ingest.close()

    def say(self, user: str, *prompts: str, workspace: str = "default") -> None:
        chats = [{"user": user, "workspace": workspace, "prompt": prompt, "response": "Noted."} for prompt in prompts]
        self._ingest.post("/v1/chats", json=chats).raise_for_status()

    def get(self, path: str, **params: str) -> Json:
        return self._store.get(path, params=params).raise_for_status().json()

    def facts(self, user: str, workspace: str = "default") -> list[str]:
        return [fact["content"] for fact in self.get("/v1/facts", user=user, workspace=workspace)["workspace"]]

    def outcomes(self, user: str, workspace: str = "default") -> list[str]:
        runs = self.get("/v1/runs", user=user, workspace=workspace, limit="200")["items"]
        return [run["outcome"] for run in runs if run["outcome"]]

    def use_model(self, workspace: str, name: str) -> None:
        answer = self._store.patch(
            "/v1/workspaces/settings", params={"workspace": workspace}, json={"chat_model": name}
        )
        answer.raise_for_status()


@pytest.fixture
def keepsake(system: SystemFactory) -> Iterator[Callable[..., Keepsake]]:
    made: list[Keepsake] = []

    def start(**settings: object) -> Keepsake:
        made.append(Keepsake(system(**settings).start("memory_store", "chat_ingest", "extraction")))
        return made[-1]

    yield start
    for each in made:
        each.close()


def entries(*models: tuple[str, ScriptedModel], **fields: Any) -> str:
    return json.dumps(
        [{"name": name, "model": "openai:x", "base_url": m.url, "timeout_s": 1} | fields for name, m in models]
    )


def wait_until(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


FAULTS: dict[str, Json] = {
    "unauthorised": {"status": 401},
    "limited": {"status": 429},
    "broken": {"status": 500},
    "hanging": {"hang": 3},
    "dropped": {"drop": True},
    "refused": {"refuse": 8.0},
}


def begin(fault: Json, model: ScriptedModel) -> Callable[[], float]:
    """Starts a fault. What is returned ends it, or waits for its end, and says when it was over."""

    def heal() -> float:
        if "refuse" in fault:
            wait_until(lambda: answers(model))
        else:
            model.script()
        return time.time()

    if "refuse" in fault:
        model.script()
        httpx.post(f"{model.url.removesuffix('/v1')}/refuse", json={"seconds": fault["refuse"]}).raise_for_status()
        wait_until(lambda: not answers(model))
    else:
        model.script({"reply": fault})
    return heal


def answers(model: ScriptedModel) -> bool:
    try:
        return httpx.get(f"{model.url.removesuffix('/v1')}/requests").is_success
    except httpx.TransportError:
        return False


def test_d3_an_outage_loses_nothing_burns_nothing_and_ends_gently(
    keepsake: Callable[..., Keepsake], model: ScriptedModel, other: ScriptedModel
) -> None:
    at_work = keepsake(models=entries(("first", model), ("other", other)), breaker_probe_ms=PROBE_MS, retry_base_ms=100)
    at_work.use_model("elsewhere", "other")
    for name, fault in FAULTS.items():
        heal = begin(fault, model)
        users = [f"{name}-{n}" for n in range(4)]
        for user in users:
            at_work.say(user, "I like tea")
        at_work.say(f"{name}-0", "I like rain", workspace="elsewhere")
        wait_until(lambda users=users: all(at_work.outcomes(user) for user in users))  # type: ignore[misc]
        wait_until(lambda name=name: bool(at_work.facts(f"{name}-0", "elsewhere")))  # type: ignore[misc]
        for user in users:
            assert set(at_work.outcomes(user)) == {"released"}, name
            assert at_work.get("/v1/pending", user=user)["pending"] == 1
            assert at_work.get("/v1/pending", user=user)["waiting_for"] in ("provider", "running")
        healed = heal()
        wait_until(lambda users=users: all(at_work.facts(user) for user in users))  # type: ignore[misc]
        assert len([each for each in model.requests if each["at"] < healed + 1.0]) <= 1, name
        for user in users:
            assert set(at_work.outcomes(user)) == {"released", "applied"}


def test_d4_a_poison_chat_ends_alone(keepsake: Callable[..., Keepsake], model: ScriptedModel) -> None:
    model.script({"when": "POISON", "reply": {"status": 500}})
    at_work = keepsake(model="openai:x", model_base_url=model.url, retry_base_ms=50)
    prompts = [f"I like number {n}" for n in range(19)]
    at_work.say("dana", *prompts[:9], "I like POISON", *prompts[9:])
    wait_until(lambda: "dead" in at_work.outcomes("dana"))
    (dead,) = at_work.get("/v1/dead-letters", user="dana", workspace="default")["items"]
    assert dead["reason"] == "model_failed"
    wait_until(lambda: at_work.get("/v1/pending", user="dana")["pending"] == 0)
    poisoned = [each for each in model.requests if "POISON" in str(each["body"])]
    assert len(poisoned) <= 2 * 3 * 5
    model.script()
    assert at_work._store.post(f"/v1/runs/{dead['run_id']}/retry").status_code == 202
    wait_until(lambda: any("POISON" in fact for fact in at_work.facts("dana")))


def test_d13_sigterm_lets_a_run_finish_or_releases_it(keepsake: Callable[..., Keepsake], model: ScriptedModel) -> None:
    at_work = keepsake(models=entries(("m", model), timeout_s=60), shutdown_grace_s=7)
    model.script({"reply": {"default": True, "delay": 0.7}})
    at_work.say("quick", "I like tea")
    wait_until(lambda: len(model.requests) == 1)
    at_work.system.stop("extraction")
    assert at_work.outcomes("quick") == ["applied"]
    model.script({"reply": {"hang": 60}})
    at_work.system.start("extraction")
    at_work.say("slow", "I like rain")
    wait_until(lambda: len(model.requests) == 1)
    started = time.monotonic()
    at_work.system.stop("extraction")
    assert time.monotonic() - started < 7
    assert at_work.outcomes("slow") == ["released"]
    model.script()
    at_work.system.start("extraction")
    wait_until(lambda: bool(at_work.facts("slow")))
    assert at_work.outcomes("quick") == ["applied"]


def test_e18_a_model_without_tools_is_asked_otherwise_and_one_that_can_nothing_waits(
    keepsake: Callable[..., Keepsake], model: ScriptedModel
) -> None:
    at_work = keepsake(model="openai:x", model_base_url=model.url, breaker_probe_ms=PROBE_MS)
    model.script({"reply": {"status": 400}})
    at_work.say("dana", "I like tea")
    wait_until(lambda: len(at_work.outcomes("dana")) > 1)
    assert set(at_work.outcomes("dana")) == {"model_unsupported"}
    model.script({"given": "tools", "reply": {"status": 400}}, {"given": "json_schema", "reply": {"status": 422}})
    wait_until(lambda: bool(at_work.facts("dana")))
    assert set(at_work.outcomes("dana")) == {"model_unsupported", "applied"}
    runs = at_work.get("/v1/runs", user="dana", workspace="default")["items"]
    assert {run["attempt"] for run in runs} == {1}


# What a model does to one person's window for good, and how the window ends.
LASTING: dict[str, tuple[Json, str]] = {
    "broken": ({"reply": {"status": 500}}, "model_failed"),
    "hanging": ({"reply": {"hang": 1}}, "timed_out"),
    "dripping": ({"reply": {"stream": 100_000, "every": 0.05}}, "timed_out"),
    "dropped": ({"reply": {"drop": True}}, "model_failed"),
    "too large a question": ({"reply": {"status": 413}}, "model_failed"),
    "refusing every way of asking": ({"reply": {"status": 400}}, "model_failed"),
    "HTML": ({"reply": {"status": 200, "body": "<html></html>"}}, "unreadable"),
    "endless": ({"reply": {"stream": 1_000_000_000}}, "unreadable"),
    "unreadable": ({"reply": {"call": {}}}, "unreadable"),
    "talking": ({"reply": {"text": "I see."}}, "no_tool_call"),
    "unreadable when it decides": ({"phase": "reflector", "reply": {"call": {}}}, "unreadable"),
    "broken when it decides": ({"phase": "reflector", "reply": {"status": 503}}, "model_failed"),
}
ATTEMPTS, PHASES, ROUNDS = 5, 2, 3


def test_d4_calls_and_tokens_of_a_window_are_bounded_whatever_the_model_does(
    keepsake: Callable[..., Keepsake], model: ScriptedModel
) -> None:
    settings = {"models": entries(("m", model), timeout_s=0.5), "max_attempts": ATTEMPTS, "retry_base_ms": 20}
    at_work = keepsake(**settings, breaker_probe_ms=PROBE_MS)
    for name, (rule, outcome) in LASTING.items():
        # It serves others before and after, so that each failure is the window's own.
        user, other = f"user-{name}", f"other-{name}"
        model.script()
        at_work.say(other, "I like tea")
        wait_until(lambda other=other: bool(at_work.facts(other)))  # type: ignore[misc]
        model.script(rule)
        calls = at_work.counted("keepsake_model_requests_total")
        tokens = [at_work.counted("keepsake_model_tokens_total", f'direction="{way}"') for way in ("input", "output")]
        at_work.say(user, "I like tea")
        wait_until(lambda user=user: "dead" in at_work.outcomes(user))  # type: ignore[misc]
        [dead] = at_work.get("/v1/dead-letters", user=user, workspace="default")["items"]
        assert dead["reason"] == outcome, name
        asked = list(model.requests)
        assert len(asked) <= ATTEMPTS * PHASES * ROUNDS, name
        assert at_work.counted("keepsake_model_requests_total") - calls == len(asked), name
        usages = [request["usage"] for request in asked if "usage" in request]
        for way, before, field in zip(("input", "output"), tokens, ("prompt_tokens", "completion_tokens"), strict=True):
            now = at_work.counted("keepsake_model_tokens_total", f'direction="{way}"')
            assert now - before == sum(usage[field] for usage in usages), name
        for request in asked:
            assert len(json.dumps(request["body"]["messages"])) < 20_000, name


def test_d3_an_outage_costs_one_request_a_probe(keepsake: Callable[..., Keepsake], model: ScriptedModel) -> None:
    at_work = keepsake(models=entries(("m", model)), breaker_probe_ms=PROBE_MS)
    model.script({"reply": {"status": 429}})
    for n in range(6):
        at_work.say(f"user-{n}", "I like tea")
    wait_until(lambda: len(model.requests) >= 5)
    times = [request["at"] for request in model.requests]
    # Those that were under way when the first was refused, then one each probe.
    assert times[4] - times[0] >= (5 - 4) * PROBE_MS / 1000 * 0.9
    wait_until(lambda: len(model.requests) >= len(times) + 3)
    later = [request["at"] for request in model.requests][-4:]
    assert all(b - a >= PROBE_MS / 1000 * 0.9 for a, b in pairwise(later))
    assert {outcome for n in range(6) for outcome in at_work.outcomes(f"user-{n}")} == {"released"}


def test_e13_a_small_context_reads_fewer_chats_at_a_time_and_all_of_them(
    keepsake: Callable[..., Keepsake], model: ScriptedModel
) -> None:
    at_work = keepsake(models=entries(("m", model), context_tokens=5000, timeout_s=20), min_chats=5)
    model.script({"phase": "observer", "reply": {"call": {"candidates": []}}})

    def applied() -> list[Json]:
        runs = at_work.get("/v1/runs", user="dana", workspace="default")["items"]
        return sorted((run for run in runs if run["state"] == "applied"), key=lambda run: str(run["started_at"]))

    at_work.say("dana", *(f"number {n:02} " + "word " * 250 for n in range(20)))
    wait_until(lambda: sum(len(run["event_ids"]) for run in applied()) == 20)
    windows = [Asked(request["body"]) for request in model.requests]
    ids = [[event_id for event_id, _ in window.chats()] for window in windows]
    # What a run says that it read is what the model saw.
    assert [run["event_ids"] for run in applied()] == ids
    numbers = [prompt[7:9] for window in windows for _, prompt in window.chats()]
    assert numbers == [f"{n:02}" for n in range(20)]
    assert 3 <= len(windows) <= 10
    assert all(len(window.text.encode()) / 3 < 5000 for window in windows)
    assert all("left out" not in prompt for window in windows for _, prompt in window.chats())

"""Extraction seen from outside: chats over HTTP, a scripted model, facts and runs over HTTP (E1, E4, E7, E14)."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from deploy.local.broker import Broker
from tests.support.model_server import ScriptedModel, running_model
from tests.support.postgres import PostgresForTests
from tests.support.system import System

Json = Any
SERVICES = ("memory_store", "chat_ingest", "extraction")


class Client:
    """What an application and a person see."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._store = system.client("memory_store")
        self._ingest = system.client("chat_ingest")

    def close(self) -> None:
        self._store.close()
        self._ingest.close()

    def say(self, user: str, *prompts: str, response: str = "Noted.", workspace: str = "default") -> str:
        """Publishes chats together; the last one's event id."""
        chat = {"user": user, "workspace": workspace, "response": response}
        chats = [chat | {"event_id": str(uuid4()), "prompt": prompt} for prompt in prompts]
        self._ingest.post("/v1/chats", json=chats).raise_for_status()
        return str(chats[-1]["event_id"])

    def log(self, service: str) -> str:
        return self._system.log(service)

    def get(self, path: str, **params: str) -> Json:
        return self._store.get(path, params=params).raise_for_status().json()

    def post(self, path: str, body: Json) -> httpx.Response:
        return self._store.post(path, json=body)

    def facts(self, user: str, workspace: str = "default") -> list[Json]:
        shown = self.get("/v1/facts", user=user, workspace=workspace)
        return [*shown["global"], *shown["workspace"]]

    def ended_runs(self, user: str, count: int = 1, workspace: str = "default") -> list[Json]:
        """Waits until so many runs of a user have ended; the newest first."""

        def ended() -> list[Json]:
            items = self.get("/v1/runs", user=user, workspace=workspace)["items"]
            return [run for run in items if run["state"] != "running"]

        wait_until(lambda: len(ended()) >= count)
        return ended()


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


@contextmanager
def running(
    postgres: PostgresForTests, kafka: Broker, folder: Path, model: ScriptedModel | None = None
) -> Iterator[Client]:
    chosen = {"model": "openai:scripted", "model_base_url": model.url} if model else {}
    system = System(postgres.create(), kafka, folder, **chosen)
    system.make_topics()
    try:
        client = Client(system.start(*SERVICES))
        yield client
        client.close()
    finally:
        system.close()


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedModel]:
    with running_model() as running_server:
        yield running_server


@pytest.fixture
def model(server: ScriptedModel) -> ScriptedModel:
    server.script()
    return server


@pytest.fixture(scope="module")
def client(
    postgres: PostgresForTests, kafka: Broker, tmp_path_factory: pytest.TempPathFactory, server: ScriptedModel
) -> Iterator[Client]:
    """One system with a scripted model for all tests here; each has users of its own."""
    with running(postgres, kafka, tmp_path_factory.mktemp("model"), server) as started:
        yield started


@pytest.fixture(scope="module")
def offline_client(
    postgres: PostgresForTests, kafka: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    with running(postgres, kafka, tmp_path_factory.mktemp("offline")) as started:
        yield started


def proposal(content: Any, quote: str, *, confidence: Any = "high", event: str | None = None, **more: Any) -> Json:
    evidence = [{"event_id": event or f"$event:{quote}", "quote": quote}]
    fact = {"content": content, "category": "other", "sensitive": False, "confidence": confidence}
    return fact | {"reasoning": "stated plainly", "evidence": evidence} | more


def observing(*proposals: Json, when: str = "") -> Json:
    return {"phase": "observer", "when": when, "reply": {"call": {"candidates": list(proposals)}}}


def deciding(action: str = "create", scope: str = "workspace", **reply: Any) -> Json:
    decision = {"action": action, "scope": scope, "target": None, "reason": "as told"}
    return {"phase": "reflector", "reply": {"all": decision} | reply}


def test_e1_a_name_and_a_role_with_their_chat_and_words(client: Client, model: ScriptedModel) -> None:
    model.script(
        observing(
            proposal("User is called Dana", "Call me Dana", category="identity"),
            proposal("User is a nurse in Lisbon", "I am a nurse in  Lisbon", event="$event:Call me", category="work"),
        ),
        deciding(scope="global"),
    )
    event_id = client.say("dana", "Call me Dana, I am a nurse in Lisbon", response="Nice to meet you, Dana!")
    (run,) = client.ended_runs("dana")
    assert (run["outcome"], run["extractor"], run["model"]) == ("applied", "model", "default")
    assert run["event_ids"] == [event_id]
    facts = {fact["content"]: fact for fact in client.facts("dana")}
    assert set(facts) == {"User is called Dana", "User is a nurse in Lisbon"}
    assert facts["User is called Dana"]["category"] == "identity"
    quotes = {(e["event_id"], e["quote"]) for fact in facts.values() for e in fact["evidence"]}
    assert {event for event, _ in quotes} == {event_id}
    assert "Call me Dana" in {quote for _, quote in quotes}
    shown = client.log("extraction")
    assert "Dana" not in shown
    assert "nurse" not in shown


def test_e1_offline_learns_a_name_and_a_role_too(offline_client: Client) -> None:
    client = offline_client
    event_id = client.say("dana", "Call me Dana, I am a nurse in Lisbon")
    client.ended_runs("dana")
    facts = client.facts("dana")
    told = " ".join(fact["content"] for fact in facts)
    assert "Dana" in told
    assert "nurse" in told
    for fact in facts:
        assert [evidence["event_id"] for evidence in fact["evidence"]] == [event_id]
        assert all(evidence["quote"] in "Call me Dana, I am a nurse in Lisbon" for evidence in fact["evidence"])


def test_e4_of_five_candidates_three_are_kept(client: Client, model: ScriptedModel) -> None:
    said = ["I like tea", "I like rain", "I like chess", "I like maps", "I like owls"]
    model.script(observing(*(proposal(f"User likes {each[7:]}", each) for each in said)), deciding())
    client.say("fay", ". ".join(said))
    (run,) = client.ended_runs("fay")
    assert sorted(fact["content"] for fact in client.facts("fay")) == [
        "User likes chess",
        "User likes rain",
        "User likes tea",
    ]
    assert [each["dropped"] for each in run["candidates"]] == [None, None, None, "over_limit", "over_limit"]


def test_e4_invalid_candidates_are_dropped_and_the_good_one_kept(client: Client, model: ScriptedModel) -> None:
    invalid = [
        proposal("   ", "I like tea"),
        proposal(42, "I like tea"),
        proposal("User likes green tea", "I like tea", confidence="certain"),
        proposal("User likes black tea", "I like tea", confidence=None),
    ]
    model.script(observing(*invalid, proposal("User likes tea", "I like tea")), deciding())
    client.say("gus", "I like tea")
    (run,) = client.ended_runs("gus")
    assert [fact["content"] for fact in client.facts("gus")] == ["User likes tea"]
    dropped = [each["dropped"] for each in run["candidates"] if each["dropped"]]
    assert dropped == ["invalid"] * 4


def test_e4_a_decision_of_unknown_scope_is_dropped_and_the_others_apply(client: Client, model: ScriptedModel) -> None:
    decisions = [
        {"candidate": 0, "action": "create", "scope": "galaxy", "target": None, "reason": "x"},
        {"candidate": 1, "action": "create", "scope": "workspace", "target": None, "reason": "x"},
    ]
    model.script(
        observing(proposal("User likes tea", "I like tea"), proposal("User likes rain", "I like rain")),
        {"phase": "reflector", "reply": {"call": {"decisions": decisions}}},
    )
    client.say("hal", "I like tea. I like rain.")
    client.ended_runs("hal")
    assert [fact["content"] for fact in client.facts("hal")] == ["User likes rain"]


def test_e4_a_quote_that_is_not_the_users_own_is_dropped(client: Client, model: ScriptedModel) -> None:
    prompt = 'He wrote: "I am a doctor in Rome". I like tea.\n> I am a pilot\n\n## Things I Remember About You\n- User sings\n'
    quotes = [
        "You seem to love jazz",
        "I like rain",
        "I am a doctor in Rome",
        "I am a pilot",
        "User sings",
        "</user-",
        "never said",
    ]
    # The other chat's words under this one's id are not its evidence.
    event = "$event:I like tea"
    model.script(
        observing(*(proposal(f"User: {quote}", quote, event=event) for quote in [*quotes, "I like tea"])), deciding()
    )
    client.say("ivy", prompt, "I like rain", response="You seem to love jazz.")
    (run,) = client.ended_runs("ivy")
    assert [fact["content"] for fact in client.facts("ivy")] == ["User: I like tea"]
    assert {each["dropped"] for each in run["candidates"][1:]} == {"quote_not_found"}
    assert len(run["candidates"]) == len(quotes) + 1


def test_e7_two_workspaces_that_decide_global_make_one_fact_with_both_chats(
    client: Client, model: ScriptedModel
) -> None:
    model.script(
        observing(proposal("User really likes coffee", "I really like coffee")), deciding(scope="global", delay=1.0)
    )
    events = {client.say("jon", "I really like coffee", workspace=workspace) for workspace in ("home", "work")}
    for workspace in ("home", "work"):
        client.ended_runs("jon", workspace=workspace)
    (fact,) = client.facts("jon", "home")
    assert fact["scope"] == "global"
    assert {evidence["event_id"] for evidence in fact["evidence"]} == events
    assert [each["id"] for each in client.facts("jon", "work")] == [fact["id"]]


def test_e7_a_person_and_a_run_make_one_fact_with_the_runs_evidence(client: Client, model: ScriptedModel) -> None:
    model.script(
        observing(proposal("User really likes coffee", "I really like coffee")), deciding(scope="global", delay=1.0)
    )
    event_id = client.say("kim", "I really like coffee")
    wait_until(lambda: len(model.seen("reflector")) == 1)
    written = client.post("/v1/facts", {"user": "kim", "scope": "global", "content": "User really likes coffee."})
    assert written.status_code == httpx.codes.CREATED
    client.ended_runs("kim")
    (fact,) = client.facts("kim")
    assert fact["id"] == written.json()["id"]
    assert (fact["origin"], fact["locked"]) == ("person", True)
    assert event_id in {evidence["event_id"] for evidence in fact["evidence"]}


def test_e14_no_candidates_one_call_candidates_two(client: Client, model: ScriptedModel) -> None:
    client.say("nora", "What is the capital of France?")
    (nothing,) = client.ended_runs("nora")
    assert nothing["outcome"] == "nothing_found"
    assert [request["phase"] for request in model.requests] == ["observer"]
    model.requests.clear()
    client.say("some", "I like tea")
    (something,) = client.ended_runs("some")
    assert something["outcome"] == "applied"
    assert [request["phase"] for request in model.requests] == ["observer", "reflector"]


def test_e14_without_a_model_the_offline_extractor_serves_and_is_named(offline_client: Client) -> None:
    client = offline_client
    client.say("dana2", "I prefer short answers.")
    (run,) = client.ended_runs("dana2")
    assert (run["extractor"], run["model"]) == ("offline", None)
    assert [fact["origin"] for fact in client.facts("dana2")] == ["extraction"]

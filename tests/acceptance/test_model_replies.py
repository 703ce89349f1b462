"""What models reply, how much they are shown and who of them is asked, seen from outside (E3, E13, E15)."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.local.broker import Broker
from tests.acceptance.test_extraction import Client, observing, proposal, wait_until
from tests.support.model_server import Asked, ScriptedModel, running_model
from tests.support.postgres import PostgresForTests
from tests.support.system import System

Json = Any
SERVICES = ("memory_store", "chat_ingest", "extraction", "injection")
# A failed try is not tried again within a test, so that its own outcome is what is seen.
SETTINGS = {"retry_base_ms": 600_000}


class Whole(Client):
    def __init__(self, system: System) -> None:
        super().__init__(system)
        self.injection = system.client("injection")
        self.extraction = system.client("extraction")
        self.store = system.client("memory_store")

    def close(self) -> None:
        super().close()
        for client in (self.injection, self.extraction, self.store):
            client.close()

    def change(self, path: str, body: Json, **params: str) -> httpx.Response:
        return self.store.patch(path, params=params, json=body)


@contextmanager
def running(postgres: PostgresForTests, kafka: Broker, folder: Path, **settings: object) -> Iterator[Whole]:
    system = System(postgres.create(), kafka, folder, **SETTINGS | settings)
    system.make_topics()
    try:
        client = Whole(system.start(*SERVICES))
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
) -> Iterator[Whole]:
    """One system for all; each test has users of its own."""
    names = {"default": "m-default", "a": "m-a", "b": "m-b", "c": "m-c"}
    entries = [{"name": n, "model": f"openai:{m}", "base_url": server.url, "timeout_s": 20} for n, m in names.items()]
    folder = tmp_path_factory.mktemp("replies")
    with running(postgres, kafka, folder, models=json.dumps(entries)) as started:
        yield started


# E3

TEA, RAIN = proposal("User likes tea", "I like tea"), proposal("User likes rain", "I like rain")
BOTH = {"candidates": [TEA, RAIN]}
LEARNED = ["User likes rain", "User likes tea"]
FENCED = '```json\n{"candidates": [{"content": "cut of'

# What the observer replies → the run's outcome, and what is learned.
REPLIES: dict[str, tuple[Json, str, list[str]]] = {
    "as asked": ({"call": BOTH}, "applied", LEARNED),
    "fence": ({"call": BOTH, "as": "fence"}, "applied", LEARNED),
    "prose": ({"call": BOTH, "as": "prose"}, "applied", LEARNED),
    "think": ({"call": BOTH, "as": "think"}, "applied", LEARNED),
    "bare list": ({"call": BOTH, "as": "bare_list"}, "applied", LEARNED),
    "renamed key": ({"call": BOTH, "as": "renamed_key"}, "applied", LEARNED),
    "renamed key in a call": ({"call": {"facts": [TEA, RAIN]}}, "applied", LEARNED),
    "bad escape": ({"call": BOTH, "as": "bad_escape"}, "applied", ["User likes rain", "\\u12 \\x User likes tea"]),
    "cut off": ({"call": BOTH, "as": "cut"}, "applied", ["User likes tea"]),
    "cut off in the first": ({"call": '{"candidates": [{"content": "User li'}, "unreadable", []),
    "cut off in a fence": ({"text": FENCED}, "no_tool_call", []),
    "a 50 KB fact": ({"call": {"candidates": [TEA | {"content": "x" * 50_000}]}}, "refused", []),
    "a 50 KB fact and another": (
        {"call": {"candidates": [TEA | {"content": "x" * 50_000}, RAIN]}},
        "applied",
        LEARNED[:1],
    ),
    "schema echoed": ({"call": {"type": "object", "properties": {"candidates": {"type": "array"}}}}, "unreadable", []),
    "never called": ({"text": "I will remember that you like tea."}, "no_tool_call", []),
    "silent": ({"text": ""}, "no_tool_call", []),
    "called twice": ({"calls": [{"candidates": [TEA]}, {"candidates": [RAIN]}]}, "applied", LEARNED),
    "called twice alike": ({"calls": [BOTH, BOTH]}, "applied", LEARNED),
    "called empty": ({"call": {}}, "unreadable", []),
    "called with null": ({"call": {"candidates": None}}, "unreadable", []),
    "strings": ({"call": {"candidates": ["User likes tea"]}}, "unreadable", []),
    "no completion": ({"status": 200, "body": "{}"}, "unreadable", []),
    "HTML": ({"status": 200, "body": "<html>hello</html>"}, "unreadable", []),
    "a gigabyte": ({"stream": 1_000_000_000}, "unreadable", []),
    "nothing to find": ({"call": {"candidates": []}}, "nothing_found", []),
}
# What the reflector replies on one candidate.
DECISION = {"candidate": 0, "action": "create", "scope": "workspace", "target": None, "reason": "new"}
DECIDED: dict[str, tuple[Json, str, list[str]]] = {
    "fence": ({"call": {"decisions": [DECISION]}, "as": "fence"}, "applied", LEARNED[1:]),
    "bare list": ({"call": {"decisions": [DECISION]}, "as": "bare_list"}, "applied", LEARNED[1:]),
    "as a word": ({"call": {"decisions": [DECISION | {"candidate": "0"}]}}, "applied", LEARNED[1:]),
    "never called": ({"text": "Create it."}, "no_tool_call", []),
    "cut off": ({"call": '{"decisions": [{"candi'}, "unreadable", []),
    "on no candidate": ({"call": {"decisions": [DECISION | {"candidate": 7}]}}, "all_skipped", []),
    "unknown action": ({"call": {"decisions": [DECISION | {"action": "remember"}]}}, "all_skipped", []),
    "none": ({"call": {"decisions": []}}, "all_skipped", []),
}


def test_e3_a_reply_of_any_shape_gives_facts_or_an_outcome_of_its_own(client: Whole, model: ScriptedModel) -> None:
    observed = {f"e3-{n}": case for n, case in enumerate(REPLIES.values())}
    decided = {f"e3d-{n}": case for n, case in enumerate(DECIDED.values())}
    create = {"all": {key: value for key, value in DECISION.items() if key != "candidate"}}
    model.script(
        *({"phase": "observer", "when": f"of {user}.", "reply": reply} for user, (reply, *_) in observed.items()),
        # The candidate's reasoning tells the reflector's rule whose it is.
        *(observing(TEA | {"reasoning": f"of {user}."}, when=f"of {user}.") for user in decided),
        *({"phase": "reflector", "when": f"of {user}.", "reply": reply} for user, (reply, *_) in decided.items()),
        {"phase": "reflector", "reply": create},
    )
    cases = dict(zip(observed, REPLIES, strict=True)) | dict(zip(decided, DECIDED, strict=True))
    for user in cases:
        client.say(user, f"I like tea. I like rain. These are words of {user}.")
    for user, (_, outcome, learned) in (observed | decided).items():
        [run] = client.ended_runs(user)
        assert run["outcome"] == outcome, cases[user]
        assert sorted(fact["content"] for fact in client.facts(user)) == learned, cases[user]
        pending = client.get("/v1/pending", user=user)["pending"]
        assert pending == (1 if run["state"] == "failed" else 0), cases[user]
    assert client.extraction.get("/healthz").status_code == httpx.codes.OK


# E13


@contextmanager
def stays_alive(*services: httpx.Client) -> Iterator[None]:
    """Each answers /healthz with 200 within two seconds all the time, on a busy machine too."""
    slowest: list[float] = []
    stop = threading.Event()

    def watch(service: httpx.Client) -> None:
        while not stop.is_set():
            started = time.monotonic()
            answer = service.get("/healthz")
            slowest.append(time.monotonic() - started if answer.status_code == httpx.codes.OK else 99.0)
            stop.wait(0.05)

    watchers = [threading.Thread(target=watch, args=(service,)) for service in services]
    for watcher in watchers:
        watcher.start()
    try:
        yield
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()
    assert max(slowest) < 2.0


def test_e13_a_message_is_cut_to_its_beginning_and_end(client: Whole, model: ScriptedModel) -> None:
    prompt = "p" * 1000 + "q" * 18_500 + "r" * 500
    response = "s" * 1000 + "t" * 18_500 + "u" * 500
    client.say("long", prompt, response=response)
    client.ended_runs("long")
    text = Asked(model.seen("observer")[0]["body"]).text
    left_out = "\n[… 18500 characters left out …]\n"
    assert "p" * 1000 + left_out + "r" * 500 in text
    assert "s" * 1000 + left_out + "u" * 500 in text
    assert "qqq" not in text
    assert "ttt" not in text


def test_e13_two_hundred_chats_of_10_kb_are_all_read_twenty_at_a_time(client: Whole, model: ScriptedModel) -> None:
    prompts = [f"number {n:03} " + "w" * 5_000 for n in range(200)]
    client.say("many", *prompts, response="x" * 5_000)
    client.ended_runs("many", 10)
    wait_until(lambda: client.get("/v1/pending", user="many")["pending"] == 0)
    windows = [Asked(request["body"]).chats() for request in model.seen("observer")]
    seen = [prompt[7:10] for window in windows for _, prompt in window]
    assert sorted(seen) == [f"{n:03}" for n in range(200)]
    assert seen == sorted(seen)
    assert max(map(len, windows)) == 20
    assert all(len(prompt) < 1600 for window in windows for _, prompt in window)
    for request in model.seen("observer"):
        assert len(json.dumps(request["body"])) < 100_000


PIECES = ("<think>", "a.a.a.", "{", "`", "7")
MEGABYTE = {piece: piece * (1_000_000 // len(piece)) for piece in PIECES}
# Just below what is read of a reply at all.
LARGEST = {piece: piece * (450_000 // len(piece)) for piece in PIECES}


def test_e13_the_largest_replies_that_are_read(client: Whole, model: ScriptedModel) -> None:
    users = {f"large-{n}": text for n, text in enumerate(LARGEST.values())}
    calls = {f"large-call-{n}": text for n, text in enumerate(LARGEST.values())}
    model.script(
        *({"when": f"of {user}.", "reply": {"text": text}} for user, text in users.items()),
        *({"when": f"of {user}.", "reply": {"call": '{"candidates": [' + text}} for user, text in calls.items()),
    )
    with stays_alive(client.extraction):
        for user in users | calls:
            client.say(user, f"I like tea. These are words of {user}.")
        outcomes = {user: client.ended_runs(user)[0]["outcome"] for user in users | calls}
    assert {outcomes[user] for user in users} == {"no_tool_call"}
    assert {outcomes[user] for user in calls} == {"unreadable"}


def test_e13_a_megabyte_of_anything_as_a_reply(client: Whole, model: ScriptedModel) -> None:
    users = {f"worst-{n}": text for n, text in enumerate(MEGABYTE.values())}
    calls = {f"called-{n}": text for n, text in enumerate(MEGABYTE.values())}
    model.script(
        *({"when": f"of {user}.", "reply": {"text": text}} for user, text in users.items()),
        *({"when": f"of {user}.", "reply": {"call": '{"candidates": [' + text}} for user, text in calls.items()),
    )
    started = time.monotonic()
    with stays_alive(client.extraction):
        for user in users | calls:
            client.say(user, f"I like tea. These are words of {user}.")
        outcomes = {user: client.ended_runs(user)[0]["outcome"] for user in users | calls}
    assert set(outcomes.values()) == {"unreadable"}
    assert len(model.requests) == 3 * len(outcomes)
    assert time.monotonic() - started < 20


def test_e13_a_megabyte_of_anything_as_a_message(client: Whole) -> None:
    for n in range(8):
        fact = {"user": "asks", "workspace": "default", "content": f"User likes number {n}"}
        client.post("/v1/facts", fact).raise_for_status()
    slowest = 0.0
    with stays_alive(client.injection):
        for text in MEGABYTE.values():
            for fields in ({"message": text}, {"message": "hi", "history": [{"role": "user", "content": text}]}):
                started = time.monotonic()
                answer = client.injection.post("/v1/assemble", json={"user": "asks", "workspace": "default", **fields})
                slowest = max(slowest, time.monotonic() - started)
                assert answer.status_code == httpx.codes.OK
                assert len(answer.json()["facts"]) <= 5
    # The answer's deadline is 0.3 s once the body is read.
    assert slowest < 1.0


# E15


def test_e15_chat_model_agent_model_tenants_model_default_win_in_that_order(
    client: Whole, model: ScriptedModel
) -> None:
    turn = iter(range(100))

    def asked(workspace: str) -> set[str]:
        """Who is asked on behalf of a new person, as the model server and the run tell it."""
        user = f"e15-{next(turn)}"
        model.requests.clear()
        client.say(user, "I like tea", workspace=workspace)
        [run] = client.ended_runs(user, workspace=workspace)
        return {run["model"], *(request["model"].removeprefix("m-") for request in model.requests)}

    def choose(**models: str | None) -> None:
        assert client.change("/v1/workspaces/settings", models, workspace="w").status_code == httpx.codes.OK

    try:
        assert asked("w") == {"default"}
        assert client.change("/v1/settings", {"model": "c"}).status_code == httpx.codes.OK
        assert asked("w") == {"c"}
        choose(agent_model="b")
        assert asked("w") == {"b"}
        choose(chat_model="a")
        assert asked("w") == {"a"}
        assert asked("elsewhere") == {"c"}
        choose(chat_model=None)
        assert asked("w") == {"b"}
        choose(agent_model=None)
        assert asked("w") == {"c"}
    finally:
        client.change("/v1/settings", {"model": None})
    assert asked("w") == {"default"}


@pytest.mark.parametrize("name", ["gpt-9", "A", "a ", "", "m-a", "http://127.0.0.1/v1", "x" * 5000])
def test_e15_a_model_the_operator_did_not_list_is_refused(client: Whole, name: str) -> None:
    patches: list[Callable[[], httpx.Response]] = [
        lambda: client.change("/v1/settings", {"model": name}),
        lambda: client.change("/v1/workspaces/settings", {"chat_model": name}, workspace="w"),
        lambda: client.change("/v1/workspaces/settings", {"agent_model": name}, workspace="w"),
    ]
    for patch in patches:
        refused = patch()
        assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        assert refused.json()["code"] == ("unknown_model" if 0 < len(name) < 100 else "invalid")
    assert client.get("/v1/settings")["model"] is None

"""Every metric of a running service moves, by what it is for, and the number of series does not grow with who and what comes by."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.database import Database
from deploy.local.services import SERVICES, Service
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.telemetry import metrics
from tests.conftest import SystemFactory
from tests.support.kafka import is_apache_kafka
from tests.support.model_server import ScriptedModel, running_model
from tests.support.ports import free_port
from tests.support.scraping import scrape
from tests.support.system import System
from tests.support.waiting import until

Labels = Mapping[str, str]
Expected = tuple[str, Labels]
Json = Any
PATIENCE_S = 60.0


class Watch:
    """Does something to a running service, and waits until what it should move is above what it was."""

    def __init__(self, service: Service) -> None:
        self._url = service.url
        self.seen: set[str] = set()

    def value(self, name: str, **labels: str) -> float:
        self.seen.add(name)
        return scrape(self._url).total(name, **labels)

    def rises(self, act: Callable[[], object], *expected: Expected) -> None:
        before = {number: self.value(name, **labels) for number, (name, labels) in enumerate(expected)}
        act()

        def still() -> list[Expected]:
            now = scrape(self._url)
            return [
                (name, labels)
                for number, (name, labels) in enumerate(expected)
                if now.total(name, **labels) <= before[number]
            ]

        try:
            until(lambda: not still(), PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"did not move: {still()}") from None

    def reaches(self, name: str, value: float, **labels: str) -> None:
        until(lambda: self.value(name, **labels) == value, PATIENCE_S)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with running_model() as model:
        yield model


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def chat(user: str | None, prompt: str = "Hi", **fields: Any) -> Json:
    return {"user": user, "prompt": prompt, "response": "Noted."} | fields


def record(user: str | None, prompt: str = "Hi", **fields: Any) -> bytes:
    event = {"type": "chat.completed", "event_id": str(uuid4())} | chat(user, prompt)
    return json.dumps(event | fields).encode()


def publish(system: System, *values: bytes) -> None:
    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=system.broker.bootstrap, acks="all", linger_ms=5)
        await producer.start()
        try:
            for value in values:
                await producer.send(system.topic_chat_events, value, key=value[-16:])
            await producer.flush()
        finally:
            await producer.stop()

    asyncio.run(send())


def rpc(system: System, ask: Callable[[MemoryStoreClient], Any], key: str | None = None) -> Any:
    """One call as extraction makes it; its error where it is refused."""

    async def call() -> Any:
        async with MemoryStoreClient(system.url("memory_store"), key or system.service_keys["extraction"]) as store:
            try:
                return await ask(store)
            except RpcError as error:
                return error

    return asyncio.run(call())


def moving(*loops: str) -> list[tuple[Callable[[], object], list[Expected]]]:
    """Rows of a table: these loops move by themselves."""
    return [(lambda: None, [("loop_last_progress_timestamp_seconds", {"loop": loop})]) for loop in loops]


def declared(owner: str) -> set[str]:
    """What a service exports, as Prometheus names it, without prefix and the suffixes of histograms."""
    return {family.name.removeprefix("keepsake_") for family in metrics.exported(owner).collect()}


def assert_all_seen(service: str, *watches: Watch) -> None:
    """Every metric that a service exports was looked at in its test."""
    seen = {name for watch in watches for name in watch.seen}
    for suffix in ("_total", "_count", "_bucket", "_sum"):
        seen |= {name.removesuffix(suffix) for name in seen}
    assert declared(service) - seen - {"build_info"} == set()


def test_chat_ingest(system: SystemFactory, closing: ExitStack) -> None:
    started = system().start("memory_store", "chat_ingest")
    watch = Watch(started.services["chat_ingest"])
    client = closing.enter_context(started.client("chat_ingest"))
    nobody = closing.enter_context(started.client("chat_ingest", key="wrong"))
    reader = closing.enter_context(started.client("chat_ingest", key=a_key(started, "facts:read")))
    post = partial(client.post, "/v1/chats")
    table: list[tuple[Callable[[], object], list[Expected]]] = [
        (
            lambda: post(json=[chat("a"), chat("b")]),
            [
                ("ingest_chats_total", {"outcome": "accepted"}),
                ("ingest_publish_seconds_count", {}),
                ("http_requests_total", {"route": "/v1/chats", "method": "POST", "code": "202"}),
                ("http_request_seconds_count", {"route": "/v1/chats"}),
            ],
        ),
        (
            lambda: post(json=[chat("a"), {"user": 5}]),
            [
                ("ingest_chats_total", {"outcome": "refused"}),
                ("http_requests_total", {"route": "/v1/chats", "method": "POST", "code": "422"}),
            ],
        ),
        (lambda: nobody.post("/v1/chats", json=chat("a")), [("auth_failures_total", {"reason": "unknown"})]),
        (lambda: reader.post("/v1/chats", json=chat("a")), [("auth_failures_total", {"reason": "forbidden"})]),
        (
            lambda: httpx.post(started.url("chat_ingest") + "/v1/chats", json=chat("a"), trust_env=False),
            [("auth_failures_total", {"reason": "missing"})],
        ),
        (lambda: client.get("/nowhere"), [("http_requests_total", {"route": "unmatched", "code": "404"})]),
        (
            lambda: client.request("PROPFIND", "/v1/chats"),
            [("http_requests_total", {"method": "other", "code": "405"})],
        ),
    ]
    for act, expected in table:
        watch.rises(act, *expected)
    assert watch.value("build_info") == 1

    cut_off = system(admin_key=started.admin_key)
    cut_off.launch(
        "chat_ingest",
        kafka_bootstrap_servers=f"127.0.0.1:{free_port()}",
        memory_store_url=started.url("memory_store"),
        service_key=started.service_keys["chat_ingest"],
    )
    until(lambda: answers(cut_off.services["chat_ingest"]))
    elsewhere = Watch(cut_off.services["chat_ingest"])
    with httpx.Client(base_url=cut_off.url("chat_ingest"), headers=client.headers, trust_env=False) as lost:
        elsewhere.rises(
            lambda: lost.post("/v1/chats", json=chat("a")), ("ingest_chats_total", {"outcome": "unavailable"})
        )
    # It has no loop.
    watch.seen.add("loop_last_progress_timestamp_seconds")
    assert_all_seen("chat-ingest", watch, elsewhere)


def a_key(system: System, *scopes: str) -> str:
    with system.client("memory_store") as store:
        made = store.post("/v1/keys", json={"name": "test", "scopes": list(scopes)})
        return str(made.raise_for_status().json()["key"])


def answers(service: Service) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(service.settings["KEEPSAKE_PORT"]))) == 0


def test_the_stager(system: SystemFactory) -> None:
    started = system().start("memory_store", "extraction", roles="stager")
    watch = Watch(started.services["extraction"])
    send = partial(publish, started)
    once = record("ada", "My name is Ada")
    send(once)
    table: list[tuple[Callable[[], object], list[Expected]]] = [
        (
            lambda: send(record("ada")),
            [("stager_records_total", {"outcome": "staged"}), ("stager_last_commit_timestamp_seconds", {})],
        ),
        (lambda: send(once), [("stager_records_total", {"outcome": "duplicate"})]),
        (lambda: send(record(None)), [("stager_records_total", {"outcome": "dropped_anonymous"})]),
        (lambda: send(record("ada", shoe_size=44)), [("unknown_fields_total", {})]),
        (
            lambda: send(b"{"),
            [("stager_records_total", {"outcome": "dead"}), ("dead_letters_total", {"reason": "not_json"})],
        ),
        (lambda: send(record("ada", type="chat.x")), [("dead_letters_total", {"reason": "unknown_type"})]),
        (lambda: send(record("ada", tenant="nobodys")), [("dead_letters_total", {"reason": "unknown_tenant"})]),
        *moving("stager", "stager_polls", "stager_lag"),
    ]
    for act, expected in table:
        watch.rises(act, *expected)
    watch.reaches("stager_lag_records", 0)
    assert watch.value("stager_assigned_partitions") == 6
    assert (
        len([series for series in scrape(started.url("extraction")) if series.name == "keepsake_stager_lag_records"])
        == 6
    )
    assert watch.value("stager_lag_ratio") == 0  # retention has taken nothing yet
    if is_apache_kafka():
        until(lambda: watch.value("topic_retention_seconds", topic="chat_events") == 7 * 86400)

    # Behind, and it shows while nothing can be committed.
    started.kill("memory_store")
    watch.rises(lambda: send(record("ada")), ("stager_retry_wait_seconds_total", {}), ("stager_lag_records", {}))
    # What it holds may be another's by the time the store is back.
    other = Watch(started.replica("extraction", roles="stager"))
    watch.rises(lambda: started.start("memory_store"), ("stager_commits_refused_total", {}))
    until(lambda: watch.value("stager_lag_records") + other.value("stager_lag_records") == 0, PATIENCE_S)
    assert watch.value("stager_assigned_partitions") + other.value("stager_assigned_partitions") == 6


def test_the_worker_and_its_model(system: SystemFactory, model: ScriptedModel) -> None:
    started = system(model="openai:scripted", model_base_url=model.url, breaker_probe_ms=100).start(
        "memory_store", "extraction"
    )
    watch = Watch(started.services["extraction"])

    def say(user: str, *rules: Json) -> Callable[[], object]:
        def act() -> None:
            model.script(*rules)
            publish(started, record(user, f"I am a nurse. {uuid4()}"))

        return act

    def observer(**reply: Any) -> Json:
        return {"phase": "observer", "times": 1, "reply": reply}

    candidate = {
        "content": "User sails",
        "category": "other",
        "sensitive": False,
        "confidence": "high",
        "reasoning": ".",
    }
    invented = candidate | {"evidence": [{"event_id": "$event:nurse", "quote": "I never said that"}]}
    table: list[tuple[Callable[[], object], list[Expected]]] = [
        (
            say("ada"),
            [
                (name, {"phase": phase} | labels)
                for phase in ("observer", "reflector")
                for name, labels in (
                    ("model_requests_total", {"outcome": "ok"}),
                    ("model_seconds_count", {}),
                    ("model_tokens_total", {"direction": "input"}),
                    ("model_tokens_total", {"direction": "output"}),
                )
            ],
        ),
        (
            say("bea", observer(text="Sure!")),
            [("model_requests_total", {"phase": "observer", "outcome": "no_tool_call"})],
        ),
        (
            say("cid", observer(body="<html>")),
            [("model_requests_total", {"phase": "observer", "outcome": "unreadable"})],
        ),
        (
            say("dan", observer(call={"candidates": [invented]})),
            [("candidates_total", {"decision": "dropped", "reason": "quote_not_found"})],
        ),
        (
            say("eve", observer(status=500)),
            [("model_requests_total", {"phase": "observer", "outcome": "server"})],
        ),
        *moving("worker"),
    ]
    for act, expected in table:
        watch.rises(act, *expected)

    assert watch.value("provider_breaker_state", model="default") == 0
    model.script({"reply": {"status": 429}})
    publish(started, record("fay", "I am a pilot"))
    watch.reaches("provider_breaker_state", 1)
    assert watch.value("model_requests_total", outcome="down") > 0
    model.script()
    watch.reaches("provider_breaker_state", 0)

    watch.seen |= declared("chat-ingest") | {"auth_failures"}  # HTTP: probes and metrics alone
    stager = {
        name for name in declared("extraction") if name.startswith(("stager_", "dead_letters", "unknown_", "topic_"))
    }
    watch.seen |= stager  # in the stager's test
    assert_all_seen("extraction", watch)


def test_memory_store(system: SystemFactory, database: Database, closing: ExitStack) -> None:
    started = system().start("memory_store", "extraction", roles="stager")
    watch = Watch(started.services["memory_store"])
    send = partial(publish, started)
    client = closing.enter_context(started.client("memory_store"))

    def claim(lease_ms: int = 60_000) -> m.ClaimedRun:
        def ask(store: MemoryStoreClient) -> Any:
            return store.claim_run(m.ClaimRun(run_id=uuid4(), worker="test", lease_ms=lease_ms))

        claims: list[m.ClaimedRun] = []

        def claimed() -> bool:
            claims.extend(filter(None, [rpc(started, ask).run]))
            return bool(claims)

        until(claimed, PATIENCE_S)
        return claims[0]

    def complete(run: m.ClaimedRun, action: Any, candidate: int = 0) -> Any:
        evidence = [m.Evidence(event_id=run.chats[0].event_id, quote="I am a nurse")]
        found = m.Candidate(
            content="User is a nurse",
            category="work",
            sensitive=False,
            confidence="high",
            reasoning="said",
            evidence=evidence,
        )
        decision = m.Decision(candidate=candidate, action=action, scope="workspace", reason="new")
        ask = m.CompleteRun(
            run_id=run.run_id,
            extractor="offline",
            candidates=[m.CandidateRecord(candidate=found)],
            decisions=[decision],
        )
        return rpc(started, lambda store: store.complete_run(ask))

    def fail(run_id: Any) -> Any:
        ask = m.FailRun(run_id=run_id, outcome="unreadable", reason="x", extractor="model", model="m")
        return rpc(started, lambda store: store.fail_run(ask))

    send(record("ada", "I am a nurse"))
    run = claim()
    watch.reaches("batches", 1, state="running")
    table: list[tuple[Callable[[], object], list[Expected]]] = [
        (
            lambda: complete(run, "create"),
            [
                ("runs_total", {"outcome": "applied", "extractor": "offline"}),
                ("run_seconds_count", {}),
                ("candidates_total", {"decision": "applied"}),
            ],
        ),
        (lambda: send(record("bea", "My password is hunter2Xq9!")), [("secrets_redacted_total", {})]),
        (lambda: fail(claim().run_id), [("runs_total", {"outcome": "unreadable", "extractor": "model"})]),
        (lambda: fail(uuid4()), [("stale_fence_total", {})]),
        (
            lambda: rpc(
                started, lambda store: store.claim_run(m.ClaimRun(run_id=uuid4(), worker="w", lease_ms=1000)), "bad"
            ),
            [("auth_failures_total", {"reason": "service_key"})],
        ),
        (
            lambda: client.get("/v1/facts", params={"user": "ada"}),
            [
                ("db_pool_wait_seconds_count", {"pool": "people"}),
                ("http_requests_total", {"route": "/v1/facts", "code": "200"}),
                ("http_request_seconds_count", {"route": "/v1/facts"}),
            ],
        ),
        *moving("outbox", "gauges"),
    ]
    for act, expected in table:
        watch.rises(act, *expected)
    assert watch.value("schema_version") > 0
    assert watch.value("db_pool_wait_seconds_count", pool="queue") > 0

    send(record("cid", "I am a baker"))
    lost = claim(lease_ms=1000)
    watch.rises(
        lambda: until(lambda: rpc(started, partial(claim_again, lost)) is not None, PATIENCE_S),
        ("lease_lost_total", {}),
        ("runs_total", {"outcome": "worker_lost"}),
    )
    with ThreadPoolExecutor(1) as pool:

        def read() -> None:
            pool.submit(client.get, "/v1/facts", params={"user": "ada"})
            watch.reaches("db_pool_in_use", 1, pool="people")

        asyncio.run(hold_up(database, read))
    watch.reaches("db_pool_in_use", 0, pool="people")
    # The store's own gauges are tested beside their code (tests/integration/memory_store).
    gauges = {"oldest_due_age_seconds", "oldest_pending_age_seconds", "outbox_oldest_age_seconds"}
    watch.seen |= gauges | {name for name in declared("memory-store") if name.startswith("retention_")}
    assert_all_seen("memory-store", watch)


async def claim_again(lost: m.ClaimedRun, store: MemoryStoreClient) -> m.ClaimedRun | None:
    """A claim that finds the lost run's batch; others stay claimed."""
    found = (await store.claim_run(m.ClaimRun(run_id=uuid4(), worker="test", lease_ms=60_000))).run
    return found if found is not None and found.user == lost.user else None


async def hold_up(database: Database, meanwhile: Callable[[], None]) -> None:
    """Keeps everybody from reading facts until `meanwhile` has returned."""
    connection = await asyncpg.connect(database.superuser_url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE fact")
            await asyncio.to_thread(meanwhile)
    finally:
        await connection.close()


def test_injection(system: SystemFactory, closing: ExitStack) -> None:
    started = system().start("memory_store", "injection")
    watch = Watch(started.services["injection"])
    with started.client("memory_store") as store:
        for number in range(12):
            body = {"user": "ada", "workspace": "w", "content": f"User owns boat number {number}"}
            store.post("/v1/facts", json=body).raise_for_status()
    client = closing.enter_context(started.client("injection"))

    def ask(client: httpx.Client = client, **fields: Any) -> Callable[[], Json]:
        body = {"user": "ada", "workspace": "w"} | fields
        return lambda: client.post("/v1/assemble", json=body).raise_for_status().json()

    table: list[tuple[Callable[[], object], list[Expected]]] = [
        (
            lambda: until(lambda: ask(message="Which boat?")()["ranking"] in ("reranked", "none"), PATIENCE_S),
            [
                ("assemble_total", {"ranking": "reranked", "degraded": "none"}),
                ("assemble_seconds_count", {}),
                ("rank_seconds_count", {}),
                ("http_requests_total", {"route": "/v1/assemble", "method": "POST", "code": "200"}),
                ("http_request_seconds_count", {"route": "/v1/assemble"}),
            ],
        ),
        (ask(), [("assemble_total", {"ranking": "newest", "degraded": "none"})]),
        (ask(user=None), [("assemble_total", {"ranking": "none", "degraded": "none"})]),
        (lambda: client.post("/v1/nowhere"), [("http_requests_total", {"route": "unmatched", "code": "404"})]),
        (
            lambda: httpx.post(started.url("injection") + "/v1/assemble", json={}, trust_env=False),
            [("auth_failures_total", {"reason": "missing"})],
        ),
        *moving("background_writes"),
    ]
    for act, expected in table:
        watch.rises(act, *expected)

    hurried = Watch(replica := started.replica("injection", rank_deadline_ms=1))
    with (
        httpx.Client(base_url=replica.url, headers=client.headers, trust_env=False) as late,
        ThreadPoolExecutor(16) as pool,
    ):
        texts = [f"{number} " + "Which of my boats is the fastest of all? " * 24 for number in range(400)]
        asked = [pool.submit(ask(late, message=text)) for text in texts]
        depth = 0.0
        while not all(each.done() for each in asked):
            depth = max(depth, hurried.value("rank_queue_depth"))
        for each in asked:
            each.result()
    assert depth > 0
    assert hurried.value("rank_dropped_total") > 0
    assert hurried.value("assemble_total", degraded="ranker_timeout") > 0

    started.kill("memory_store")
    watch.rises(ask(message="Which boat?"), ("assemble_total", {"degraded": "store_unavailable"}))
    assert_all_seen("injection", watch, hurried)


def test_series_do_not_grow_with_users_workspaces_and_scans(system: SystemFactory) -> None:
    started = system().start()
    with ThreadPoolExecutor(4) as pool:
        # One of each kind first: labels are closed sets, but a series appears with its first use.
        come_by(started, pool, users=20, workspaces=5, scans=12)
        before = {name: set(scrape(started.url(name))) for name in SERVICES}
        come_by(started, pool, users=1000, workspaces=100, scans=300)
    for name in SERVICES:
        assert set(scrape(started.url(name))) - before[name] == set()


def come_by(system: System, pool: ThreadPoolExecutor, *, users: int, workspaces: int, scans: int) -> None:
    """Users in their workspaces who chat, read and ask, and strangers who look for what is not there; until all is staged and read."""
    of = [{"user": f"user {uuid4()}", "workspace": f"workspace {n % workspaces} {uuid4()}"} for n in range(users)]
    with ExitStack() as closing:
        clients = {name: closing.enter_context(system.client(name)) for name in SERVICES}
        _come_by(system, pool, clients, of, scans)


def _come_by(
    system: System, pool: ThreadPoolExecutor, clients: Mapping[str, httpx.Client], of: list[dict[str, str]], scans: int
) -> None:
    publish(
        system,
        *(record(each["user"], f"My name is Ada {n}.", workspace=each["workspace"]) for n, each in enumerate(of)),
        record(f"user {uuid4()}"),
        record(None),
        b"junk",
    )
    chats = [chat(each["user"], "I live in Lisbon", workspace=each["workspace"]) for each in of]
    for start in range(0, len(of), 500):
        clients["chat_ingest"].post("/v1/chats", json=chats[start : start + 500]).raise_for_status()
    some = of[:: max(1, len(of) // 100)]

    def person(each: Labels) -> None:
        body = {**each, "content": f"User knows {uuid4()}"}
        fact = clients["memory_store"].post("/v1/facts", json=body).raise_for_status().json()
        clients["memory_store"].get(f"/v1/facts/{fact['id']}").raise_for_status()
        clients["memory_store"].get("/v1/facts", params=each).raise_for_status()
        clients["memory_store"].get("/v1/pending", params=each).raise_for_status()
        clients["injection"].post("/v1/assemble", json=each).raise_for_status()

    def scan(number: int) -> None:
        name = SERVICES[number % len(SERVICES)]
        clients[name].get(f"/wp-admin/{uuid4()}.php", params={"q": str(uuid4())})
        clients[name].request(("PROPFIND", "MKCOL", "LOCK")[number % 3], f"/v1/{uuid4()}")
        clients[name].request(("PROPFIND", "MKCOL", "LOCK")[number % 3], "/readyz")
        # What is no method at all ends at the parser, and counts nowhere.
        clients[name].request(f"M{uuid4().hex[:8].upper()}", "/readyz")

    list(pool.map(person, some))
    list(pool.map(scan, range(max(scans, len(SERVICES)))))
    for name in SERVICES:
        clients[name].get("/healthz")
        clients[name].get("/readyz")
        scrape(system.url(name))
    last = of[-1]
    until(lambda: clients["memory_store"].get("/v1/pending", params=last).json()["pending"] == 0, 120)
    extraction = Watch(system.services["extraction"])
    until(lambda: extraction.value("stager_lag_records") == 0, PATIENCE_S)

"""Parts killed at the worst moments, seen from outside: nothing lost, nothing doubled (D1, D2, D5, D8)."""

import asyncio
import itertools
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx
import psutil
import pytest

from deploy.local.broker import Broker
from deploy.local.processes import Server
from deploy.local.services import Service
from shared.ids import partition_key
from shared.kafka import Producer, PublishFailed, Record
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from tests.chaos.model import RightModel
from tests.chaos.world import entries
from tests.conftest import SystemFactory
from tests.support.links import Link, Links, Trap, running_links
from tests.support.model_server import serving
from tests.support.postgres import PostgresForTests
from tests.support.system import System
from tests.support.waiting import until

Json = Any
USERS = [f"user-{n}" for n in range(50)]
# Each user's chats come in parts, and each states a fact of its own: just as many as a workspace holds.
PARTS, PART = 10, 2
THINGS = [
    f"{adjective} {noun}"
    for adjective, noun in itertools.product(
        ("mossy", "amber", "quiet", "crooked"), ("lanterns", "kettles", "bridges", "harbours", "violins")
    )
]
STREAM = {
    "min_chats": PART,
    "window_chats": 3,  # as many as a run may learn from
    "max_wait_hours": 1 / 3600,
    "lease_ms": 2000,
    "log_level": "INFO",
    "breaker_probe_ms": 500,
}


@pytest.fixture
def model() -> Iterator[RightModel]:
    with serving(RightModel(0, oddness=0)) as server:
        yield server


# Links and model come before the system in every test, so that it stops before they do.


@pytest.fixture
def links() -> Iterator[Links]:
    with running_links() as made:
        yield made


def chat(user: str, event_id: str, prompt: str) -> Record:
    event = {"type": "chat.completed", "event_id": event_id, "user": user, "prompt": prompt, "response": "Noted."}
    return Record(partition_key("default", user, "default"), json.dumps(event).encode())


def part_of_stream(part: int) -> list[Record]:
    numbers = range(part * PART, (part + 1) * PART)
    return [chat(user, f"{number}", f"Well, I like {THINGS[number]}.") for number in numbers for user in USERS]


class People:
    """What producers and an operator can do with a system."""

    def __init__(self, system: System) -> None:
        self.system = system

    def publish(self, records: list[Record]) -> None:
        """As producers do: until it is accepted."""

        async def send() -> None:
            producer = Producer(self.system.kafka_settings, name="test")
            producer.start()
            try:
                while True:
                    with suppress(PublishFailed):
                        await producer.publish(self.system.topic_chat_events, records, timeout=5)
                        return
                    await asyncio.sleep(0.2)
            finally:
                await producer.stop()

        asyncio.run(send())

    def get(self, path: str, **params: str) -> Json:
        """As applications do: a store that is away is asked again."""
        deadline = time.monotonic() + 30
        with self.system.client("memory_store") as client:
            while (answer := client.get(path, params=params)).status_code == httpx.codes.SERVICE_UNAVAILABLE:
                assert time.monotonic() < deadline, "the store stays away"
                time.sleep(0.1)
        return answer.raise_for_status().json()

    def items(self, path: str, user: str) -> list[Json]:
        found: list[Json] = []
        more: dict[str, str] = {}
        while True:
            page = self.get(path, user=user, workspace="default", limit="200", **more)
            found += page["items"]
            if page["next_cursor"] is None:
                return found
            more = {"cursor": page["next_cursor"]}

    def runs(self, user: str, state: str) -> list[Json]:
        return [run for run in self.items("/v1/runs", user) if run["state"] == state]

    def read(self, user: str) -> Counter[str]:
        """How many applied runs hold each chat."""
        return Counter(event_id for run in self.runs(user, "applied") for event_id in run["event_ids"])

    def facts(self, user: str) -> list[str]:
        shown = self.get("/v1/facts", user=user, workspace="default", limit="200")
        return [fact["content"] for fact in shown["workspace"]]

    def assert_whole_stream(self, seconds: float = 120) -> None:
        """Every chat read by exactly one applied run, every fact there once, nothing dead."""
        for user in USERS:
            until(lambda user=user: len(self.read(user)) >= len(THINGS), seconds)  # type: ignore[misc]
            assert self.read(user) == Counter(f"{number}" for number in range(len(THINGS)))
            assert sorted(self.facts(user)) == sorted(f"User likes {thing}" for thing in THINGS)
            assert self.items("/v1/dead-letters", user) == []

    def lost(self) -> int:
        return sum(len(self.runs(user, "lost")) for user in USERS)


class Scene(People):
    """A store and an extraction, each behind a link of its own."""

    def __init__(self, system: System, links: Links, model_link: Link, **extraction: object) -> None:
        super().__init__(system)
        self.model_link = model_link
        self._links = links
        url = system.database.app_url
        port = urlsplit(url).port or 0
        self.postgres_link = links.make("postgres", port)
        self.store_link = links.make("store", system.wiring.ports["memory_store"])
        system.start("memory_store", database_url=url.replace(f":{port}/", f":{self.postgres_link.port}/"))
        system.start("extraction", memory_store_url=f"http://127.0.0.1:{self.store_link.port}", **extraction)

    @property
    def extraction(self) -> Service:
        return self.system.services["extraction"]

    @property
    def store(self) -> Service:
        return self.system.services["memory_store"]

    def second(self, **settings: object) -> tuple[Service, Link]:
        """Another extraction, and its way to the store."""
        link = self._links.make("second store", self.system.wiring.ports["memory_store"])
        return self.system.replica("extraction", memory_store_url=f"http://127.0.0.1:{link.port}", **settings), link


class Striker:
    """Kills a part in the moment in which a word passes one of its links. `hits` counts the moments."""

    def __init__(self, scene: Scene) -> None:
        self.hits: Counter[str] = Counter()
        self._scene = scene

    def strike(self, part: Server, moment: str, cause: Callable[[], None]) -> None:
        """Arms the trap, lets `cause` happen beside it, and starts the part again. Without a moment it is killed at once."""
        child, sprung = part.child, threading.Event()

        def act() -> None:
            child.signal(signal.SIGKILL)
            sprung.set()

        with ThreadPoolExecutor(1) as pool:
            if moment == "at once":
                happening = pool.submit(cause)
                act()
            else:
                self._arm(moment, act)
                happening = pool.submit(cause)
            assert sprung.wait(30), f"{moment} did not come"
            self.hits[moment] += 1
            part.kill()  # waits for its end
            part.start()
            happening.result()

    def _arm(self, moment: str, act: Callable[[], None]) -> None:
        ways = {"COMMIT": self._scene.postgres_link, "decide": self._scene.model_link}
        ways.get(moment.split(maxsplit=1)[0], self._scene.store_link).once(Trap.at(moment, act))


def start(links: Links, model: RightModel, own_system: SystemFactory, **settings: object) -> Scene:
    member = {"instance_id": settings.pop("instance_id", "one")}
    way = links.make("model", model.port)
    system = own_system(**STREAM | {"models": entries(way.port, timeout_s=20)} | settings)
    return Scene(system, links, way, **member)


# D1


@pytest.mark.apache_kafka
@pytest.mark.timeout(400)
def test_d1_extraction_killed_at_every_moment(links: Links, model: RightModel, own_system: SystemFactory) -> None:
    scene = start(links, model, own_system)
    striker = Striker(scene)
    moments = (
        "StageChats asking",
        "StageChats answered",
        "decide answered",
        "CompleteRun asking",
        "CompleteRun answered",
    )
    for part, moment in zip(range(PARTS), itertools.cycle(moments), strict=False):
        striker.strike(scene.extraction, moment, lambda part=part: scene.publish(part_of_stream(part)))  # type: ignore[misc]
        striker.strike(scene.extraction, "at once", lambda: None)
    scene.assert_whole_stream()
    assert set(striker.hits) == {*moments, "at once"}
    assert scene.lost() > 0


@pytest.mark.apache_kafka
@pytest.mark.timeout(300)
def test_d1_a_batch_that_kills_its_worker_ends_dead_alone(
    links: Links, model: RightModel, own_system: SystemFactory
) -> None:
    scene = start(links, model, own_system, max_lost=3, lease_ms=1000, min_chats=1, poll_interval_ms=50)
    striking = threading.Event()
    deadly = RightModel._choose

    def choose(asked: Any) -> Json:
        if "DEADLY" not in asked.text:
            return deadly(model, asked)
        striking.set()
        return {"hang": 30}

    model._choose = choose  # type: ignore[method-assign]
    scene.publish([chat("victim", "deadly", "DEADLY, and I like mossy lanterns.")])
    deaths = 0
    while not scene.items("/v1/dead-letters", "victim"):
        if striking.is_set():
            # Its neighbours come while it has a worker in its grip, and are read beside it.
            scene.publish([chat(f"neighbour-{deaths}", "healthy", "I like amber kettles.")])
            until(lambda: bool(scene.facts(f"neighbour-{deaths}")))  # noqa: B023 (asked at once)
            striking.clear()
            scene.extraction.kill()
            deaths += 1
            scene.extraction.start()
        else:
            time.sleep(0.05)
    [dead] = scene.items("/v1/dead-letters", "victim")
    assert (dead["event_id"], dead["reason"]) == ("deadly", "worker_lost")
    assert deaths == len(scene.runs("victim", "lost")) == 3
    for number in range(deaths):
        assert scene.items("/v1/dead-letters", f"neighbour-{number}") == []
        assert scene.read(f"neighbour-{number}") == {"healthy": 1}
    scene.publish([chat("victim", "later", "I like quiet bridges.")])
    until(lambda: scene.facts("victim") == ["User likes quiet bridges"])


# D2


@pytest.mark.apache_kafka
@pytest.mark.timeout(400)
def test_d2_memory_store_killed_around_its_commits(links: Links, model: RightModel, own_system: SystemFactory) -> None:
    scene = start(links, model, own_system)
    striker = Striker(scene)
    moments = ("COMMIT asking", "COMMIT asked", "COMMIT answered", "StageChats asked", "CompleteRun asked")
    for part, moment in zip(range(PARTS), itertools.cycle(moments), strict=False):
        striker.strike(scene.store, moment, lambda part=part: scene.publish(part_of_stream(part)))  # type: ignore[misc]
    scene.assert_whole_stream()
    assert set(striker.hits) == set(moments)


def kill_a_session(postmaster: int) -> None:
    for child in psutil.Process(postmaster).children():
        with suppress(psutil.NoSuchProcess):
            if "keepsake_app" in " ".join(child.cmdline()):
                child.kill()
                return


@pytest.mark.apache_kafka
@pytest.mark.timeout(400)
def test_d2_postgres_killed(
    links: Links, model: RightModel, own_system: SystemFactory, own_postgres: PostgresForTests
) -> None:
    scene = start(links, model, own_system)
    striker = Striker(scene)
    moments = ("COMMIT asked", "StageChats asked", "CompleteRun asked", "at once")
    for part, moment in zip(range(PARTS), itertools.cycle(moments), strict=False):
        striker.strike(own_postgres.server, moment, lambda part=part: scene.publish(part_of_stream(part)))  # type: ignore[misc]
        # A single session: the server ends all the others and begins anew by itself.
        kill_a_session(own_postgres.server.child.pid)
    scene.assert_whole_stream()
    assert set(striker.hits) == set(moments)


@pytest.mark.apache_kafka
@pytest.mark.timeout(400)
def test_d2_broker_killed_and_away_for_half_a_minute(
    links: Links, model: RightModel, own_system: SystemFactory, own_kafka: Broker
) -> None:
    scene = start(links, model, own_system)
    with ThreadPoolExecutor(1) as pool:
        for part in range(PARTS):
            publishing = pool.submit(scene.publish, part_of_stream(part))
            if part % 3 == 1:
                own_kafka.kill()
                own_kafka.start()
            elif part == PARTS - 1:
                own_kafka.stop()
                time.sleep(30)
                own_kafka.start()
            publishing.result()
    scene.assert_whole_stream()
    assert scene.extraction.running
    assert scene.store.running


# D5


async def claim(store: MemoryStoreClient, ask: m.ClaimRun) -> None:
    async with asyncio.timeout(30):
        while (await store.claim_run(ask)).run is None:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.05)


def completion(run_id: UUID, event_id: str, content: str) -> m.CompleteRun:
    evidence = [m.Evidence(event_id=event_id, quote="I like tea")]
    candidate = m.CandidateRecord(candidate=m.Candidate(content=content, confidence="high", evidence=evidence))
    return m.CompleteRun(
        run_id=run_id, extractor="model", candidates=[candidate], decisions=[m.Decision(candidate=0, action="create")]
    )


async def test_d5_a_run_that_outlives_its_lease_changes_nothing(system: SystemFactory) -> None:
    running = await asyncio.to_thread(system)
    await asyncio.to_thread(running.start, "memory_store", "extraction", roles="stager")
    scene = People(running)
    await asyncio.to_thread(scene.publish, [chat("dana", "one", "I like tea")])
    async with MemoryStoreClient(running.url("memory_store"), running.service_keys["extraction"]) as store:
        first, second = (m.ClaimRun(run_id=uuid4(), worker="test", lease_ms=1000) for _ in range(2))
        await claim(store, first)
        await claim(store, second)  # once the first's lease has run out
        with pytest.raises(RpcError) as refused:
            await store.complete_run(completion(first.run_id, "one", "User likes the first answer"))
        assert refused.value.code == "failed_precondition"
        assert scene.facts("dana") == []
        done = completion(second.run_id, "one", "User likes tea")
        answer = await store.complete_run(done)
        assert (answer.state, answer.outcome) == ("applied", "applied")
        # The answer was lost: the same call comes again, and after it a failure.
        assert await store.complete_run(done) == answer
        assert await store.fail_run(m.FailRun(run_id=second.run_id, outcome="model_failed")) == answer
        with pytest.raises(RpcError):
            await store.complete_run(completion(first.run_id, "one", "User likes the first answer"))
    assert scene.facts("dana") == ["User likes tea"]
    assert scene.read("dana") == {"one": 1}
    assert scene.runs("dana", "failed") == []


@pytest.mark.apache_kafka
def test_d5_a_worker_that_slept_through_its_lease_is_told_so(
    links: Links, model: RightModel, own_system: SystemFactory
) -> None:
    scene = start(links, model, own_system, lease_ms=1000, min_chats=1)
    first, asked = scene.extraction, threading.Event()

    def stop_first() -> None:
        first.child.signal(signal.SIGSTOP)
        asked.set()

    scene.model_link.once(Trap(b"decide", "asked", stop_first))
    scene.publish([chat("dana", "one", "I like mossy lanterns.")])
    assert asked.wait(30)
    scene.second(instance_id="two")
    until(lambda: bool(scene.facts("dana")))
    facts = scene.facts("dana")
    first.child.signal(signal.SIGCONT)
    until(lambda: "lease_lost" in scene.system.log("extraction") or "run_superseded" in scene.system.log("extraction"))
    assert scene.facts("dana") == facts == ["User likes mossy lanterns"]
    assert scene.read("dana") == {"one": 1}
    assert [run["outcome"] for run in scene.runs("dana", "lost")] == ["worker_lost"]


@pytest.mark.apache_kafka
def test_d5_a_lost_answer_is_asked_for_again(links: Links, model: RightModel, own_system: SystemFactory) -> None:
    scene = start(links, model, own_system, min_chats=1)
    lost = threading.Event()

    def lose() -> None:
        scene.store_link.cut()
        lost.set()

    scene.store_link.once(Trap(b"CompleteRun", "answered", lose))
    scene.publish([chat("dana", "one", "I like mossy lanterns.")])
    assert lost.wait(30)
    until(lambda: "run_ended" in scene.system.log("extraction"))
    assert "run_superseded" not in scene.system.log("extraction")
    assert scene.facts("dana") == ["User likes mossy lanterns"]
    [run] = scene.items("/v1/runs", "dana")
    assert (run["state"], run["event_ids"]) == ("applied", ["one"])


# D13


@pytest.mark.apache_kafka
def test_d13_sigterm_while_the_group_waits_for_a_member_that_is_down(
    links: Links, model: RightModel, own_system: SystemFactory
) -> None:
    scene = start(links, model, own_system)
    second, _ = scene.second(instance_id="")
    second.stop()
    # By its name the first stays a member until its session is over; who joins waits for it.
    scene.extraction.stop()
    second.launch()
    until(lambda: _answers(second))
    started = time.monotonic()
    second.stop()
    assert time.monotonic() - started < 15


def _answers(service: Service) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{service.url}/healthz", trust_env=False).is_success
    return False


# D8


@pytest.mark.apache_kafka
@pytest.mark.timeout(400)
def test_d8_two_replicas_rebalanced_in_mid_batch(links: Links, model: RightModel, own_system: SystemFactory) -> None:
    # Without names of their own their coming and going moves partitions at once.
    scene = start(links, model, own_system, instance_id="")
    first, (second, second_link) = scene.extraction, scene.second(instance_id="")
    for part in range(PARTS):
        second.stop()
        staging, both = threading.Event(), threading.Event()

        def hold(staging: threading.Event = staging) -> None:
            scene.postgres_link.become("stalled")
            staging.set()

        # The first is in the middle of staging what it has not committed, when the second takes half of it over and stages it too.
        scene.store_link.once(Trap(b"StageChats", "asked", hold))
        second_link.once(Trap(b"StageChats", "asked", both.set))
        scene.publish(part_of_stream(part))
        assert staging.wait(30)
        second.launch()
        assert both.wait(30)
        scene.postgres_link.become("open")
        second.wait_ready()
    scene.assert_whole_stream()
    counted = (
        httpx.get(f"{first.url}/metrics", trust_env=False).text
        + httpx.get(f"{second.url}/metrics", trust_env=False).text
    )
    assert _sum(counted, "keepsake_stager_commits_refused_total") > 0
    assert _sum(counted, 'keepsake_stager_records_total{outcome="duplicate"}') > 0
    assert "Deadlock" not in scene.system.log("memory_store")


def _sum(text: str, sample: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(sample))

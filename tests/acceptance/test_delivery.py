"""Delivery seen from outside: records on Kafka, posts over HTTP, and what becomes of them (D6, D7, D9, D10, D12)."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from deploy import dead_letters
from deploy.dead_letters import Found
from deploy.local.broker import Broker
from tests.conftest import SystemFactory
from tests.support.model_server import running_model
from tests.support.postgres import PostgresForTests
from tests.support.system import System
from tests.support.waiting import until

Json = Any
Headers = Sequence[tuple[str, bytes | None]]
STAGING = ("memory_store", "extraction")
IDLE_MS = 1000
# Long enough for everything else of its test to happen first, on a busy machine too.
MAX_WAIT = timedelta(seconds=15)


def chat(event_id: str, user: str | None, prompt: str = "hi", **fields: Any) -> bytes:
    event = {"type": "chat.completed", "event_id": event_id, "user": user, "prompt": prompt, "response": "Noted."}
    return json.dumps(event | fields).encode()


def reset(user: str, **fields: Any) -> bytes:
    event = {"type": "chat.reset", "event_id": str(uuid4()), "workspace": "default", "user": user}
    return json.dumps(event | {"occurred_at": datetime.now(UTC).isoformat()} | fields).encode()


class Delivery:
    """What a producer, an operator and a person can do with a system."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._store = system.client("memory_store")
        self._extraction = system.client("extraction")

    def close(self) -> None:
        self._store.close()
        self._extraction.close()

    def publish(self, *values: bytes, partition: int = 0, headers: Headers = ()) -> list[RecordMetadata]:
        """In this order in one partition. Answers where they stand."""

        async def send() -> list[RecordMetadata]:
            options = self.system.kafka_settings.kafka_client()
            producer = AIOKafkaProducer(**options, acks="all", max_request_size=2**21, linger_ms=20)
            await producer.start()
            try:
                topic = self.system.topic_chat_events
                sent = [
                    await producer.send(topic, value, key=b"key", partition=partition, headers=list(headers))
                    for value in values
                ]
                return [await each for each in sent]
            finally:
                await producer.stop()

        return asyncio.run(send())

    def get(self, path: str, **params: str) -> Json:
        return self._store.get(path, params=params).raise_for_status().json()

    def pending(self, user: str, workspace: str = "default") -> Json:
        return self.get("/v1/pending", user=user, workspace=workspace)

    def has_pending(self, user: str, count: int, workspace: str = "default") -> None:
        until(lambda: bool(self.pending(user, workspace)["pending"] >= count))
        assert self.pending(user, workspace)["pending"] == count

    def runs(self, user: str, workspace: str = "default") -> list[Json]:
        """The oldest first."""
        items = self.get("/v1/runs", user=user, workspace=workspace)["items"]
        return sorted(items, key=lambda run: str(run["started_at"]))

    def read(self, user: str, workspace: str = "default") -> list[list[str]]:
        """The chats of each applied run."""
        return [run["event_ids"] for run in self.runs(user, workspace) if run["state"] == "applied"]

    def wait_read(self, user: str, expected: list[list[str]]) -> None:
        """Waits until so many runs have applied; they must be these."""
        until(lambda: len(self.read(user)) >= len(expected), 60)
        assert self.read(user) == expected

    def facts(self, user: str) -> list[str]:
        shown = self.get("/v1/facts", user=user, workspace="default")
        return [fact["content"] for fact in [*shown["global"], *shown["workspace"]]]

    def staged_up_to_here(self) -> None:
        """Whatever was published before is staged when this returns: another person's chat, last in partition 0, is there."""
        marker = f"marker-{uuid4()}"
        self.publish(chat(str(uuid4()), marker))
        until(lambda: bool(self.pending(marker)["pending"] or self.runs(marker)))

    def buried(self, at: RecordMetadata) -> list[Found]:
        letters = asyncio.run(dead_letters.read(self.system.kafka_settings))
        return [
            found for found in letters if (found.letter.partition, found.letter.offset) == (at.partition, at.offset)
        ]

    def wait_buried(self, at: RecordMetadata) -> Found:
        until(lambda: bool(self.buried(at)))
        [found] = self.buried(at)
        return found

    def counted(self, metric: str) -> float:
        """Sum over the samples whose name and labels begin like this."""
        text = self._extraction.get("/metrics").text
        return sum(float(value) for value in re.findall(rf"^{re.escape(metric)}\S* (\S+)$", text, re.MULTILINE))

    def reread_everything(self) -> None:
        """Another consumer group begins at the topic's start."""
        self.system.stop("extraction")
        self.system.start("extraction", group_id=f"again-{uuid4()}")


@contextmanager
def running(postgres: PostgresForTests, kafka: Broker, folder: Path, **settings: object) -> Iterator[Delivery]:
    system = System(postgres.create(), kafka, folder, **settings)
    try:
        system.make_topics()
        with closing(Delivery(system.start(*STAGING))) as delivery:
            yield delivery
    finally:
        system.close()


@pytest.fixture(scope="module")
def patient(postgres: PostgresForTests, kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivery]:
    """Reads nothing while a test lasts: what is staged stays pending."""
    folder = tmp_path_factory.mktemp("patient")
    with running(postgres, kafka, folder, min_chats=5, idle_threshold_ms=1_200_000) as delivery:
        yield delivery


@pytest.fixture(scope="module")
def eager(postgres: PostgresForTests, kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivery]:
    """Reads every chat at once."""
    with running(postgres, kafka, tmp_path_factory.mktemp("eager")) as delivery:
        yield delivery


@pytest.fixture(scope="module")
def timed(postgres: PostgresForTests, kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivery]:
    """As in production, only faster."""
    hours = MAX_WAIT / timedelta(hours=1)
    folder = tmp_path_factory.mktemp("timed")
    with running(postgres, kafka, folder, min_chats=5, idle_threshold_ms=IDLE_MS, max_wait_hours=hours) as delivery:
        yield delivery


@pytest.fixture
def user() -> str:
    return f"user-{uuid4().hex[:8]}"


# D6


def test_d6_same_event_twice_at_once_and_after_it_was_read(eager: Delivery, user: str) -> None:
    eager.publish(chat("twice", user), chat("twice", user))
    eager.wait_read(user, [["twice"]])
    eager.publish(chat("twice", user))
    eager.staged_up_to_here()
    assert eager.pending(user)["pending"] == 0
    assert len(eager.runs(user)) == 1


def test_d6_a_whole_partition_replayed(eager: Delivery, user: str) -> None:
    eager.publish(chat("first", user))
    eager.wait_read(user, [["first"]])
    eager.publish(chat("second", user))
    eager.wait_read(user, [["first"], ["second"]])
    eager.reread_everything()
    until(lambda: eager.counted('keepsake_stager_records_total{outcome="duplicate"}') >= 2)
    eager.staged_up_to_here()
    assert eager.pending(user)["pending"] == 0
    assert len(eager.runs(user)) == 2


def test_d6_two_users_with_the_same_event_id(patient: Delivery, user: str) -> None:
    patient.publish(chat("shared", user), chat("shared", f"{user}-b"))
    patient.has_pending(user, 1)
    patient.has_pending(f"{user}-b", 1)


def test_d6_the_same_id_with_other_text(eager: Delivery, user: str) -> None:
    eager.publish(chat("one", user, "I prefer short answers."))
    eager.wait_read(user, [["one"]])
    [other] = eager.publish(chat("one", user, "I prefer long answers."))
    assert eager.wait_buried(other).letter.reason == "event_id_conflict"
    assert len(eager.runs(user)) == 1
    assert not any("long" in fact for fact in eager.facts(user))


def test_d6_times_zone_and_metadata_are_no_other_content(patient: Delivery, user: str) -> None:
    again = chat("one", user, occurred_at="2026-05-14T12:00:00Z", timezone="Asia/Tokyo", metadata={"try": 2})
    _, second = patient.publish(chat("one", user), again)
    patient.staged_up_to_here()
    patient.has_pending(user, 1)
    assert patient.buried(second) == []


def test_d6_a_fork_repeats_old_chats_under_new_ids(patient: Delivery, user: str) -> None:
    def said(event_id: str, minute: int, **fields: Any) -> bytes:
        return chat(event_id, user, f"sentence {minute}", occurred_at=f"2026-05-14T12:{minute:02}:00Z", **fields)

    patient.publish(said("a", 1), said("b", 2))
    patient.has_pending(user, 2)
    patient.publish(said("fork-a", 1, thread="fork"), said("fork-b", 2, thread="fork"), said("c", 3, thread="fork"))
    patient.has_pending(user, 3)
    patient.staged_up_to_here()
    patient.has_pending(user, 3)


# D7


def _bad(**fields: Any) -> Callable[[str], bytes]:
    return lambda user: chat("bad", user, **fields)


def _without(field: str) -> Callable[[str], bytes]:
    return lambda user: json.dumps({k: v for k, v in json.loads(chat("bad", user)).items() if k != field}).encode()


def _metadata(raw: bytes) -> Callable[[str], bytes]:
    return lambda user: chat("bad", user, metadata={}).replace(b"{}", b'{"a":' + raw + b"}")


DEAD: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "broken JSON": ("not_json", lambda user: chat("bad", user)[:-1]),
    "not UTF-8": ("not_json", lambda user: chat("bad", user, "x").replace(b'"x"', b'"\xff"')),
    "wrong type": ("invalid", _bad(prompt=5)),
    "no object": ("invalid", lambda _: b'["chat.completed"]'),
    "missing user": ("invalid", _without("user")),
    "unknown type": ("unknown_type", _bad(type="chat.edited")),
    "missing type": ("invalid", _without("type")),
    "unknown tenant": ("unknown_tenant", _bad(tenant="nobody")),
    "doubled user": ("invalid", lambda user: chat("bad", user).replace(b"{", b'{"user":"other",', 1)),
    "doubled by an escape": ("invalid", lambda user: chat("bad", user).replace(b"{", b'{"us\\u0065r":"other",', 1)),
    "nested 10,000 deep": ("invalid", _metadata(b"[" * 10_000 + b"]" * 10_000)),
    "nested 40 deep": ("invalid", _metadata(b"[" * 40 + b"]" * 40)),
    "NUL": ("invalid", _bad(response="a\0b")),
    "NUL in an id": ("invalid", _bad(thread="a\0b")),
    "lone surrogate": ("invalid", _bad(prompt="\ud800")),
    "NaN": ("not_json", _metadata(b"NaN")),
    "Infinity": ("not_json", _metadata(b"-Infinity")),
    "year 1 ahead of UTC": ("invalid", _bad(occurred_at="0001-01-01T00:00:00+14:00")),
    "year 9999 behind UTC": ("invalid", _bad(occurred_at="9999-12-31T23:59:00-12:00")),
    "naive time": ("invalid", _bad(occurred_at="2026-05-14T12:00:00")),
    "time as a number": ("invalid", _bad(occurred_at=1_700_000_000)),
    "unknown zone": ("invalid", _bad(timezone="Mars/Olympus")),
    "id of 201 characters": ("invalid", _bad(workspace="w" * 201)),
    "metadata above 4 KiB": ("invalid", _bad(metadata={"a": "x" * 5000})),
    "empty value": ("not_json", lambda _: b""),
    "1 MB": ("too_large", _bad(response="x" * 1_000_000)),
}


@pytest.mark.parametrize("kind", DEAD)
def test_d7_a_bad_record_goes_alone(patient: Delivery, user: str, kind: str) -> None:
    reason, make = DEAD[kind]
    value = make(user)
    _, at, _ = patient.publish(chat("before", user), value, chat("after", user))
    patient.has_pending(user, 2)
    found = patient.wait_buried(at)
    assert (found.letter.reason, found.letter.topic) == (reason, patient.system.topic_chat_events)
    assert (found.key, found.letter.size) == (b"key", len(value))
    assert found.value == value[: 64 * 1024]
    assert user not in found.letter.detail
    assert user not in patient.system.log("extraction")


def test_d7_unknown_fields_are_ignored_and_counted(patient: Delivery, user: str) -> None:
    counted = patient.counted("keepsake_unknown_fields_total")
    patient.publish(chat("plain", user), chat("odd", user, mood="good", score=5))
    patient.has_pending(user, 2)
    until(lambda: patient.counted("keepsake_unknown_fields_total") >= counted + 2)


@pytest.mark.parametrize("value", [b"\xff\xfe", None], ids=["not UTF-8", "absent"])
def test_d7_an_unreadable_header_is_ignored(patient: Delivery, user: str, value: bytes | None) -> None:
    patient.publish(chat("a", user), headers=[("traceparent", value), ("content-type", value)])
    patient.publish(chat("b", user), headers=[("keepsake-original-offset", value)])
    patient.has_pending(user, 2)


# D9


def _ids(count: int) -> list[str]:
    return [f"e{number:02}" for number in range(count)]


def test_d9_four_chats_wait_and_the_fifth_starts_one_run(timed: Delivery, user: str) -> None:
    ids = _ids(5)
    timed.publish(*(chat(event_id, user) for event_id in ids[:4]))
    timed.publish(chat("elsewhere", user, workspace="other"))
    timed.has_pending(user, 4)
    assert timed.pending(user)["waiting_for"] == "min_chats"
    # Another person's five are read meanwhile, so an idle time has passed.
    timed.publish(*(chat(event_id, f"{user}-b") for event_id in ids))
    timed.wait_read(f"{user}-b", [ids])
    assert timed.runs(user) == []
    timed.publish(chat(ids[4], user))
    timed.wait_read(user, [ids])
    assert timed.pending(user, "other")["pending"] == 1


def test_d9_four_chats_are_read_once_the_longest_wait_is_over(timed: Delivery, user: str) -> None:
    ids = _ids(4)
    timed.publish(*(chat(event_id, user) for event_id in ids))
    timed.has_pending(user, 4)
    oldest = datetime.fromisoformat(timed.pending(user)["oldest_at"])
    timed.wait_read(user, [ids])
    [run] = timed.runs(user)
    assert datetime.fromisoformat(run["started_at"]) - oldest >= MAX_WAIT


def test_d9_a_new_chat_postpones_the_run_and_a_replayed_one_does_not(patient: Delivery, user: str) -> None:
    def due() -> datetime:
        return datetime.fromisoformat(patient.pending(user)["due_at"])

    patient.publish(*(chat(event_id, user) for event_id in _ids(5)))
    patient.has_pending(user, 5)
    assert patient.pending(user)["waiting_for"] == "idle"
    first = due()
    patient.publish(*(chat(event_id, user) for event_id in _ids(5)))
    patient.publish(chat("another's", f"{user}-b"), chat("another workspace's", user, workspace="other"))
    patient.staged_up_to_here()
    assert due() == first
    patient.publish(chat("new", user))
    patient.has_pending(user, 6)
    assert due() > first


def test_d9_forty_five_at_once_are_read_in_three_runs(timed: Delivery, user: str) -> None:
    ids = _ids(45)
    timed.publish(*(chat(event_id, user) for event_id in ids))
    timed.wait_read(user, [ids[:20], ids[20:40], ids[40:]])


# D10


def test_d10_in_one_poll_a_chat_a_reset_and_a_chat(eager: Delivery, user: str) -> None:
    eager.system.stop("extraction")
    eager.publish(chat("before", user), reset(user), chat("after", user))
    eager.system.start("extraction")
    eager.wait_read(user, [["after"]])


def test_d10_a_reset_of_one_thread_leaves_the_others(patient: Delivery, user: str) -> None:
    patient.publish(chat("a", user, thread="one"), chat("b", user, thread="two"), chat("c", user))
    patient.has_pending(user, 3)
    patient.publish(reset(user, thread="one"))
    until(lambda: bool(patient.pending(user)["pending"] == 2))
    patient.publish(reset(f"{user}-b"), reset(user, workspace="other"))
    patient.staged_up_to_here()
    patient.has_pending(user, 2)


def test_d10_a_replayed_reset_changes_nothing(patient: Delivery, user: str) -> None:
    patient.publish(chat("before", user), reset(user), chat("after", user))
    patient.has_pending(user, 1)
    patient.reread_everything()
    until(lambda: patient.counted('keepsake_stager_records_total{outcome="dropped_reset"}') >= 1)
    patient.staged_up_to_here()
    patient.has_pending(user, 1)


def test_d10_a_reset_dated_9999_means_no_more_than_its_position(patient: Delivery, user: str) -> None:
    patient.publish(chat("before", user), reset(user, occurred_at="9999-12-29T00:00:00Z"), chat("after", user))
    patient.has_pending(user, 1)
    patient.publish(chat("later", user, occurred_at="2020-01-01T00:00:00Z"))
    patient.has_pending(user, 2)


def test_d10_a_reset_while_a_run_holds_the_chats(
    postgres: PostgresForTests, kafka: Broker, tmp_path: Path, user: str
) -> None:
    def likes(what: str, **reply: Any) -> Json:
        evidence = [{"event_id": f"$event:I like {what}", "quote": f"I like {what}"}]
        fact = {"content": f"User likes {what}", "category": "preference", "sensitive": False, "confidence": "high"}
        candidates = [fact | {"reasoning": "stated", "evidence": evidence}]
        return {"phase": "observer", "when": f"I like {what}", "reply": {"call": {"candidates": candidates}} | reply}

    decision = {"action": "create", "scope": "workspace", "target": None, "reason": "stated"}
    with running_model() as model:
        model.script(likes("tea", delay=3.0), likes("rain"), {"phase": "reflector", "reply": {"all": decision}})
        settings = {"model": "openai:scripted", "model_base_url": model.url}
        with running(postgres, kafka, tmp_path, **settings) as delivery:
            delivery.publish(chat("held", user, "I like tea"))
            until(lambda: bool(model.seen("observer")))
            delivery.publish(reset(user))
            delivery.staged_up_to_here()
            assert [run["state"] for run in delivery.runs(user)] == ["running"]
            delivery.publish(chat("later", user, "I like rain"))
            until(lambda: delivery.facts(user) != [])
            until(lambda: all(run["state"] != "running" for run in delivery.runs(user)))
            assert delivery.facts(user) == ["User likes rain"]
            assert delivery.pending(user)["pending"] == 0


@pytest.mark.parametrize("name", [None, "", "undefined", "Guest", " NULL "])
def test_d10_nobody_is_never_staged(patient: Delivery, user: str, name: str | None) -> None:
    counted = patient.counted('keepsake_stager_records_total{outcome="dropped_anonymous"}')
    staged = patient.counted('keepsake_stager_records_total{outcome="staged"}')
    patient.publish(chat(str(uuid4()), name), chat("somebody's", user))
    patient.has_pending(user, 1)
    until(lambda: patient.counted('keepsake_stager_records_total{outcome="dropped_anonymous"}') == counted + 1)
    assert patient.counted('keepsake_stager_records_total{outcome="staged"}') == staged + 1


# D12


def test_d12_one_bad_chat_in_five_hundred(system: SystemFactory, user: str) -> None:
    started = system(min_chats=1000).start("memory_store", "chat_ingest", "extraction")
    chats: list[Json] = [{"user": user, "prompt": f"chat {n}", "response": ""} for n in range(500)]
    with closing(Delivery(started)) as delivery, started.client("chat_ingest") as ingest:
        refused = ingest.post(
            "/v1/chats", json=[*chats[:321], {"user": user, "prompt": 5, "response": ""}, *chats[322:]]
        )
        assert refused.status_code == 422
        assert refused.json()["code"] == "invalid"
        assert refused.json()["errors"] == [{"index": 321, "field": "prompt", "code": "invalid"}]
        assert ingest.post("/v1/chats", json=[*chats, chats[0]]).status_code == 422
        delivery.staged_up_to_here()
        assert delivery.pending(user)["pending"] == 0
        accepted = ingest.post("/v1/chats", json=chats[:7])
        assert accepted.status_code == 202
        assert len(set(accepted.json()["accepted"])) == 7
        delivery.has_pending(user, 7)


@pytest.mark.apache_kafka
def test_d12_kafka_is_away(own_system: SystemFactory, own_kafka: Broker, user: str) -> None:
    system = own_system(min_chats=1000, publish_timeout_ms=1500)
    system.start("memory_store", "chat_ingest", "extraction")
    chats = [{"user": user, "prompt": f"chat {n}", "response": ""} for n in range(3)]
    with closing(Delivery(system)) as delivery, system.client("chat_ingest") as ingest:
        own_kafka.kill()
        started = time.monotonic()
        unnamed = ingest.post("/v1/chats", json=chats)
        keyed = ingest.post("/v1/chats", json=chats[0] | {"prompt": "keyed"}, headers={"Idempotency-Key": "k1"})
        assert time.monotonic() - started < 2 * 1.5 + 2
        for answer, count in ((unnamed, 3), (keyed, 1)):
            assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
            assert answer.json()["code"] == "unavailable"
            assert int(answer.headers["retry-after"]) >= 1
            assert len(set(answer.json()["event_ids"])) == count
        until(lambda: ingest.get("/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE)
        own_kafka.start()
        until(lambda: ingest.get("/readyz").status_code == httpx.codes.OK)
        named = [
            each | {"event_id": event_id} for each, event_id in zip(chats, unnamed.json()["event_ids"], strict=True)
        ]
        for _ in range(2):
            again = ingest.post("/v1/chats", json=named)
            assert (again.status_code, again.json()["accepted"]) == (202, unnamed.json()["event_ids"])
            again = ingest.post("/v1/chats", json=chats[0] | {"prompt": "keyed"}, headers={"Idempotency-Key": "k1"})
            assert (again.status_code, again.json()["accepted"]) == (202, keyed.json()["event_ids"])
        delivery.has_pending(user, 4)
        delivery.staged_up_to_here()
        delivery.has_pending(user, 4)


@pytest.mark.apache_kafka
def test_d12_kafka_is_away_at_start(own_system: SystemFactory, own_kafka: Broker, user: str) -> None:
    system = own_system(min_chats=1000)
    system.start("memory_store")
    own_kafka.stop()
    system.launch("chat_ingest")
    with system.client("chat_ingest") as ingest:

        def answers() -> bool:
            try:
                return ingest.get("/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE
            except httpx.TransportError:
                return False

        until(answers)
        away = ingest.post("/v1/chats", json={"event_id": "mine", "user": user, "prompt": "p", "response": "r"})
        assert (away.status_code, away.json()["event_ids"]) == (503, ["mine"])
        assert ingest.get("/healthz").status_code == httpx.codes.OK
        own_kafka.start()
        until(lambda: ingest.get("/readyz").status_code == httpx.codes.OK)
        posted = ingest.post("/v1/chats", json={"event_id": "mine", "user": user, "prompt": "p", "response": "r"})
        assert (posted.status_code, posted.json()) == (202, {"accepted": ["mine"]})
    assert system.log("chat_ingest").count("kafka_away") == 1

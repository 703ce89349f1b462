"""`python -m deploy dead-letters` on a real broker: found in pages and by filters, shown without what was said, replayed without harm."""

import asyncio
import base64
import hashlib
import json
from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from deploy import dead_letters, topics
from deploy.errors import DeployError
from deploy.local.broker import Broker
from shared.events import MAX_DEAD_LETTER_BYTES
from shared.kafka import KafkaSettings
from tests.conftest import SystemFactory
from tests.support.waiting import until

SAID = "CANARY what was said"


@dataclass
class Desk:
    """Someone on call, with a broker."""

    settings: KafkaSettings

    async def call(self, *arguments: str) -> tuple[int, list[str]]:
        """Exit code and lines."""
        parser = ArgumentParser()
        dead_letters.add_arguments(parser)
        lines: list[str] = []
        code = await dead_letters.run(self.settings, parser.parse_args(arguments), lines.append)
        return code, lines

    async def lines(self, *arguments: str) -> list[str]:
        code, lines = await self.call(*arguments)
        assert code == 0
        return lines

    async def json(self, *arguments: str) -> Any:
        [line] = await self.lines(*arguments, "--json")
        return json.loads(line)

    async def bury(self, *letters: dict[str, Any], partition: int = 1, key: bytes | None = b"default/ann/w") -> None:
        async with _started(AIOKafkaProducer(**self.settings.kafka_client())) as producer:
            for letter in letters:
                value = json.dumps(letter).encode()
                await producer.send_and_wait(self.settings.topic_dead_letter, value, key=key, partition=partition)

    def letter(self, offset: int, value: bytes, **fields: Any) -> dict[str, Any]:
        return {
            "topic": self.settings.topic_chat_events,
            "partition": 2,
            "offset": offset,
            "timestamp": 1700000000000 + offset,
            "reason": "invalid",
            "detail": "user",
            "size": len(value),
            "sha256": hashlib.sha256(value).hexdigest(),
            "value_base64": base64.b64encode(value[:MAX_DEAD_LETTER_BYTES]).decode(),
        } | fields

    async def published(self, partition: int = 2) -> list[Any]:
        """What stands in a partition of the original topic."""
        place = TopicPartition(self.settings.topic_chat_events, partition)
        async with _started(AIOKafkaConsumer(**self.settings.kafka_client())) as consumer:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            found: list[Any] = []
            while records := (await consumer.getmany(place, timeout_ms=1500)).get(place):
                found += records
            return found


class _started:  # noqa: N801 (reads as a function)
    def __init__(self, client: Any) -> None:
        self._client = client

    async def __aenter__(self) -> Any:
        await self._client.start()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()


@pytest.fixture
async def desk(kafka: Broker) -> Desk:
    names = {f"topic_{name}": f"{name}-{uuid4().hex[:8]}" for name in ("chat_events", "dead_letter", "memory_changes")}
    settings = KafkaSettings.model_validate({"kafka_bootstrap_servers": (kafka.bootstrap,)} | names)
    await topics.ensure(settings)
    return Desk(settings)


def chat(**fields: Any) -> bytes:
    event = {"type": "chat.completed", "event_id": "e1", "user": "ann", "prompt": SAID, "response": SAID} | fields
    return json.dumps(event).encode()


async def test_a_list_comes_in_pages_and_by_filters(desk: Desk) -> None:
    await desk.bury(*(desk.letter(n, chat()) for n in range(5)), partition=1)
    await desk.bury(desk.letter(9, chat(), reason="unknown_tenant", partition=4), partition=3)
    await desk.bury({"something": "else"}, partition=3)

    assert (await desk.lines("list"))[-1] == "6 dead letters"
    pages, after = [], None
    while True:
        page = await desk.json("list", "--limit", "2", *(("--after", after) if after else ()))
        pages.append([each["id"] for each in page["items"]])
        if (after := page["next"]) is None:
            break
    assert pages == [["1:0", "1:1"], ["1:2", "1:3"], ["1:4", "3:0"]]
    assert (await desk.lines("list", "--limit", "2"))[-1] == "2 dead letters; more: --after 1:1"

    async def ids(*filters: str) -> list[str]:
        return [each["id"] for each in (await desk.json("list", *filters))["items"]]

    assert await ids("--reason", "unknown_tenant") == ["3:0"]
    assert await ids("--partition", "2", "--offset", "1-2") == ["1:1", "1:2"]
    assert await ids("--offset", "9") == ["3:0"]
    assert await ids("--since", "1h", "--until", "2999-01-01T00:00:00Z") == ["1:0", "1:1", "1:2", "1:3", "1:4", "3:0"]
    assert await ids("--until", "1h") == await ids("--since", "2999-01-01T00:00:00+02:00") == []
    [first] = (await desk.json("list", "--offset", "0"))["items"]
    assert first["origin"] == {
        "topic": desk.settings.topic_chat_events,
        "partition": 2,
        "offset": 0,
        "at": "2023-11-14T22:13:20+00:00",
    }


WRONG = (
    ("list", "--limit", "0"),
    ("list", "--reason", "boredom"),
    ("list", "--since", "yesterday"),
    ("list", "--since", "2024-01-01T00:00:00"),
    ("list", "--after", "1"),
    ("list", "--offset", "a-b"),
    ("show", "1:x"),
    ("show",),
)


@pytest.mark.parametrize("arguments", WRONG)
async def test_what_is_no_question_is_refused(desk: Desk, arguments: tuple[str, ...], capsys: Any) -> None:
    with pytest.raises(SystemExit) as refused:
        await desk.call(*arguments)
    assert refused.value.code == 2


BAD = {
    "in a field that is wrong": chat(user=7, metadata={SAID: SAID}),
    "under an unknown name": chat(**{SAID: [SAID]}),
    "in the place of an id": chat(user=SAID, thread="CANARY\n"),
    "in what is no JSON": b'{"prompt": "' + SAID.encode() + b'"',
    "in what is not even text": b"\xff\xfe" + SAID.encode(),
    "in what is no object": json.dumps([SAID]).encode(),
}


async def test_nothing_that_was_said_is_shown_unless_asked_for(desk: Desk) -> None:
    long = chat(prompt=SAID + "x" * 100_000)
    await desk.bury(*(desk.letter(n, value) for n, value in enumerate([*BAD.values(), long])))
    every = [f"1:{n}" for n in range(len(BAD) + 1)]
    for asked in (("list",), ("show", *every)):
        for form in ((), ("--json",)):
            assert "CANARY" not in "".join(await desk.lines(*asked, *form))
    for each in every:
        assert "CANARY" in "".join(await desk.lines("show", each, "--text"))
    assert "CANARY" in (await desk.json("show", "1:4", "--text"))["items"][0]["text"]
    _, replayed = await desk.call("replay", "--all")
    assert "CANARY" not in "".join(replayed)


async def test_a_record_is_shown_as_far_as_it_can_be_decoded(desk: Desk) -> None:
    await desk.bury(
        desk.letter(0, chat(user=7, thread="t-1", metadata={"a": 1}, extra=1, more=2)),
        desk.letter(1, chat(prompt="x" * 100_000), reason="too_large"),
        desk.letter(2, chat(), reason="unknown_tenant"),
    )
    shown = (await desk.json("show", "1:0", "1:1", "1:2"))["items"]
    assert shown[0]["fields"] == {
        "type": '"chat.completed"',
        "event_id": '"e1"',
        "user": "number",
        "thread": '"t-1"',
        "prompt": f"string of {len(SAID)} characters",
        "response": f"string of {len(SAID)} characters",
        "metadata": "object of 1 fields",
    }
    assert (shown[0]["unknown_fields"], shown[0]["read_now"], shown[0]["key"]) == (
        2,
        "no: invalid, user",
        "default/ann/w",
    )
    assert (shown[1]["whole"], shown[1]["fields"]["event_id"]) == (False, '"e1"')
    assert shown[2]["read_now"] == "yes"
    text = await desk.lines("show", "1:0")
    assert "  .user         number" in text
    assert "  and 2 unknown fields" in text


async def test_a_terminal_is_told_nothing_by_a_record(desk: Desk) -> None:
    await desk.bury(desk.letter(0, b"\x1b]0;owned\x07{", detail="\x1b[2J", reason="not_json"))
    shown = "\n".join([*await desk.lines("list"), *await desk.lines("show", "1:0", "--text")])
    assert "\x1b" not in shown
    assert "\\x1b]0;owned" in shown


async def test_one_that_is_not_there_is_named(desk: Desk) -> None:
    await desk.bury(desk.letter(0, chat()), {"not": "ours"})
    for missing in ("5:5", "1:1", "1:7", "99:0"):
        with pytest.raises(DeployError, match=f"no dead letter {missing}") as refused:
            await desk.call("show", missing)
        assert refused.value.exit_code == 2


async def test_replay_keeps_place_key_and_partition(desk: Desk) -> None:
    await desk.bury(desk.letter(3, chat()))
    await desk.bury(desk.letter(4, b"\xff{", reason="not_json"), key=None)
    assert await desk.lines("replay", "1:0") == [f"1:0: replayed to {desk.settings.topic_chat_events}"]
    assert await desk.lines("replay", "--reason", "not_json") == [f"1:1: replayed to {desk.settings.topic_chat_events}"]
    first, second = await desk.published()
    assert (first.key, first.value, second.key, second.value) == (b"default/ann/w", chat(), None, b"\xff{")
    assert dict(first.headers) == {
        "keepsake-original-timestamp": b"1700000000003",
        "keepsake-original-partition": b"2",
        "keepsake-original-offset": b"3",
    }


async def test_what_cannot_be_replayed_is_refused_clearly_and_the_others_go(desk: Desk) -> None:
    await desk.bury(
        desk.letter(1, chat(prompt="x" * 100_000)),
        desk.letter(2, chat(), sha256="0" * 64),
        desk.letter(3, chat(), topic="elsewhere"),
        desk.letter(4, chat(), partition=77),
        desk.letter(5, chat()),
    )
    code, lines = await desk.call("replay", "--all")
    size = len(chat(prompt="x" * 100_000))
    topic = desk.settings.topic_chat_events
    assert code == 1
    assert lines == [
        f"1:0: not replayed, only its first 65536 of {size} bytes were kept: publish it again at its source",
        "1:1: not replayed, its bytes are not those that were dead-lettered",
        f"1:2: not replayed, it comes from another topic than {topic}",
        f"1:3: not replayed, {topic} has no partition 77",
        f"1:4: replayed to {topic}",
    ]
    assert len(await desk.published()) == 1


async def test_replay_says_which_or_nothing_at_all(desk: Desk) -> None:
    await desk.bury(desk.letter(0, chat()))
    for arguments in ((), ("1:0", "--all"), ("--all", "--reason", "invalid"), ("1:0", "--partition", "2")):
        with pytest.raises(DeployError, match="say which") as refused:
            await desk.call("replay", *arguments)
        assert refused.value.exit_code == 2
    assert await desk.published() == []


async def test_of_one_record_that_died_twice_one_is_replayed(desk: Desk) -> None:
    await desk.bury(desk.letter(0, chat()), desk.letter(0, chat()), desk.letter(1, chat(event_id="e2")))
    assert [each["id"] for each in (await desk.json("replay", "--all"))["items"]] == ["1:0", "1:2"]


async def test_kafka_away_is_one_line() -> None:
    with pytest.raises(DeployError, match=r"Kafka at 127\.0\.0\.1:9 refused or is away"):
        await Desk(KafkaSettings(kafka_bootstrap_servers=("127.0.0.1:9",))).call("list")


@pytest.mark.timeout(120)
def test_replayed_twice_once_the_tenant_is_there_each_chat_is_staged_once(system: SystemFactory) -> None:
    """The whole way, as whoever is on call goes it: a tenant was forgotten, its chats died, it is made, they are replayed, twice."""
    running = system(min_chats=1000).start("memory_store", "extraction")
    desk = Desk(running.kafka_settings)

    async def publish(*event_ids: str) -> None:
        async with _started(AIOKafkaProducer(**desk.settings.kafka_client())) as producer:
            for event_id in event_ids:
                value = chat(event_id=event_id, tenant="late", workspace="w")
                await producer.send_and_wait(desk.settings.topic_chat_events, value, key=b"late/ann/w", partition=0)

    def dead(*filters: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = asyncio.run(desk.json("list", *filters))["items"]
        return items

    asyncio.run(publish(*(f"e{n}" for n in range(5))))
    until(lambda: len(dead("--reason", "unknown_tenant")) == 5, 60)
    with running.client("memory_store") as operator:
        assert operator.post("/v1/tenants", json={"tenant": "late"}).status_code == 201
    with running.client("memory_store", **{"Keepsake-Tenant": "late"}) as late:

        def pending() -> Any:
            return late.get("/v1/pending", params={"user": "ann", "workspace": "w"}).json()["pending"]

        for _ in range(2):
            assert len(asyncio.run(desk.json("replay", "--reason", "unknown_tenant"))["items"]) == 5
            until(lambda: pending() == 5)
        # After them in their partition: once it is staged, they have been looked at twice. None is there twice, none died again.
        asyncio.run(publish("after"))
        until(lambda: pending() == 6)
    assert len(dead()) == 5

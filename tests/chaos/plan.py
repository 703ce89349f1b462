"""What a seed stands for: which chats are published when and how, and which faults befall which part when. No I/O."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from services.chat_ingest.publisher import keyed_event_ids
from shared.ids import partition_key

TENANTS = ("default", "acme", "globex")
Group = tuple[str, str, str]
"""tenant, user, workspace"""

Kind = Literal["chat", "poison", "anonymous", "bad", "conflict", "fork", "reset", "deleted"]
Path = Literal["kafka", "http", "keyed"]


def _words(text: str, between: str | None = None) -> list[str]:
    return text.split(between)


_ADJECTIVES = _words(
    "mossy amber quiet crooked salty velvet tidy rusty pale brisk hollow sunny woolly sharp gentle loud"
)
_NOUNS = _words(
    "lanterns kettles bridges sonnets parsnips harbours ladders violins thimbles orchards marbles tunnels magpies quilts"
)
_CITIES = _words("Lisbon Osaka Tartu Quito Leeds Accra Turin Hanoi Bergen Lima Graz Cork Izmir Pune Lyon Gdansk")
_SMALL_TALK = _words(
    "the garden,a late train,my old bicycle,this recipe,the weather,a broken lamp,our school play", ","
)
_BAD = (
    b"{not json",
    b'{"type":"chat.completed","event_id":"x"}',
    b'{"type":"chat.painted","event_id":"x","user":"u"}',
    b'{"type":"chat.completed","event_id":"x","tenant":"nobody","user":"u","prompt":"p","response":"r"}',
)


@dataclass(frozen=True)
class Planned:
    """One record. `event` is its JSON, `value` the bytes that go to Kafka; `statement` is the sentence a right model learns from."""

    kind: Kind
    group: Group
    event_id: str
    event: dict[str, Any] | None
    value: bytes
    statement: str | None = None

    @property
    def key(self) -> bytes:
        tenant, user, workspace = self.group
        return partition_key(tenant, user, workspace)


@dataclass(frozen=True)
class Send:
    """Records that go out together, at `at` seconds or once number `after` is accepted. All of a `keyed` one belong to one tenant."""

    number: int
    at: float
    path: Path
    records: tuple[Planned, ...]
    after: int | None = None
    key: str | None = None


# kill: SIGKILL, started again after `seconds`. stop: SIGSTOP for `seconds`. Both at the moment that `how` names, if any.
# link: `how` befalls a link for `seconds`. model: the model fails in the way `how`.
FaultKind = Literal["kill", "stop", "link", "model"]


@dataclass(frozen=True)
class Fault:
    at: float
    kind: FaultKind
    target: str
    seconds: float
    how: str = ""


_KILLED = {
    "extraction-a": 16,
    "extraction-b": 16,
    "memory-store-a": 15,
    "memory-store-b": 15,
    "backend": 12,
    "chat-ingest": 8,
    "injection": 5,
    "postgres": 7,
    "kafka": 6,
}
AIMS = {
    "extraction-a": _words(
        "StageChats asking,StageChats answered,ClaimRun answered,decide asked,decide answered,CompleteRun asking,CompleteRun asked,"
        "CompleteRun answered",
        ",",
    ),
    "memory-store-a": _words("COMMIT asking,COMMIT asked,COMMIT answered", ","),
}
AIMS |= {name.replace("-a", "-b"): aims for name, aims in AIMS.items()}
_STOPPED = {
    "extraction-a": 5,
    "extraction-b": 5,
    "memory-store-a": 3,
    "memory-store-b": 3,
    "backend": 2,
    "postgres": 1,
    "kafka": 2,
    "chat-ingest": 1,
    "injection": 1,
}
LINKS = (
    "extraction-a store",
    "extraction-b store",
    "extraction-a model",
    "extraction-b model",
    "edge store",
    "memory-store-a postgres",
    "memory-store-b postgres",
    "kafka",
)
LINK_FAULTS = ("cut", "refusing", "stalled", "deaf", "slow")
MODEL_FAULTS = ("status_401", "status_429", "status_500", "status_503", "hang", "refuse", "drop")


def plan_faults(seed: int, kills: int, seconds: float) -> list[Fault]:
    """`kills` SIGKILLs over the time, and beside them half as many stops, link and model faults."""
    rng = random.Random(f"faults {seed}")
    faults = []
    for number in range(kills):
        # Evenly, but for a jitter: a lull would prove nothing.
        at = seconds * (number + rng.random()) / kills
        [target] = rng.choices(list(_KILLED), list(_KILLED.values()))
        faults.append(Fault(at, "kill", target, rng.choice((0.0, 0.2, 1.0, 3.0)), _aim(rng, target)))
    for number in range(kills // 2):
        at = seconds * (number + rng.random()) / (kills // 2)
        kind: FaultKind = rng.choice(("stop", "link", "link", "model"))
        if kind == "stop":
            [target] = rng.choices(list(_STOPPED), list(_STOPPED.values()))
            # The longest is longer than a lease.
            faults.append(Fault(at, kind, target, rng.choice((0.5, 2.0, 7.0)), _aim(rng, target)))
        elif kind == "link":
            faults.append(Fault(at, kind, rng.choice(LINKS), rng.choice((0.5, 2.0, 6.0)), rng.choice(LINK_FAULTS)))
        else:
            faults.append(Fault(at, kind, "model", rng.choice((1.0, 3.0, 6.0)), rng.choice(MODEL_FAULTS)))
    return sorted(faults, key=lambda fault: fault.at)


def _aim(rng: random.Random, target: str) -> str:
    return rng.choice(AIMS[target]) if target in AIMS and rng.random() < 0.75 else ""


def plan_sends(seed: int, chats: int, seconds: float) -> list[Send]:
    """At least `chats` chats in conversations of one to eight, and between them everything else that may stand on the topic."""
    return sorted(_Traffic(random.Random(f"chats {seed}"), seconds).sends(chats), key=lambda send: send.at)


class _Traffic:
    def __init__(self, rng: random.Random, seconds: float) -> None:
        self._rng = rng
        self._seconds = seconds
        self._number = 0
        self._sends = 0
        self._things: dict[Group, list[str]] = {}
        self._poisons = 0
        # What befalls a person besides chats: so that one kind does not blur what another must come to.
        self._people = {
            (tenant, f"{name}-{n}"): ("plain", "resets", "deletes", "forks", "poison", "talkative")[n % 6]
            for tenant in TENANTS
            for n, name in enumerate(
                ("ana", "bo/x", "zoë ü", "dan", "eli", "fay", "gus", "hoa", "ida", "jo", "kim", "lea")
            )
        }

    def sends(self, chats: int) -> Iterator[Send]:
        people = list(self._people)
        while self._number < chats:
            tenant, user = self._rng.choice(people)
            role = self._people[tenant, user]
            group = (tenant, user, self._rng.choice(("default", "work", "home / 2")))
            yield from self._conversation(group, role)

    def _conversation(self, group: Group, role: str) -> Iterator[Send]:
        rng = self._rng
        at = rng.random() * self._seconds
        thread = rng.choice((None, "t1", "t2"))
        records = [self._chat(group, thread, role) for _ in range(rng.choice((1, 1, 2, 3, 5, 8)))]
        path: Path = rng.choices(("kafka", "http", "keyed"), (75, 15, 10))[0]
        first = self._send(at, path, records)
        yield first
        if rng.random() < 0.2:
            yield self._send(at + rng.random() * 10, "kafka", first.records)
        if rng.random() < 0.1:
            yield self._send(at, "kafka", [self._anonymous(group)])
        if rng.random() < 0.06:
            yield self._send(at, "kafka", [Planned("bad", group, "", None, rng.choice(_BAD))])
        follow = rng.random() < 0.4
        if role == "resets" and follow:
            yield self._send(at, "kafka", [self._control("reset", group, thread=thread)], first)
        if role == "deletes" and follow:
            gone = [rng.choice(first.records).event_id]
            yield self._send(at, "kafka", [self._control("deleted", group, event_ids=gone)], first)
        if role == "forks" and follow:
            old = rng.choice(first.records)
            other, kind = self._fork(old) if rng.random() < 0.5 else self._conflict(old)
            yield self._send(at, "kafka", [_planned(kind, group, other)], first)

    def _send(
        self, at: float, path: Path, records: list[Planned] | tuple[Planned, ...], after: Send | None = None
    ) -> Send:
        number, self._sends = self._sends, self._sends + 1
        key = None
        if path == "keyed":
            key = f"request-{number}"
            ids = keyed_event_ids(records[0].group[0], key, len(records))
            records = [
                _planned(record.kind, record.group, (record.event or {}) | {"event_id": event_id}, record.statement)
                for record, event_id in zip(records, ids, strict=True)
            ]
        return Send(number, at, path, tuple(records), after.number if after else None, key)

    def _chat(self, group: Group, thread: str | None, role: str) -> Planned:
        rng = self._rng
        self._number += 1
        statement = self._statement(group) if rng.random() < (0.7 if role == "talkative" else 0.3) else None
        kind: Kind = "chat"
        opening = f"Hello, number {self._number} about {rng.choice(_SMALL_TALK)}."
        if role == "poison" and rng.random() < 0.04:
            kind = "poison"
            # Two that look like an outage are the most: the third in a row would be one.
            self._poisons += 1
            opening += " POISON-500" if self._poisons <= 2 else rng.choice((" POISON-text", " POISON-422"))
        said = " ".join(filter(None, (opening, statement, rng.choice(("Thanks.", "What do you think?", "")))))
        at = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(seconds=self._number)
        event = {
            "event_id": f"e-{self._number}",
            "user": group[1],
            "workspace": group[2],
            "thread": thread,
            "prompt": said,
        }
        event |= {"response": "Noted.", "occurred_at": at.isoformat() if rng.random() < 0.8 else None}
        return _planned(kind, group, event, statement)

    def _statement(self, group: Group) -> str:
        rng = self._rng
        liked = self._things.setdefault(group, [])
        choice = rng.random()
        if choice < 0.15:
            return f"I live in {rng.choice(_CITIES)}."
        if choice < 0.25:
            return f"My motto is {rng.choice(_ADJECTIVES)} {rng.choice(_ADJECTIVES)} {rng.choice(_NOUNS)}."
        if liked and choice < 0.35:
            return f"I really like {rng.choice(liked)}."
        if liked and choice < 0.40:
            return f"I stopped liking {rng.choice(liked)}."
        thing = f"{rng.choice(_ADJECTIVES)} {rng.choice(_NOUNS)}"
        liked.append(thing)
        return f"I like {thing}."

    def _anonymous(self, group: Group) -> Planned:
        self._number += 1
        user = self._rng.choice((None, "", "Guest", "undefined"))
        event = {"event_id": f"e-{self._number}", "user": user, "prompt": "I like nobody.", "response": "Noted."}
        return _planned("anonymous", (group[0], "", group[2]), event)

    def _control(self, kind: Literal["reset", "deleted"], group: Group, **fields: Any) -> Planned:
        self._number += 1
        event = {
            "type": f"chat.{kind}",
            "event_id": f"e-{self._number}",
            "user": group[1],
            "workspace": group[2],
        } | fields
        return _planned(kind, group, event | {"occurred_at": datetime(2026, 6, 1, tzinfo=UTC).isoformat()})

    def _fork(self, old: Planned) -> tuple[dict[str, Any], Kind]:
        """The same chat under another id: with its time it is a repeat, without one a chat of its own."""
        self._number += 1
        return (old.event or {}) | {"event_id": f"e-{self._number}"}, "fork"

    def _conflict(self, old: Planned) -> tuple[dict[str, Any], Kind]:
        return (old.event or {}) | {"prompt": "I like something else."}, "conflict"


def _planned(kind: Kind, group: Group, event: dict[str, Any], statement: str | None = None) -> Planned:
    record = {"type": "chat.completed", "tenant": group[0]} | event
    return Planned(kind, group, event["event_id"], record, json.dumps(record, ensure_ascii=False).encode(), statement)

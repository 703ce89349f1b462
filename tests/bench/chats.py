"""Chats of 1 KB of text, nearly all of them of another person."""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared.ids import DEFAULT_TENANT, DEFAULT_WORKSPACE, partition_key
from shared.kafka import KafkaSettings, Producer, Record

PROMPT, RESPONSE = 300, 700
_SENTENCE = """
about after always another answer because before better between bread bridge build carry certain change city clear
close could country course deliver different door early enough every family field figure final follow garden general
given great group hand heavy house however idea important inside island just keep kitchen large later letter level
light little local machine market matter member middle moment morning mountain music nature never night north number
office often open order other paper part people person picture place plan point possible problem question quite rather
reason report result river road room school second several short simple small sound south special station still stone
story street strong summer table their these thing three through today together toward train travel under until using
value village voice water weather week while white window winter within without word work world write year young
"""
_WORDS = _SENTENCE.split()


@dataclass(frozen=True, slots=True)
class Chat:
    event_id: str
    user: str
    prompt: str
    response: str
    occurred_at: datetime

    def fields(self) -> dict[str, str]:
        return {
            "event_id": self.event_id,
            "user": self.user,
            "prompt": self.prompt,
            "response": self.response,
            "occurred_at": self.occurred_at.isoformat(),
        }

    def record(self) -> Record:
        value = json.dumps({"type": "chat.completed", **self.fields()}).encode()
        return Record(partition_key(DEFAULT_TENANT, self.user, DEFAULT_WORKSPACE), value)


def chats(count: int, *, seed: str) -> list[Chat]:
    """The same for the same seed. Of fifty, two are of one person, as in 490 keys of 500 chats."""
    dice = random.Random(seed)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Chat(
            event_id=f"{seed}-{number}",
            user=f"user-{seed}-{number - (number % 50 == 0)}",
            prompt=words(PROMPT, dice),
            response=words(RESPONSE, dice),
            occurred_at=start + timedelta(seconds=number),
        )
        for number in range(count)
    ]


def words(characters: int, dice: random.Random) -> str:
    return " ".join(dice.choices(_WORDS, k=characters // 4))[:characters]


async def publish(settings: KafkaSettings, records: Sequence[Record], *, page: int = 5000) -> None:
    """Returns once the broker has all. Raises PublishFailed."""
    producer = Producer(settings, name="bench")
    producer.start()
    try:
        while not producer.connected:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.02)
        for start in range(0, len(records), page):
            await producer.publish(settings.topic_chat_events, records[start : start + page], timeout=30)
    finally:
        await producer.stop()

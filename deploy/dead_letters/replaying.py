"""Publishes the records of dead letters again, at the place they had.

Safe to repeat: the headers carry the first position, by which barriers are judged; staging knows the event's id, so a record that was
staged meanwhile is a duplicate and changes nothing; and one that is still bad comes back as another dead letter of the same origin, of
which one call replays only the first it meets.
"""

from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer

from deploy.dead_letters.topic import Found, started
from shared.events import ORIGINAL_OFFSET, ORIGINAL_PARTITION, ORIGINAL_TIMESTAMP
from shared.kafka import KafkaSettings


@dataclass(frozen=True)
class Replayed:
    """`refused`: why it was not published, None where it was."""

    id: str
    topic: str
    refused: str | None

    @property
    def line(self) -> str:
        return (
            f"{self.id}: replayed to {self.topic}"
            if self.refused is None
            else f"{self.id}: not replayed, {self.refused}"
        )


async def replay(settings: KafkaSettings, letters: AsyncIterable[Found]) -> AsyncGenerator[Replayed, None]:
    """The original bytes, key and partition; each letter is published before it is answered. Raises KafkaError."""
    origins: set[tuple[int, int]] = set()
    producer = AIOKafkaProducer(**settings.kafka_client(), acks="all")
    async with started(producer):
        partitions = await producer.partitions_for(settings.topic_chat_events)
        async for found in letters:
            letter = found.letter
            origin = (letter.partition, letter.offset)
            refused = _refusal(found, settings.topic_chat_events, partitions)
            if refused is None and origin in origins:
                continue
            origins.add(origin)
            if refused is None:
                headers = [
                    (ORIGINAL_TIMESTAMP, str(letter.timestamp).encode()),
                    (ORIGINAL_PARTITION, str(letter.partition).encode()),
                    (ORIGINAL_OFFSET, str(letter.offset).encode()),
                ]
                await producer.send_and_wait(
                    letter.topic, found.value, key=found.key, partition=letter.partition, headers=headers
                )
            yield Replayed(found.id, letter.topic, refused)


def _refusal(found: Found, topic: str, partitions: set[int]) -> str | None:
    letter = found.letter
    if not found.whole:
        return f"only its first {len(found.value)} of {letter.size} bytes were kept: publish it again at its source"
    if not found.intact:
        return "its bytes are not those that were dead-lettered"
    if letter.topic != topic:
        return f"it comes from another topic than {topic}"
    if letter.partition not in partitions:
        return f"{topic} has no partition {letter.partition}"
    return None

"""`python -m deploy dead-letters list | show | replay`: records that could not be staged, and another try for them."""

import argparse
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from pydantic import ValidationError

from deploy.errors import DeployError
from shared.events import ORIGINAL_OFFSET, ORIGINAL_PARTITION, ORIGINAL_TIMESTAMP, DeadLetter
from shared.kafka import KafkaSettings


@dataclass(frozen=True)
class Found:
    """A dead letter and where it stands: `id` is partition:offset in the dead-letter topic."""

    id: str
    key: bytes | None
    letter: DeadLetter

    @property
    def value(self) -> bytes:
        return base64.b64decode(self.letter.value_base64)

    @property
    def whole(self) -> bool:
        return len(self.value) == self.letter.size

    def line(self) -> str:
        letter = self.letter
        at = datetime.fromtimestamp(letter.timestamp / 1000, UTC).isoformat(timespec="seconds")
        origin = f"{letter.topic}/{letter.partition}/{letter.offset}"
        cut = "" if self.whole else "  (cut: cannot be replayed)"
        return f"{self.id:<10} {at}  {letter.reason:<18} {letter.size:>7} bytes  {origin}  {letter.detail}{cut}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True)
    listing = commands.add_parser("list", help="one line each, without the text of the record")
    listing.add_argument("--reason", help="only those with this reason, such as invalid")
    show = commands.add_parser("show", help="the record itself; it may hold what a person said")
    show.add_argument("ids", nargs="+", metavar="PARTITION:OFFSET")
    replay = commands.add_parser("replay", help="publish again, at the place it had; safe to repeat")
    which = replay.add_mutually_exclusive_group(required=True)
    which.add_argument("ids", nargs="*", default=[], metavar="PARTITION:OFFSET")
    which.add_argument("--reason", help="all with this reason")
    which.add_argument("--all", action="store_true", help="all there are")


async def run(settings: KafkaSettings, arguments: argparse.Namespace) -> list[str]:
    """Carries out one command; answers the lines to print. Raises DeployError."""
    try:
        found = await read(settings)
        chosen = _chosen(found, arguments)
        if arguments.action == "list":
            return [letter.line() for letter in chosen] + [f"{len(chosen)} dead letters"]
        if arguments.action == "show":
            return [part for letter in chosen for part in (letter.line(), letter.value.decode(errors="replace"))]
        return await replay(settings, chosen)
    except KafkaError as error:
        where = ",".join(settings.kafka_bootstrap_servers)
        raise DeployError(f"Kafka at {where} refused or is away: {type(error).__name__}") from None


async def read(settings: KafkaSettings) -> list[Found]:
    """Every dead letter that stood in the topic when the reading began (and maybe some that came since), in the topic's order."""
    partitions = await _partitions(settings, settings.topic_dead_letter)
    found: list[tuple[int, int, Found]] = []
    async with _started(AIOKafkaConsumer(**settings.kafka_client(), enable_auto_commit=False)) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        starts = await consumer.beginning_offsets(partitions)
        for partition, start in starts.items():
            consumer.seek(partition, start)
        unread = {partition for partition in partitions if starts[partition] < ends[partition]}
        while unread:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    # Also what came since: Tansu's end is the start of the last batch, and the rest of it belongs to the reading.
                    if letter := _decode(record):
                        found.append((record.partition, record.offset, letter))
            unread = {partition for partition in unread if await consumer.position(partition) < ends[partition]}
    return [letter for _, _, letter in sorted(found, key=lambda each: each[:2])]


async def replay(settings: KafkaSettings, letters: list[Found]) -> list[str]:
    """Publishes the original bytes to the original topic. The headers carry the first position, by which barriers are judged."""
    lines = []
    async with _started(AIOKafkaProducer(**settings.kafka_client(), acks="all")) as producer:
        for found in letters:
            letter = found.letter
            if not found.whole:
                lines.append(f"{found.id}: not replayed, only its first {len(found.value)} bytes were kept")
                continue
            headers = [
                (ORIGINAL_TIMESTAMP, str(letter.timestamp).encode()),
                (ORIGINAL_PARTITION, str(letter.partition).encode()),
                (ORIGINAL_OFFSET, str(letter.offset).encode()),
            ]
            await producer.send_and_wait(
                letter.topic, found.value, key=found.key, partition=letter.partition, headers=headers
            )
            lines.append(f"{found.id}: replayed to {letter.topic}")
    return lines


async def _partitions(settings: KafkaSettings, topic: str) -> list[TopicPartition]:
    admin = AIOKafkaAdminClient(**settings.kafka_client())
    try:
        await admin.start()
        [described] = await admin.describe_topics([topic])
    finally:
        await admin.close()
    numbers = sorted(part["partition"] for part in described["partitions"])
    if not numbers:
        raise DeployError(f"topic {topic} is not there: run `python -m deploy topics`")
    return [TopicPartition(topic, number) for number in numbers]


def _chosen(found: list[Found], arguments: argparse.Namespace) -> list[Found]:
    ids = getattr(arguments, "ids", [])
    reason = getattr(arguments, "reason", None)
    unknown = set(ids) - {letter.id for letter in found}
    if unknown:
        raise DeployError(f"no dead letter {', '.join(sorted(unknown))}: `list` shows what is there", exit_code=2)
    return [
        letter for letter in found if (not ids or letter.id in ids) and (not reason or letter.letter.reason == reason)
    ]


def _decode(record: "ConsumerRecord[bytes, bytes]") -> Found | None:
    """None for a record that is no dead letter of ours."""
    try:
        letter = DeadLetter.model_validate_json(record.value or b"")
    except ValidationError:
        return None
    return Found(f"{record.partition}:{record.offset}", record.key, letter)


@asynccontextmanager
async def _started(client: Any) -> AsyncIterator[Any]:
    try:
        await client.start()
        yield client
    finally:
        await client.stop()

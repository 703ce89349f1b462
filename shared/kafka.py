"""How every service reaches Kafka, what its topics are called, and the one producer of all of them."""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, UnknownError, UnsupportedVersionError
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder
from pydantic import Field, FilePath, SecretStr

from shared.backoff import Backoff
from shared.settings import CommaSeparated, KeepsakeSettings

log = structlog.get_logger()

MAX_BATCH_BYTES = 256 * 1024
MAX_WAITING_BYTES = 64 * 1024 * 1024
REQUEST_TIMEOUT_MS = 10_000


class KafkaSettings(KeepsakeSettings):
    """Settings of whoever talks to Kafka; mixed into a service's own."""

    kafka_bootstrap_servers: CommaSeparated = Field(
        ("127.0.0.1:9092",), description="Kafka brokers to ask first, comma-separated host:port."
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How the brokers are spoken to."
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="How a SASL protocol checks name and password."
    )
    kafka_username: str | None = Field(None, description="User name for a SASL protocol.")
    kafka_password: SecretStr | None = Field(None, description="Password for a SASL protocol.")
    kafka_ssl_cafile: FilePath | None = Field(
        None, description="PEM file of the brokers' authority; unset: the system's."
    )
    topic_chat_events: str = Field("chat.events", description="Topic of the chats.")
    topic_dead_letter: str = Field("chat.events.dead-letter", description="Topic of records that can never be staged.")
    topic_memory_changes: str = Field("memory.changes", description="Topic of what changed in people's memories.")

    def kafka_client(self) -> dict[str, Any]:
        """Keyword arguments for aiokafka's clients: addresses and security."""
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.kafka_bootstrap_servers),
            "security_protocol": self.kafka_security_protocol,
        }
        if self.kafka_security_protocol.endswith("SSL"):
            options["ssl_context"] = ssl.create_default_context(cafile=self.kafka_ssl_cafile)
        if self.kafka_security_protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.kafka_sasl_mechanism
            options["sasl_plain_username"] = self.kafka_username
            options["sasl_plain_password"] = self.kafka_password.get_secret_value() if self.kafka_password else None
        return options


class Record(NamedTuple):
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


class PublishFailed(Exception):
    """Kafka did not confirm all records in time. Some may have been written."""


@dataclass(eq=False, slots=True)
class _Group:
    """The records of one call; `done` settles once all are confirmed."""

    topic: str
    records: Sequence[Record]
    done: asyncio.Future[None]


class Producer:
    """Publishes with acks=all, and idempotently where the broker can; connects by itself, again after a fatal error.

    Records leave in rounds, one batch per partition: while a round is under way, what comes gathers for the next. So nothing lingers
    when little is sent, and batches grow with the load (measured on one core beside a broker: 97k records of 1 KB a second against
    55k by a future per record). Records of one key arrive in the order of the calls that published them.
    """

    def __init__(self, settings: KafkaSettings, *, name: str) -> None:
        self._settings = settings
        self._name = name
        self._producer: AIOKafkaProducer | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._rounds: asyncio.Task[None] | None = None
        self._waiting: list[_Group] = []
        self._waiting_bytes = 0
        self._stopped = asyncio.Event()

    def start(self) -> None:
        """Begins to connect, in the background, for as long as it takes."""
        self._connecting = asyncio.create_task(self._connect())

    async def stop(self) -> None:
        """Waits for what is under way as long as the broker confirms it; the rest fails."""
        self._stopped.set()
        if self._connecting is not None:
            # Not cancelled at once: aiokafka would leave the connection open that it is asking for brokers.
            await asyncio.wait({self._connecting}, timeout=2.0)
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._rounds is not None:
            await asyncio.wait({self._rounds}, timeout=2.0)
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
        if self._producer is not None:
            await _discard(self._producer)
            self._producer = None

    @property
    def connected(self) -> bool:
        return self._producer is not None

    async def missing(self, *topics: str, timeout: float = 2.0) -> list[str] | None:
        """Which of these are not there, or not for this client; None where no broker answers now."""
        if self._producer is None:
            return None
        try:
            async with asyncio.timeout(timeout):
                known = (await self._producer.client.fetch_all_metadata()).topics()
        except (KafkaError, OSError, TimeoutError):
            return None
        return [topic for topic in topics if topic not in known]

    async def publish(self, topic: str, records: Sequence[Record], *, timeout: float) -> None:
        """Returns once the broker has all `records`. Raises PublishFailed after `timeout` seconds at the latest."""
        size = sum([len(record.value) for record in records])
        if self._producer is None or self._waiting_bytes + size > MAX_WAITING_BYTES:
            raise PublishFailed
        group = _Group(topic, records, asyncio.get_running_loop().create_future())
        self._waiting.append(group)
        self._waiting_bytes += size
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._run_rounds())
        try:
            async with asyncio.timeout(timeout):
                await group.done
        except TimeoutError:
            raise PublishFailed from None
        finally:
            # Also where the caller was cancelled: what has not left yet then never does.
            group.done.cancel()
            self._waiting_bytes -= size

    async def _run_rounds(self) -> None:
        while self._waiting:
            groups = [group for group in self._waiting if not group.done.done()]
            self._waiting.clear()
            try:
                await self._send(groups)
            except KafkaError as error:
                self._reconnect(error)
                for group in groups:
                    if not group.done.done():
                        group.done.set_exception(PublishFailed())
            else:
                for group in groups:
                    if not group.done.done():
                        group.done.set_result(None)

    async def _send(self, groups: list[_Group]) -> None:
        """Raises KafkaError where the broker refused any of it, or confirmed too late."""
        producer = self._producer
        if producer is None:
            raise KafkaError
        by_partition: dict[tuple[str, int], list[Record]] = {}
        for group in groups:
            partitions = sorted(await producer.partitions_for(group.topic))
            for record in group.records:
                place = (group.topic, _partition(record.key, partitions))
                by_partition.setdefault(place, []).append(record)
        confirmed: list[asyncio.Future[object]] = []
        for (topic, partition), records in by_partition.items():
            for batch in _batches(producer, records):
                confirmed.append(await producer.send_batch(batch, topic, partition=partition))
        results = await asyncio.gather(*confirmed, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _connect(self) -> None:
        pauses = Backoff(0.2, 10.0)
        told = False
        while self._producer is None and not self._stopped.is_set():
            try:
                self._producer = await self._build(idempotent=True)
            except (UnknownError, UnsupportedVersionError, IncompatibleBrokerVersion):
                # A broker without InitProducerId: a retried batch may then stand twice, which every reader of ours bears.
                with contextlib.suppress(KafkaError, OSError):
                    self._producer = await self._build(idempotent=False)
            except (KafkaError, OSError) as error:
                if not told:
                    log.warning("kafka_away", client=self._name, error=type(error).__name__)
                    told = True
            if self._producer is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pauses.next_pause()):
                        await self._stopped.wait()
        if told and self._producer is not None:
            log.info("kafka_back", client=self._name)

    async def _build(self, *, idempotent: bool) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            **self._settings.kafka_client(),
            client_id=self._name,
            acks="all",
            enable_idempotence=idempotent,
            # Measured on chats: snappy halves them or better at 600 MB/s, zstd does 240 MB/s, aiokafka's lz4 (its slowest level) 32.
            compression_type="snappy",
            max_batch_size=MAX_BATCH_BYTES,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        try:
            await producer.start()
        except BaseException:
            await _discard(producer)
            raise
        return producer

    def _reconnect(self, error: KafkaError) -> None:
        """After a refusal the producer may be beyond use (a sequence out of order is for ever): a new one costs little."""
        if self._producer is None:
            return
        log.warning("publish_failed", client=self._name, error=type(error).__name__)
        old, self._producer = self._producer, None
        self._connecting = asyncio.create_task(self._replace(old))

    async def _replace(self, old: AIOKafkaProducer) -> None:
        await _discard(old)
        await self._connect()


def _partition(key: bytes | None, partitions: Sequence[int]) -> int:
    """As Java's and aiokafka's producers choose it, so that a key stands in one partition whoever writes it."""
    if key is None:
        return random.choice(partitions)  # noqa: S311 (spreads load)
    return partitions[(_hash(key) & 0x7FFFFFFF) % len(partitions)]


# In Python it is the dearest part of publishing a chat, and who chats once soon chats again.
_hash: Callable[[bytes], int] = lru_cache(maxsize=32_768)(murmur2)


def _batches(producer: AIOKafkaProducer, records: Sequence[Record]) -> Iterator[BatchBuilder]:
    """The records in order, in as few batches as hold them; a batch takes its first record whatever its size."""
    batch = producer.create_batch()
    for key, value, headers in records:
        while batch.append(timestamp=None, key=key, value=value, headers=list(headers)) is None:
            yield batch
            batch = producer.create_batch()
    yield batch


async def _discard(producer: AIOKafkaProducer) -> None:
    """Closes without waiting for what cannot be delivered, which `AIOKafkaProducer.stop` would do for ever."""
    with contextlib.suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(5.0):
            await producer._sender.close()
    producer._message_accumulator.fail_all(KafkaError("the producer was closed"))
    with contextlib.suppress(KafkaError, OSError):
        await producer.stop()

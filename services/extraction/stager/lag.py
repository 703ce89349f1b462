"""How far the stager is behind, measured also while it stands still, and how long Kafka keeps its topics."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IllegalStateError, KafkaError

from shared.kafka import KafkaSettings
from shared.loops import Loops
from shared.telemetry.metrics import STAGER_LAG, STAGER_LAG_RATIO, TOPIC_RETENTION

log = structlog.get_logger()

LOOP = "stager_lag"
EVERY_S = 5.0
RETENTION_EVERY_S = 3600.0
_ASK_TIMEOUT_S = 15.0


class Lag:
    """`consumer` answers the stager's of the moment, None while there is none."""

    def __init__(self, settings: KafkaSettings, loops: Loops, consumer: Callable[[], AIOKafkaConsumer | None]) -> None:
        self._settings = settings
        self._loops = loops
        self._consumer = consumer
        # By the last commit of ours; else asked for once.
        self._committed: dict[TopicPartition, int] = {}
        self._retention_read = float("-inf")

    async def run(self) -> None:
        """For ever. What cannot be measured keeps its last value."""
        self._loops.register(LOOP, bound_s=EVERY_S + 2 * _ASK_TIMEOUT_S)
        try:
            while True:
                self._loops.beat(LOOP)
                try:
                    async with asyncio.timeout(_ASK_TIMEOUT_S):
                        await self._measure()
                    if time.monotonic() - self._retention_read > RETENTION_EVERY_S:
                        async with asyncio.timeout(_ASK_TIMEOUT_S):
                            await self._read_retention()
                except (KafkaError, IllegalStateError, OSError, TimeoutError) as error:
                    log.debug("lag_waits", error=type(error).__name__)
                await asyncio.sleep(EVERY_S)
        finally:
            self._loops.unregister(LOOP)

    def committed(self, ends: dict[TopicPartition, int]) -> None:
        self._committed |= ends

    def revoked(self, places: Collection[TopicPartition]) -> None:
        """Another replica tells of them from now on."""
        for place in places:
            self._committed.pop(place, None)
            STAGER_LAG.remove(str(place.partition))
            STAGER_LAG_RATIO.remove(str(place.partition))

    async def _measure(self) -> None:
        consumer = self._consumer()
        places = sorted(consumer.assignment()) if consumer is not None else []
        if consumer is None or not places:
            return
        begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        for place in places:
            if place not in self._committed:
                # Nothing committed yet: the reading begins at the oldest.
                self._committed[place] = await consumer.committed(place) or begins[place]
        for place in set(places) & consumer.assignment():
            begin, end = begins[place], ends[place]
            # Of what retention has taken meanwhile nothing can be staged any more.
            lag = max(0, end - max(begin, self._committed[place]))
            STAGER_LAG.labels(str(place.partition)).set(lag)
            STAGER_LAG_RATIO.labels(str(place.partition)).set(lag / (end - begin) if begin and end > begin else 0)

    async def _read_retention(self) -> None:
        topics = {
            "chat_events": self._settings.topic_chat_events,
            "dead_letter": self._settings.topic_dead_letter,
            "memory_changes": self._settings.topic_memory_changes,
        }
        admin = AIOKafkaAdminClient(**self._settings.kafka_client())
        try:
            await admin.start()
            for kind, name in topics.items():
                [reply] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
                retention_ms = _setting(reply.resources[0], "retention.ms")
                if retention_ms is not None:
                    TOPIC_RETENTION.labels(kind).set(int(retention_ms) / 1000)
        finally:
            await admin.close()
        self._retention_read = time.monotonic()


def _setting(resource: tuple[Any, ...], name: str) -> str | None:
    """None where the broker does not tell, or may not tell this client."""
    _code, _message, _kind, _topic, entries = resource
    return next((entry[1] for entry in entries if entry[0] == name), None)

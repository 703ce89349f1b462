"""`python -m deploy topics`: makes Keepsake's topics, and refuses one that would keep what people said for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from deploy.errors import DeployError
from shared.kafka import KafkaSettings

_NO_ERROR = 0
SPREAD_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Topic:
    """A topic as Keepsake needs it. Order is by the broker's clock: only append time is the same for every reader."""

    name: str
    partitions: int
    retention: timedelta

    @property
    def config(self) -> dict[str, str]:
        return {
            "retention.ms": str(int(self.retention.total_seconds() * 1000)),
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": "delete",
            # Erased text is gone a day after retention at the latest: an open segment is never deleted.
            "segment.ms": str(24 * 60 * 60 * 1000),
        }


def wanted(settings: KafkaSettings) -> list[Topic]:
    return [
        Topic(settings.topic_chat_events, 6, timedelta(days=7)),
        Topic(settings.topic_dead_letter, 6, timedelta(days=14)),
        Topic(settings.topic_memory_changes, 6, timedelta(days=14)),
    ]


async def ensure(settings: KafkaSettings) -> list[str]:
    """Makes the topics that are missing and checks the others; answers one line each. Raises DeployError."""
    admin = AIOKafkaAdminClient(**settings.kafka_client())
    try:
        await admin.start()
        return await _ensure(admin, wanted(settings))
    except KafkaError as error:
        where = ",".join(settings.kafka_bootstrap_servers)
        raise DeployError(f"Kafka at {where} refused or is away: {type(error).__name__}") from None
    finally:
        await admin.close()


async def _ensure(admin: AIOKafkaAdminClient, topics: list[Topic]) -> list[str]:
    replication = min(3, len((await admin.describe_cluster())["brokers"]))
    # With three copies, acks=all means two: a write survives the loss of any one broker.
    extra = {"min.insync.replicas": "2"} if replication == 3 else {}
    reply = await admin.create_topics(
        [NewTopic(topic.name, topic.partitions, replication, topic_configs=topic.config | extra) for topic in topics]
    )
    codes = {error[0]: error[1] for error in reply.topic_errors}
    lines = []
    for topic in topics:
        code = codes[topic.name]
        if code == _NO_ERROR:
            lines.append(f"{topic.name}: made, {topic.partitions} partitions, kept {topic.retention.days} days")
        elif code == TopicAlreadyExistsError.errno:
            lines.append(await _check(admin, topic))
        else:
            raise DeployError(f"topic {topic.name} could not be made: {for_code(code).__name__}")
    await _wait_until_known(admin, [topic.name for topic in topics])
    return lines


async def _wait_until_known(admin: AIOKafkaAdminClient, names: list[str]) -> None:
    """A topic that was made a moment ago is not yet known to every broker, nor led by one."""
    async with _deadline("Kafka did not spread the new topics"):
        while True:
            described = await admin.describe_topics(names)
            parts = [part for topic in described for part in topic["partitions"]]
            if all(topic["error_code"] == _NO_ERROR for topic in described) and all(p["leader"] >= 0 for p in parts):
                return
            await asyncio.sleep(0.05)


async def _config(admin: AIOKafkaAdminClient, name: str) -> dict[str, str]:
    async with _deadline(f"Kafka did not describe topic {name}"):
        while True:
            [reply] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            code, _, _, _, entries = reply.resources[0]
            if code == _NO_ERROR:
                return {entry[0]: entry[1] for entry in entries}
            if code != UnknownTopicOrPartitionError.errno:
                raise DeployError(f"topic {name} could not be described: {for_code(code).__name__}")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _deadline(problem: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(SPREAD_TIMEOUT_S):
            yield
    except TimeoutError:
        raise DeployError(f"{problem} within {SPREAD_TIMEOUT_S:g} s") from None


async def _check(admin: AIOKafkaAdminClient, topic: Topic) -> str:
    """Of what is not answered (Tansu tells only what was set) nothing is held against the topic."""
    config = await _config(admin, topic.name)
    retention = int(config.get("retention.ms", "0"))
    if retention < 0 or "delete" not in config.get("cleanup.policy", "delete"):
        raise DeployError(
            f"topic {topic.name} keeps its records for ever: give it a bound (cleanup.policy=delete and "
            f"retention.ms={topic.config['retention.ms']}), or what people said can never be erased"
        )
    if config.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
        raise DeployError(f"topic {topic.name} takes its producers' times: set message.timestamp.type=LogAppendTime")
    return f"{topic.name}: there already, kept {retention / 86_400_000:g} days"

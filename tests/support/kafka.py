"""The broker of the tests: Apache Kafka where it can be had, else Tansu."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

from testcontainers.core.container import DockerContainer

from deploy.errors import DeployError
from deploy.local import brokers, kafka
from deploy.local.broker import Broker, answers
from deploy.local.paths import DEFAULT_DATA_DIR
from tests.support.ports import free_port

Kind = Literal["docker", "kafka", "tansu"]


@cache
def kind() -> Kind:
    """KEEPSAKE_LOCAL_BROKER if it names one; else Docker if an engine answers, else Java and the jars, else Tansu."""
    wanted = os.environ.get("KEEPSAKE_LOCAL_BROKER") or "auto"
    if wanted == "auto" and _docker_answers():
        return "docker"
    return brokers.choose(wanted, DEFAULT_DATA_DIR)


def is_apache_kafka() -> bool:
    return kind() != "tansu"


@contextmanager
def running_kafka() -> Iterator[Broker]:
    """A broker of its own: it may be stopped, killed and started again."""
    with tempfile.TemporaryDirectory(prefix="keepsake-kafka-", ignore_cleanup_errors=True) as folder:
        broker = _make(Path(folder))
        broker.start()
        try:
            yield broker
        finally:
            if isinstance(broker, DockerKafka):
                broker.remove()
            else:
                broker.stop()


def _make(folder: Path) -> Broker:
    chosen = kind()
    if chosen == "docker":
        return DockerKafka(free_port())
    return brokers.make(chosen, folder, free_port(), free_port())


class DockerKafka:
    """Apache Kafka's own image. Not run where this was written, for want of a Docker engine."""

    name = "kafka"
    keeps_topics = True

    def __init__(self, port: int) -> None:
        self.port = port
        listeners = f"PLAINTEXT://:{port},CONTROLLER://:9093"
        self._container = (
            DockerContainer(f"apache/kafka:{kafka.VERSION}")
            .with_bind_ports(port, port)
            .with_envs(
                KAFKA_NODE_ID="1",
                KAFKA_PROCESS_ROLES="broker,controller",
                KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9093",
                KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
                KAFKA_LISTENERS=listeners,
                KAFKA_ADVERTISED_LISTENERS=f"PLAINTEXT://127.0.0.1:{port}",
                KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
                KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR="1",
                KAFKA_TRANSACTION_STATE_LOG_MIN_ISR="1",
                KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
                KAFKA_AUTO_CREATE_TOPICS_ENABLE="false",
            )
        )
        self._made = False

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        if self._made:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._made = True
        deadline = time.monotonic() + 60
        while not answers(self.port):
            if time.monotonic() > deadline:
                raise DeployError("Apache Kafka's container did not answer within 60 s")
            time.sleep(0.1)

    def stop(self) -> None:
        self._container.get_wrapped_container().stop(timeout=20)

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def remove(self) -> None:
        if self._made:
            self._container.stop()


def _docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, check=False)
    return asked.returncode == 0

"""Which broker a local run or a test uses."""

from pathlib import Path
from typing import Literal

from deploy.errors import DeployError
from deploy.local import kafka, tansu
from deploy.local.broker import BrokerProcess

BrokerName = Literal["kafka", "tansu"]


def choose(wanted: str, data_dir: Path) -> BrokerName:
    """Apache Kafka where Java and its jars are there, else Tansu; or what is wanted by name.

    Raises DeployError when Apache Kafka is wanted and cannot be had.
    """
    missing = kafka.missing(data_dir)
    if wanted == "kafka" and missing:
        raise DeployError(f"Apache Kafka cannot start: {missing}", exit_code=2)
    if wanted == "auto":
        return "tansu" if missing else "kafka"
    if wanted not in ("kafka", "tansu"):
        raise DeployError(f"KEEPSAKE_LOCAL_BROKER: {wanted!r} is none of kafka, tansu, auto", exit_code=2)
    return "kafka" if wanted == "kafka" else "tansu"


def make(name: BrokerName, data_dir: Path, port: int, controller_port: int) -> BrokerProcess:
    """A broker with its log, and Apache Kafka's topics, under `data_dir`; not started yet."""
    if name == "kafka":
        return kafka.Kafka(data_dir / "kafka", port, controller_port, kafka.find_jars(data_dir))
    return tansu.Tansu(data_dir, port)

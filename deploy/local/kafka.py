"""Apache Kafka from its jars: one broker that is its own controller."""

import re
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from deploy.errors import DeployError
from deploy.local.broker import BrokerProcess
from deploy.local.paths import DEFAULT_DATA_DIR
from deploy.local.processes import Child, start

VERSION = "4.4.0"
_POM = Path(__file__).with_name("kafka-pom.xml")
_OLDEST_JAVA = 17
# A broker on a developer's machine: small, and quick to be there. Measured: 2.5 s to ready, 307 MB resident.
_JVM = [
    "-Xmx384m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
]


class Kafka(BrokerProcess):
    """A broker whose topics live in `folder`. `jars` is a folder that `fetch` made."""

    name = "kafka"
    keeps_topics = True

    def __init__(self, folder: Path, port: int, controller_port: int, jars: Path) -> None:
        self.folder = folder
        self.port = port
        self.controller_port = controller_port
        self.jars = jars

    @property
    def log(self) -> Path:
        return self.folder.parent / "logs" / "kafka.log"

    def _launch(self) -> Child:
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        properties.write_text(self._properties())
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(properties)
        return start("kafka", [*self._java("kafka.Kafka"), properties], log=self.log, cwd=self.folder)

    def _java(self, main: str) -> list[str]:
        return ["java", *_JVM, "-cp", f"{self.jars}/*", main]

    def _format(self, properties: Path) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            [*self._java("kafka.tools.StorageTool"), "format", "--standalone", "--ignore-formatted", f"--cluster-id={cluster_id}",
             "-c", properties],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise DeployError(f"Kafka could not format {self.folder}: {done.stdout.strip()}")

    def _properties(self) -> str:
        replicated = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # Short, so that a restart after a kill is not fenced for the 9 s of the default session.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
        for topic in replicated:
            settings |= {f"{topic}.replication.factor": "1", f"{topic}.min.isr": "1", f"{topic}.num.partitions": "3"}
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def find_jars(data_dir: Path) -> Path:
    """Where Kafka's jars are, or would be put: this run's data folder, else the checkout's."""
    places = [place / "kafka-jars" / VERSION for place in (data_dir, DEFAULT_DATA_DIR)]
    return next((place for place in places if place.is_dir()), places[0])


def missing(data_dir: Path) -> str | None:
    """What keeps Apache Kafka from starting, in words for a person; None when nothing does."""
    if not _java_is_there():
        return f"Java {_OLDEST_JAVA} or newer is not installed"
    if not find_jars(data_dir).is_dir():
        return "its jars are not there yet: run `make kafka`"
    return None


def fetch(data_dir: Path) -> Path:
    """Fetches the jars with Maven, once; answers their folder. Raises DeployError."""
    jars = find_jars(data_dir)
    if jars.is_dir():
        return jars
    if shutil.which("mvn") is None:
        raise DeployError("Apache Kafka's jars come with Maven, and `mvn` is not installed", exit_code=2)
    half = jars.with_name(f"{VERSION}.part")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", _POM, "dependency:copy-dependencies", "-DincludeScope=runtime",
         f"-Dkafka.version={VERSION}", f"-DoutputDirectory={half}"],
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise DeployError("Maven could not fetch Apache Kafka's jars; its own lines above say why")
    half.rename(jars)
    return jars


def _java_is_there() -> bool:
    """Asks Java itself: some systems have a `java` that only says where to buy one."""
    if shutil.which("java") is None:
        return False
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', done.stderr)
    return done.returncode == 0 and version is not None and int(version[1]) >= _OLDEST_JAVA

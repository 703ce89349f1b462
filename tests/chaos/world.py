"""The real system with every part and every link within reach: two stores, two extractions, own Kafka and Postgres, a scripted model."""

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.local import kafka as local_kafka
from deploy.local.paths import DEFAULT_DATA_DIR
from deploy.local.processes import Server
from deploy.local.services import Service
from tests.chaos.model import RightModel
from tests.chaos.plan import TENANTS
from tests.support.links import Link, Links, running_links
from tests.support.model_server import serving
from tests.support.ports import free_port
from tests.support.postgres import PostgresForTests
from tests.support.system import System

MAX_ATTEMPTS = 5
WINDOW = 20
# Everything as in production but faster: conversations end after half a second, a lease after four.
SETTINGS: dict[str, object] = {
    "log_level": "INFO",
    "min_chats": 3,
    "idle_threshold_ms": 500,
    "max_wait_hours": 3 / 3600,
    "window_chats": WINDOW,
    "poll_interval_ms": 200,
    "lease_ms": 4000,
    "retry_base_ms": 500,
    "retry_max_ms": 4000,
    "max_attempts": MAX_ATTEMPTS,
    "breaker_probe_ms": 500,
    "publish_timeout_ms": 3000,
}


class LinkedKafka(local_kafka.Kafka):
    """Tells its clients to come through a link."""

    link: Link

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.link.port}"

    def _properties(self) -> str:
        here, there = f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}", f"127.0.0.1:{self.link.port}"
        return super()._properties().replace(here, f"advertised.listeners=PLAINTEXT://{there}")


@dataclass
class World:
    """`parts` by their names in the plan, `links` too."""

    system: System
    model: RightModel
    postgres: PostgresForTests
    kafka: LinkedKafka
    parts: dict[str, Server]
    links: dict[str, Link]

    @property
    def services(self) -> dict[str, Service]:
        return {name: part for name, part in self.parts.items() if isinstance(part, Service)}

    def pid(self, target: str) -> int | None:
        """None for a part that does not run, and for a session of Postgres where there is none."""
        if target == "backend":
            return _a_session(self.postgres.server.child.pid)
        part = self.parts[target]
        return part.child.pid if part.running else None


def _a_session(postmaster: int) -> int | None:
    """A session of the services, the one that worked most: the others mostly wait."""
    sessions = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(postmaster).children():
            with suppress(psutil.NoSuchProcess):
                if "keepsake_app" in " ".join(child.cmdline()):
                    sessions.append((child.cpu_times().user, child.pid))
    return max(sessions)[1] if sessions else None


def send_signal(pid: int | None, number: signal.Signals) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def running_world(seed: int, logs: Path) -> Iterator[World]:
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="keepsake-chaos-", ignore_cleanup_errors=True))
        )
        links = stack.enter_context(running_links())
        model = stack.enter_context(serving(RightModel(seed)))
        postgres = PostgresForTests(folder)
        stack.callback(postgres.server.stop)
        jars = local_kafka.find_jars(DEFAULT_DATA_DIR)
        kafka = LinkedKafka(folder / "kafka", free_port(), free_port(), jars)
        kafka.link = links.make("kafka", kafka.port)
        stack.callback(kafka.stop)
        kafka.start()
        system = System(postgres.create(), kafka, logs, **SETTINGS, models=entries(model.port))
        stack.callback(system.close)
        system.make_topics()
        yield _start(system, model, postgres, kafka, links)


def entries(port: int, timeout_s: float = 3) -> str:
    """The one model entry, reached at this port."""
    entry = {"name": "right", "model": "openai:x", "base_url": f"http://127.0.0.1:{port}/v1", "timeout_s": timeout_s}
    return json.dumps([entry])


def _start(system: System, model: RightModel, postgres: PostgresForTests, kafka: LinkedKafka, links: Links) -> World:
    made: dict[str, Link] = {"kafka": kafka.link}
    parts: dict[str, Server] = {"kafka": kafka, "postgres": postgres.server}
    url = system.database.app_url
    for name in ("memory-store-a", "memory-store-b"):
        link = made[f"{name} postgres"] = links.make(f"{name} postgres", postgres.server.port)
        own = {"database_url": url.replace(f":{postgres.server.port}/", f":{link.port}/")}
        if name.endswith("a"):
            system.start("memory_store", **own)
            parts[name] = system.services["memory_store"]
        else:
            parts[name] = system.replica("memory_store", **own)
    stores = [system.wiring.ports["memory_store"], *(int(r.settings["KEEPSAKE_PORT"]) for r in system.replicas)]
    edge = made["edge store"] = links.make("edge store", *stores)
    system.start("chat_ingest", "injection", memory_store_url=f"http://127.0.0.1:{edge.port}")
    parts |= {"chat-ingest": system.services["chat_ingest"], "injection": system.services["injection"]}
    for name in ("extraction-a", "extraction-b"):
        store = made[f"{name} store"] = links.make(f"{name} store", *stores)
        way = made[f"{name} model"] = links.make(f"{name} model", model.port)
        own = {"memory_store_url": f"http://127.0.0.1:{store.port}", "models": entries(way.port), "instance_id": name}
        if name.endswith("a"):
            system.start("extraction", **own)
            parts[name] = system.services["extraction"]
        else:
            parts[name] = system.replica("extraction", **own)
    with system.client("memory_store") as operator:
        for tenant in TENANTS:
            operator.post("/v1/tenants", json={"tenant": tenant}).raise_for_status()
    return World(system, model, postgres, kafka, parts, made)

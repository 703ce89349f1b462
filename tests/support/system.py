"""Keepsake as a whole for black-box tests: any of its services on a database and topics of their own."""

import asyncio
import os
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from deploy import topics
from deploy.local.broker import Broker
from deploy.local.database import Database
from deploy.local.paths import DEFAULT_DATA_DIR
from deploy.local.services import SERVICES, Service, Wiring, make_service_keys, ranker_folder
from shared.kafka import KafkaSettings
from tests.support.ports import free_port

# Nothing waits longer than a test has to; what a test is about it sets itself.
_QUICK = {
    "personalization": True,
    "min_chats": 1,
    "idle_threshold_ms": 0,
    "poll_interval_ms": 100,
    "log_level": "DEBUG",
    "log_format": "json",
}


class System:
    """Settings are given without their prefix: `System(…, min_chats=5)` sets KEEPSAKE_MIN_CHATS for every service, and
    `start("extraction", roles="stager")` a setting of one from then on.

    All methods block until done. In a coroutine that must go on meanwhile, call them through `asyncio.to_thread`.
    """

    def __init__(self, database: Database, broker: Broker, folder: Path, **settings: object) -> None:
        self.database = database
        self.broker = broker
        self.folder = folder
        unique = uuid4().hex[:8]
        self.topic_chat_events = f"chat.events.{unique}"
        self.topic_dead_letter = f"chat.events.dead-letter.{unique}"
        self.topic_memory_changes = f"memory.changes.{unique}"
        self.admin_key = f"operator-{uuid4().hex}"
        self.service_keys = make_service_keys()
        self.wiring = Wiring(
            ports={service: free_port() for service in SERVICES},
            bootstrap=broker.bootstrap,
            database_url=database.app_url,
            admin_key=self.admin_key,
            service_keys=self.service_keys,
        )
        everyones = {
            "topic_chat_events": self.topic_chat_events,
            "topic_dead_letter": self.topic_dead_letter,
            "topic_memory_changes": self.topic_memory_changes,
            "group_id": f"keepsake-{unique}",
            "ranker_model": ranker_folder(DEFAULT_DATA_DIR),
        }
        shared_settings = _variables(_QUICK | everyones | settings)
        self.services = {
            service: Service(
                service, shared_settings | self.wiring.environment(service), folder / f"{service}-{unique}.log"
            )
            for service in SERVICES
        }
        self.replicas: list[Service] = []

    @property
    def kafka_settings(self) -> KafkaSettings:
        """How a test reaches this system's topics."""
        return KafkaSettings(
            kafka_bootstrap_servers=(self.broker.bootstrap,),
            topic_chat_events=self.topic_chat_events,
            topic_dead_letter=self.topic_dead_letter,
            topic_memory_changes=self.topic_memory_changes,
        )

    def url(self, service: str) -> str:
        return self.wiring.url(service)

    def client(self, service: str, key: str | None = None, **headers: str) -> httpx.Client:
        """An HTTP client of one service, as the operator unless another key is given."""
        bearer = {"Authorization": f"Bearer {key or self.admin_key}"}
        return httpx.Client(base_url=self.url(service), headers=bearer | headers, timeout=30.0, trust_env=False)

    def make_topics(self) -> None:
        _run(topics.ensure(self.kafka_settings))

    def start(self, *services: str, **settings: object) -> "System":
        """Starts these services (all four if none is named) and waits until each is ready.

        Raises DeployError with the log's end of one that does not get there.
        """
        self.launch(*services, **settings)
        for service in services or SERVICES:
            self.services[service].wait_ready()
        return self

    def launch(self, *services: str, **settings: object) -> None:
        """Starts without waiting: for services that cannot be ready yet."""
        for service in services or SERVICES:
            self.services[service].settings |= _variables(settings)
            self.services[service].launch()

    def replica(self, service: str, **settings: object) -> Service:
        """Starts one more process of a service, on a port of its own, and waits until it is ready."""
        port = free_port()
        first = self.services[service]
        log = first.log.with_name(f"{first.log.stem}-{port}.log")
        replica = Service(service, first.settings | _variables({"port": port} | settings), log)
        self.replicas.append(replica)
        replica.start()
        return replica

    def close(self) -> None:
        """Stops everything, replicas too."""
        for replica in self.replicas:
            replica.stop()
        self.stop()

    def stop(self, *services: str) -> None:
        for service in services or tuple(reversed(SERVICES)):
            self.services[service].stop()

    def kill(self, *services: str) -> None:
        for service in services or tuple(reversed(SERVICES)):
            self.services[service].kill()

    def log(self, service: str) -> str:
        """All that a service wrote since its first start."""
        return self.services[service].log.read_text(errors="replace")

    def logs(self) -> Iterable[tuple[str, str]]:
        """Name and log of each service that was started."""
        for service in (*self.services.values(), *self.replicas):
            if service.process is not None:
                yield service.name, service.log.read_text(errors="replace")


def _variables(settings: dict[str, Any]) -> dict[str, str]:
    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return {f"KEEPSAKE_{name.upper()}": text(value) for name, value in settings.items()}


def _run(work: "Coroutine[Any, Any, object]") -> None:
    """Runs a coroutine to its end from anywhere, also from within another event loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")

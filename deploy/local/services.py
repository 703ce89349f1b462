"""The four services as processes beside each other: who gets which settings, and when one is ready."""

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from deploy.local.paths import DEFAULT_DATA_DIR, ROOT
from deploy.local.processes import Child, Server, start
from deploy.models import DEFAULT_MODEL, model_folder

# In the order they start; they stop in the opposite one, so that nothing asks a store that has gone.
SERVICES = ("memory_store", "chat_ingest", "injection", "extraction")


def deployed_name(service: str) -> str:
    """The name outside of the code: chat-ingest of services/chat_ingest."""
    return service.replace("_", "-")


def make_service_keys() -> dict[str, str]:
    """A fresh key for each caller of memory-store."""
    return {service: secrets.token_urlsafe(32) for service in SERVICES if service != "memory_store"}


@dataclass(frozen=True)
class Wiring:
    """What the services must know of each other and of the servers under them."""

    ports: Mapping[str, int]
    bootstrap: str
    database_url: str
    admin_key: str
    service_keys: Mapping[str, str]

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}"

    @property
    def urls(self) -> dict[str, str]:
        return {deployed_name(service): self.url(service) for service in SERVICES}

    def environment(self, service: str) -> dict[str, str]:
        """A service's own settings, and no other's secrets."""
        settings = {
            "KEEPSAKE_HOST": "127.0.0.1",
            "KEEPSAKE_PORT": str(self.ports[service]),
            "KEEPSAKE_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap,
        }
        if service == "memory_store":
            hashes = {
                deployed_name(caller): [hashlib.sha256(key.encode()).hexdigest()]
                for caller, key in self.service_keys.items()
            }
            return settings | {
                "KEEPSAKE_DATABASE_URL": self.database_url,
                "KEEPSAKE_ADMIN_KEY": self.admin_key,
                "KEEPSAKE_SERVICE_KEYS": json.dumps(hashes),
            }
        return settings | {
            "KEEPSAKE_MEMORY_STORE_URL": self.url("memory_store"),
            "KEEPSAKE_SERVICE_KEY": self.service_keys[service],
        }


def ranker_folder(data_dir: Path) -> Path:
    """Where the default ranker is, or would be put: this run's data folder, else the checkout's."""
    places = [model_folder(place, DEFAULT_MODEL) for place in (data_dir, DEFAULT_DATA_DIR)]
    return next((place for place in places if place.is_dir()), places[0])


class Service(Server):
    """One of the services on 127.0.0.1. `settings` are all of its own: nothing reaches it from this process's environment."""

    stop_timeout_s = 40.0  # more than the services' own grace

    def __init__(self, service: str, settings: Mapping[str, str], log: Path) -> None:
        self.service = service
        self.name = deployed_name(service)
        self.settings = dict(settings)
        self.log = log

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings['KEEPSAKE_PORT']}"

    def _launch(self) -> Child:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")}
        argv = [sys.executable, "-m", f"services.{self.service}"]
        return start(self.name, argv, env=kept | {"PYTHONUNBUFFERED": "1"} | self.settings, log=self.log, cwd=ROOT)

    def _ready(self) -> bool:
        connection = HTTPConnection("127.0.0.1", int(self.settings["KEEPSAKE_PORT"]), timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

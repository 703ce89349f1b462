"""The four services as processes beside each other: who gets which settings, and when one is ready."""

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from deploy.local.paths import DEFAULT_DATA_DIR, ROOT
from deploy.local.processes import Child, start
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


def start_service(service: str, settings: Mapping[str, str], *, log: Path | None = None) -> Child:
    """Starts `python -m services.NAME` with these settings alone; it is not ready yet."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")}
    return start(
        deployed_name(service),
        [sys.executable, "-m", f"services.{service}"],
        env=kept | {"PYTHONUNBUFFERED": "1"} | dict(settings),
        log=log,
        cwd=ROOT,
    )


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=1.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False

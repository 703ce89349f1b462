"""Extraction as a process: the roles it was given, and probes and metrics beside them."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import structlog
from fastapi import FastAPI

from services.extraction.models.entries import ModelEntry
from services.extraction.settings import ExtractionSettings
from services.extraction.worker.worker import Worker
from shared.loops import Loops
from shared.rpc.client import MemoryStoreClient
from shared.settings import fail
from shared.web import create_app

if TYPE_CHECKING:
    from services.extraction.models.client import ModelClient
    from services.extraction.stager.stager import Stager

log = structlog.get_logger()


def build_models(entries: list[ModelEntry], *, probe_s: float) -> "dict[str, ModelClient]":
    """Clients by entry name. Ends the start with one line where an entry cannot be used."""
    if not entries:
        log.info("no_model", extractor="offline")
        return {}
    # Here, not above: its library costs 45 MB and a second, which a process without a model saves.
    from services.extraction.models.client import ModelClient  # noqa: PLC0415

    try:
        return {entry.name: ModelClient(entry, probe_s=probe_s) for entry in entries}
    except ValueError as error:
        fail(f"KEEPSAKE_MODELS is wrong: {error}")


class Extraction:
    """The roles run from start to SIGTERM. One that crashes ends the process: its starter knows what to do then."""

    def __init__(self, settings: ExtractionSettings) -> None:
        self._settings = settings
        self._loops = Loops()
        self._stop = asyncio.Event()
        self._store = MemoryStoreClient(settings.memory_store_url, settings.service_key.get_secret_value())
        self._models: dict[str, ModelClient] = {}
        self._worker: Worker | None = None
        self._stager: Stager | None = None
        if "worker" in settings.roles:
            self._models = build_models(settings.entries(), probe_s=settings.breaker_probe_ms / 1000)
            self._worker = Worker(settings, self._store, self._models, self._loops, self._stop)

    def app(self) -> FastAPI:
        return create_app(
            "Keepsake extraction", routers=(), lifespan=self._lifespan, loops=self._loops, not_ready=self._not_ready
        )

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        roles = []
        if self._worker:
            roles.append(asyncio.create_task(self._worker.run(), name="worker"))
        if "stager" in self._settings.roles:
            # FastStream and aiokafka are not needed by a process that only works.
            from services.extraction.stager.stager import Stager  # noqa: PLC0415

            self._stager = Stager(self._settings, self._store, self._loops, self._stop)
            roles.append(asyncio.create_task(self._stager.run(), name="stager"))
        for role in roles:
            role.add_done_callback(_end_process_with)
        async with AsyncExitStack() as connections:
            await connections.enter_async_context(self._store)
            for model in self._models.values():
                await connections.enter_async_context(model)
            try:
                yield
            finally:
                self._stop.set()
                await asyncio.gather(*roles, return_exceptions=True)

    async def _not_ready(self) -> str | None:
        return (self._worker and self._worker.not_ready) or (self._stager and self._stager.not_ready) or None


def _end_process_with(role: "asyncio.Task[None]") -> None:
    if not role.cancelled() and (error := role.exception()) is not None:
        log.critical("role_crashed", role=role.get_name(), exc_info=error)
        signal.raise_signal(signal.SIGTERM)

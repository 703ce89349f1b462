"""Puts the service together: REST, RPC and three loops (the outbox's relay, retention, gauges) over one database."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta

import structlog
from fastapi import FastAPI

from services.memory_store import rest, rpc
from services.memory_store.access.service import ensure_tenant
from services.memory_store.database import Database
from services.memory_store.gauges.service import Gauges
from services.memory_store.outbox.relay import Relay
from services.memory_store.retention.service import Ages, Retention
from services.memory_store.settings import Settings
from shared.ids import DEFAULT_TENANT
from shared.kafka import Producer
from shared.loops import Loops
from shared.rpc.errors import RpcError
from shared.web import create_app

log = structlog.get_logger()


def build(settings: Settings) -> FastAPI:
    loops = Loops()
    database = Database(settings.database_url.get_secret_value(), size=settings.database_pool)
    producer = Producer(settings, name="memory-store")
    work: Mapping[str, Callable[[], Awaitable[None]]] = {
        "outbox": Relay(
            database, producer, settings.topic_memory_changes, loops, settings.outbox_interval_ms / 1000
        ).run,
        "retention": _retention(database, settings, loops).run,
        "gauges": Gauges(database, loops, settings.gauges_interval_ms / 1000).run,
    }

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await database.open()
        producer.start()
        working = asyncio.create_task(_work(database, settings, work))
        try:
            yield
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await producer.stop()
            await database.close()

    app = create_app(
        "Keepsake memory-store",
        routers=rest.ROUTERS,
        lifespan=lifespan,
        loops=loops,
        not_ready=database.not_ready,
        cors_origins=settings.cors_origins,
    )
    access = rest.install(app, database, settings)
    app.router.routes.append(rpc.route(database, settings, access))
    return app


def _retention(database: Database, settings: Settings, loops: Loops) -> Retention:
    ages = Ages(
        chat_text=timedelta(days=settings.chat_text_days),
        pending=timedelta(days=settings.pending_days),
        deleted_text=timedelta(days=settings.deleted_text_days),
        keys=timedelta(days=settings.idempotency_days),
    )
    return Retention(database, settings.due_rules, ages, timedelta(milliseconds=settings.retention_interval_ms), loops)


async def _work(database: Database, settings: Settings, work: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
    """Once the database is there: the first tenant, then the loops for as long as the service runs."""
    while True:
        await database.wait_until_ready()
        try:
            await ensure_tenant(database, DEFAULT_TENANT, personalization=settings.personalization)
            break
        except RpcError as error:
            log.warning("first_tenant_waits", error=error.code)
    await asyncio.gather(*(_loop(name, run) for name, run in work.items()))


async def _loop(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """One that ends takes no other with it; it no longer moves, so liveness tells."""
    try:
        await run()
    except Exception:
        log.error("loop_ended", loop=name, exc_info=True)

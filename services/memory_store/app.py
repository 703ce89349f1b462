"""Puts the service together: REST, RPC and the outbox's relay over one database."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog
from fastapi import FastAPI

from services.memory_store import rest, rpc
from services.memory_store.access.service import ensure_tenant
from services.memory_store.database import Database
from services.memory_store.outbox.relay import Relay
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
    relay = Relay(database, producer, settings.topic_memory_changes, loops, settings.outbox_interval_ms / 1000)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await database.open()
        producer.start()
        work = asyncio.create_task(_work(database, relay, settings))
        try:
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
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


async def _work(database: Database, relay: Relay, settings: Settings) -> None:
    """Once the database is there: the first tenant, then changes to Kafka for as long as the service runs."""
    while True:
        await database.wait_until_ready()
        try:
            await ensure_tenant(database, DEFAULT_TENANT, personalization=settings.personalization)
            break
        except RpcError as error:
            log.warning("first_tenant_waits", error=error.code)
    await relay.run()

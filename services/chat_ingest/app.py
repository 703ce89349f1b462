"""Puts the service together."""

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI

from services.chat_ingest import endpoints
from services.chat_ingest.publisher import Publisher
from services.chat_ingest.settings import IngestSettings
from shared.auth import RpcAuthenticator
from shared.kafka import Producer
from shared.loops import Loops
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.rpc.messages import Authenticate
from shared.web import create_app


def build(settings: IngestSettings) -> FastAPI:
    store = MemoryStoreClient(settings.memory_store_url, settings.service_key.get_secret_value())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with store:
            producer = Producer(settings, name="keepsake-chat-ingest")
            producer.start()
            app.state.producer = producer
            app.state.publisher = Publisher(producer, settings.topic_chat_events, settings.publish_timeout_ms / 1000)
            app.state.authenticator = RpcAuthenticator(store)
            try:
                yield
            finally:
                await producer.stop()

    async def not_ready() -> str | None:
        producer: Producer = app.state.producer
        missing = await producer.missing(settings.topic_chat_events)
        if missing is None:
            return "kafka"
        if missing:
            return "topics_missing"
        return await _store_not_ready(store)

    app = create_app(
        "Keepsake chat-ingest",
        routers=[endpoints.lean, endpoints.router],
        lifespan=lifespan,
        loops=Loops(),
        not_ready=not_ready,
        cors_origins=settings.cors_origins,
        strict_paths=[endpoints.CHATS],
    )
    return app


async def _store_not_ready(store: MemoryStoreClient) -> str | None:
    """Nothing can be taken without memory-store, which knows the keys: it is asked for one that nobody has."""
    try:
        await store.authenticate(Authenticate(key_sha256="0" * 64), timeout=1.0)
    except RpcError as error:
        if error.code != "unauthenticated":
            return "memory_store"
    return None

"""Puts the service together."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

from fastapi import FastAPI

from services.injection import endpoints
from services.injection.assembling.service import Assembler
from services.injection.authenticating import ForgivingAuthenticator
from services.injection.background import BackgroundWrites
from services.injection.ranking.ranker import Ranker, load_encoder
from services.injection.searching import Search
from services.injection.settings import InjectionSettings
from shared.auth import RpcAuthenticator
from shared.loops import Loops
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.web import create_app


def build(settings: InjectionSettings) -> FastAPI:
    loops = Loops()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with MemoryStoreClient(settings.memory_store_url, settings.service_key.get_secret_value()) as store:
            writes = BackgroundWrites(store, loops)
            encoder = await load_encoder(settings.ranker_model)
            ranker = Ranker(encoder, store, writes, settings) if encoder else None
            app.state.assembler = Assembler(settings, store, ranker, writes)
            app.state.search = Search(store, ranker)
            # What it leaves of the deadline is enough for the facts: both come from the same place.
            app.state.authenticator = ForgivingAuthenticator(
                RpcAuthenticator(store), timeout_s=settings.assemble_deadline_ms / 1000 * 0.8
            )
            await _warm(store)
            # A full collection looks at 90,000 objects of imports for 20 ms and more, in the middle of an answer.
            gc.freeze()
            writing = asyncio.create_task(writes.run())
            try:
                yield
            finally:
                writing.cancel()
                await writes.flush()
                if encoder is not None:
                    encoder.close()

    return create_app(
        "Keepsake injection",
        routers=[endpoints.router],
        lifespan=lifespan,
        loops=loops,
        not_ready=_always_ready,
        cors_origins=settings.cors_origins,
    )


async def _warm(store: MemoryStoreClient) -> None:
    """Opens a connection and loads what the first call needs, so that the first prompt is not late. Nobody has this name."""
    with contextlib.suppress(RpcError):
        await store.list_facts(m.ListFacts(tenant="default", user="-", workspace="-"), timeout=1.0)


async def _always_ready() -> str | None:
    """Without memory-store the prompts still come back, unchanged: taking this replica away would make it worse."""
    return None

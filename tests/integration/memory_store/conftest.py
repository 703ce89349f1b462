"""The REST half in this process, on a real Postgres; requests come over ASGI."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from deploy.local.database import Database as LocalDatabase
from services.memory_store import rest
from services.memory_store.access.service import ensure_tenant
from services.memory_store.database import Database
from services.memory_store.settings import ModelEntry, Settings
from shared.loops import Loops
from shared.web import create_app
from tests.integration.memory_store.lab import Lab

ADMIN_KEY = "the operator's key for tests"


@pytest.fixture
def settings(database: LocalDatabase) -> Settings:
    return Settings(
        database_url=SecretStr(database.app_url),
        admin_key=SecretStr(ADMIN_KEY),
        service_keys={},
        models=(ModelEntry(name="small"), ModelEntry(name="large")),
    )


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Database]:
    opened = Database(settings.database_url.get_secret_value(), size=10)
    await opened.open()
    await ensure_tenant(opened, "default", personalization=True)
    yield opened
    await opened.close()


@pytest.fixture
def app(store: Database, settings: Settings) -> FastAPI:
    def lifespan(_: FastAPI) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    app = create_app("memory-store", routers=rest.ROUTERS, lifespan=lifespan, loops=Loops(), not_ready=store.not_ready)
    rest.install(app, store, settings)
    app.state.authenticator.ttl_s = 0.0  # each request asks
    return app


class Api(httpx.AsyncClient):
    """As the operator, or as whoever holds `key`."""

    def __init__(self, app: FastAPI, key: str = ADMIN_KEY) -> None:
        self.app = app
        super().__init__(
            transport=httpx.ASGITransport(app),
            base_url="http://memory-store",
            headers={"Authorization": f"Bearer {key}"},
        )

    def as_holder(self, key: str) -> "Api":
        return Api(self.app, key)

    async def key(self, *scopes: str, workspaces: list[str] | None = None) -> "Api":
        made = await self.post("/v1/keys", json={"name": "k", "scopes": scopes, "workspaces": workspaces})
        return self.as_holder(made.json()["key"])

    async def token(self, user: str | None, **wanted: object) -> "Api":
        made = await self.post("/v1/tokens", json={"user": user, **wanted})
        return self.as_holder(made.json()["token"])


@pytest.fixture
async def api(app: FastAPI) -> AsyncIterator[Api]:
    async with Api(app) as client:
        yield client


@pytest.fixture
async def lab(database: LocalDatabase) -> AsyncIterator[Lab]:
    opened = Database(database.app_url, size=20)
    await opened.open()
    made = Lab(opened, database)
    await made.add_tenant("default")
    yield made
    await made.close()

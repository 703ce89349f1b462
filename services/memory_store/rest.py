"""The REST half of memory-store: its routers, and the services that they find on the app."""

from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware

from services.memory_store.access.endpoints import router as access_router
from services.memory_store.access.service import Access
from services.memory_store.database import Database
from services.memory_store.facts.endpoints import router as facts_router
from services.memory_store.facts.reading import Views
from services.memory_store.facts.service import Facts
from services.memory_store.preferences.endpoints import router as preferences_router
from services.memory_store.preferences.service import Preferences
from services.memory_store.runs.endpoints import router as runs_router
from services.memory_store.runs.overview import Overview
from services.memory_store.settings import Settings
from services.memory_store.turns import WritesInTurn
from shared.auth import RpcAuthenticator, hash_credential

AUTHENTICATED_S = 5.0
ROUTERS: tuple[APIRouter, ...] = (facts_router, runs_router, preferences_router, access_router)


def install(app: FastAPI, database: Database, settings: Settings) -> Access:
    """Puts the services where the routes look for them; answers the one that also serves the Authenticate RPC."""
    app.user_middleware.insert(1, Middleware(WritesInTurn))  # within what measures, around what reads and parses
    stand_ins, rules, models = settings.anonymous_users, settings.due_rules, settings.model_names
    access = Access(
        database=database,
        operator_sha256=hash_credential(settings.admin_key.get_secret_value()),
        personalization=settings.personalization,
        stand_ins=stand_ins,
    )
    app.state.access = access
    # Remembered for a moment, so that a burst of requests does not ask the database who they are one by one.
    app.state.authenticator = RpcAuthenticator(access, ttl_s=AUTHENTICATED_S)
    app.state.views = Views(database=database)
    app.state.facts = Facts(database=database, stand_ins=stand_ins)
    app.state.overview = Overview(database=database, models=models, stand_ins=stand_ins, rules=rules)
    app.state.preferences = Preferences(
        database=database, models=models, personalization=settings.personalization, stand_ins=stand_ins, rules=rules
    )
    return access

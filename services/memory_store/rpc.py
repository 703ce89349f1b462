"""The RPC half of memory-store: which method does what, and which service may call it."""

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
from starlette.routing import Route

from services.memory_store.access.service import Access
from services.memory_store.database import Database
from services.memory_store.facts.injecting import Injecting
from services.memory_store.runs.completing import Completing
from services.memory_store.runs.leasing import Leasing, RetryRules
from services.memory_store.settings import ServiceName, Settings
from services.memory_store.staging.service import Staging
from shared.auth import hash_credential
from shared.rpc import messages as m
from shared.rpc.errors import RpcError
from shared.rpc.server import Authorise, Method, rpc_route
from shared.telemetry.metrics import AUTH_FAILURES

Ask = TypeVar("Ask", bound=m.Message)

# Each service what its work needs: a key that leaks opens no more.
CALLERS: Mapping[str, frozenset[ServiceName]] = {
    "Authenticate": frozenset({"chat-ingest", "injection"}),
    "StageChats": frozenset({"extraction"}),
    "ClaimRun": frozenset({"extraction"}),
    "RenewLease": frozenset({"extraction"}),
    "CompleteRun": frozenset({"extraction"}),
    "FailRun": frozenset({"extraction"}),
    "ListFacts": frozenset({"injection"}),
    "PutVectors": frozenset({"injection"}),
    "RecordUse": frozenset({"injection"}),
}


def route(database: Database, settings: Settings, access: Access) -> Route:
    rules = settings.due_rules
    staging = Staging(
        database,
        rules,
        frozenset(name.casefold() for name in settings.anonymous_users),
        timedelta(days=settings.idempotency_days),
    )
    retries = RetryRules(
        max_attempts=settings.max_attempts,
        max_lost=settings.max_lost,
        base=timedelta(milliseconds=settings.retry_base_ms),
        longest=timedelta(milliseconds=settings.retry_max_ms),
    )
    keep_text = settings.chat_text_days > 0
    leasing = Leasing(database, rules, retries, settings.model_names, keep_text)
    completing = Completing(database, rules, keep_text)
    injecting = Injecting(database)
    methods: dict[str, Method[Any]] = {
        "Authenticate": _method(m.Authenticate, access.authenticate),
        "StageChats": _method(m.StageChats, staging.stage),
        "ClaimRun": _method(m.ClaimRun, leasing.claim),
        "RenewLease": _method(m.RenewLease, leasing.renew),
        "CompleteRun": _method(m.CompleteRun, completing.complete),
        "FailRun": _method(m.FailRun, leasing.fail),
        "ListFacts": _method(m.ListFacts, injecting.list_facts),
        "PutVectors": _method(m.PutVectors, injecting.put_vectors),
        "RecordUse": _method(m.RecordUse, injecting.record_use),
    }
    return rpc_route(methods, authorise(settings.service_keys))


def authorise(keys: Mapping[ServiceName, Sequence[str]]) -> Authorise:
    """Knows services by the SHA-256 of their keys, compared in constant time."""

    def check(bearer: str, method: str) -> str:
        given = hash_credential(bearer)
        caller = None
        for service, hashes in keys.items():
            for known in hashes:
                if hmac.compare_digest(given, known):
                    caller = service
        if caller is None:
            AUTH_FAILURES.labels("service_key").inc()
            raise RpcError("unauthenticated", "no service has this key")
        if caller not in CALLERS.get(method, frozenset()):
            raise RpcError("permission_denied", "this service may not call this method")
        return caller

    return check


def _method(request: type[Ask], handle: Callable[[Ask], Awaitable[m.Message]]) -> Method[Ask]:
    async def answer(ask: Ask, _: str) -> m.Message:
        try:
            return await handle(ask)
        except asyncpg.DataError:
            # Passed the contract and is nothing that Postgres can hold.
            raise RpcError("invalid_argument", "the database refuses a value") from None

    return Method(request, answer)

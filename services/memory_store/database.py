"""The way to Postgres: pools of connections of the service's role, and one transaction per principal.

    async with database.person(tenant, user) as connection: …

binds a transaction to one person by the settings that row-level security reads (migrations/0001). `retry` runs such work again when
Postgres ended it for the sake of another transaction.

The transaction is opened in one round trip together with its settings; they are local to it, so a connection that goes back to the pool
carries nothing over. This asks for a pooler in front of Postgres, if any, in transaction mode with prepared statements.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Literal, TypeAlias, TypeVar

import asyncpg
import structlog
from asyncpg.pool import PoolConnectionProxy

from shared.backoff import Backoff, jittered
from shared.rpc.errors import RpcError
from shared.telemetry.metrics import DB_POOL_IN_USE, DB_POOL_WAIT_SECONDS, SCHEMA_VERSION

log = structlog.get_logger()

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
PoolName = Literal["people", "queue"]
Result = TypeVar("Result")

# The newest migration this release needs; a database that is ahead of it serves (expand, then contract).
SCHEMA_NEEDED = 6

ACQUIRE_TIMEOUT_S = 3.0
COMMAND_TIMEOUT_S = 15.0
_SERVER_SETTINGS = {
    "application_name": "keepsake-memory-store",
    "statement_timeout": "10s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    "standard_conforming_strings": "on",  # what _literal relies on
    "jit": "off",  # small statements: compiling them costs more than it saves
    "timezone": "UTC",
}
QUIET_S = 10.0
RETRY_PAUSES_S = (0.01, 0.05, 0.2, 0.5)

# Another transaction won, or a migration changed a table under a prepared statement: the same work may pass now.
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.InvalidCachedStatementError)
# Postgres is away, starting, stopping, a standby, full, or too slow for now.
_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # asyncpg's word for a connection that broke in the middle of an operation
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)


class Conflicted(RpcError):
    """Postgres ended the transaction for another's sake; run again it may pass."""

    def __init__(self) -> None:
        super().__init__("unavailable", "another transaction was in the way")


class _Outage:
    """Says once that Postgres is away, and once that it is back, however many ask meanwhile. A failure among successes, such as a lock
    that was not granted in time, is said at most every `QUIET_S`."""

    def __init__(self) -> None:
        self._failed_at: float | None = None
        self._since: float | None = None

    def failed(self, error: Exception) -> None:
        now = time.monotonic()
        if self._failed_at is None or now - self._failed_at > QUIET_S:
            log.warning("database_unavailable", error=type(error).__name__)
            self._since = now
        self._failed_at = now

    def connected(self) -> None:
        if self._since is not None:
            log.info("database_available", after_s=round(time.monotonic() - self._since, 1))
            self._since = None


class Database:
    """Two pools of the same role, so that a burst of staging or runs leaves connections for people and prompts."""

    def __init__(self, url: str, *, size: int) -> None:
        self._url = url
        self._size = size
        self._pools: dict[PoolName, asyncpg.Pool[asyncpg.Record]] = {}
        self._outage = _Outage()

    async def open(self) -> None:
        """Needs no Postgres: connections are made when they are asked for. Raises ValueError for an URL that is none."""
        for name in ("people", "queue"):
            self._pools[name] = await asyncpg.create_pool(
                self._url,
                min_size=0,
                max_size=self._size,
                timeout=ACQUIRE_TIMEOUT_S,
                command_timeout=COMMAND_TIMEOUT_S,
                max_inactive_connection_lifetime=300,
                server_settings=_SERVER_SETTINGS,
                reset=_nothing_to_reset,
            )

    async def close(self) -> None:
        for pool in self._pools.values():
            try:
                await asyncio.wait_for(pool.close(), timeout=5)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pool.terminate()

    @asynccontextmanager
    async def person(self, tenant: str, user: str, *, pool: PoolName = "people") -> AsyncIterator[Connection]:
        """Sees this person's rows alone (an empty user: nobody's, only the tenant's). Raises RpcError unavailable."""
        async with self._transaction(pool, {"keepsake.tenant": tenant, "keepsake.user": user}) as connection:
            yield connection

    @asynccontextmanager
    async def tenant(self, tenant: str, *, whole: bool = False) -> AsyncIterator[Connection]:
        """Sees a tenant's settings and keys, no person's rows; with `whole` also, to read only, all its runs, dead chats and audit."""
        scope = {"keepsake.tenant": tenant} | ({"keepsake.scope": "tenant"} if whole else {})
        async with self._transaction("people", scope) as connection:
            yield connection

    @asynccontextmanager
    async def anonymous(self, *, pool: PoolName = "people") -> AsyncIterator[Connection]:
        """Sees no person's and no tenant's rows: for the functions that work across them."""
        async with self._transaction(pool, {}) as connection:
            yield connection

    @asynccontextmanager
    async def statement(self, *, pool: PoolName = "people") -> AsyncIterator[Connection]:
        """For one statement that binds itself to a person, as `injectable_facts` does: no round trips for a transaction around it."""
        with self._translated():
            async with self._connection(pool) as connection:
                yield connection
                self._outage.connected()

    async def retry(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Runs `work`, which opens its own transaction, again after a deadlock or the like. Raises RpcError unavailable."""
        for pause in RETRY_PAUSES_S:
            try:
                return await work()
            except Conflicted:
                await asyncio.sleep(jittered(pause))
        return await work()

    async def schema(self) -> int | None:
        """The number of the newest migration, None where there is none. Raises RpcError unavailable."""
        try:
            async with self.anonymous() as connection:
                newest: str | None = await connection.fetchval("SELECT max(version) FROM schema_migrations")
        except (asyncpg.UndefinedTableError, asyncpg.InsufficientPrivilegeError):
            return None
        version = int(newest) if newest else None
        SCHEMA_VERSION.set(version or 0)
        return version

    async def not_ready(self) -> str | None:
        """Why the database cannot be used, in a word."""
        try:
            version = await self.schema()
        except RpcError:
            return "database_unavailable"
        return None if version is not None and version >= SCHEMA_NEEDED else "schema_outdated"

    async def wait_until_ready(self) -> None:
        """Returns once the schema is there: one line says what is missing, the pauses grow, nothing ends."""
        backoff = Backoff(0.2, 5.0)
        said: str | None = None
        while (reason := await self.not_ready()) is not None:
            if reason != said:
                log.warning("database_not_ready", reason=reason)
                said = reason
            await asyncio.sleep(backoff.next_pause())
        if said is not None:
            log.info("database_ready")

    @asynccontextmanager
    async def _transaction(self, pool: PoolName, scope: dict[str, str]) -> AsyncIterator[Connection]:
        settings = ", ".join(f"set_config({_literal(name)}, {_literal(value)}, true)" for name, value in scope.items())
        begin = f"BEGIN; SELECT {settings}" if settings else "BEGIN"
        with self._translated():
            async with self._connection(pool) as connection:
                await connection.execute(begin)
                self._outage.connected()
                try:
                    yield connection
                    await connection.execute("COMMIT")
                except BaseException:
                    await _roll_back(connection)
                    raise

    @asynccontextmanager
    async def _connection(self, pool: PoolName) -> AsyncIterator[Connection]:
        started = time.perf_counter()
        try:
            connection = await self._pools[pool].acquire(timeout=ACQUIRE_TIMEOUT_S)
        finally:
            DB_POOL_WAIT_SECONDS.labels(pool).observe(time.perf_counter() - started)
        DB_POOL_IN_USE.labels(pool).inc()
        try:
            yield connection
        finally:
            DB_POOL_IN_USE.labels(pool).dec()
            # Not to be cut short by a caller that goes away: the connection would be lost to the pool.
            await asyncio.shield(self._pools[pool].release(connection))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The library's texts quote statements and rows: only a type's name is kept of its errors."""
        try:
            yield
        except _AGAIN as error:
            log.info("transaction_conflicted", error=type(error).__name__)
            raise Conflicted from None
        except _AWAY as error:
            self._outage.failed(error)
            raise RpcError("unavailable", "the database is away") from None


async def _roll_back(connection: Connection) -> None:
    try:
        await connection.execute("ROLLBACK", timeout=2)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        # Whatever state it is in, nobody gets it again.
        connection.terminate()


async def _nothing_to_reset(_: object) -> None:
    """Every setting, lock and cursor of ours ends with its transaction; asyncpg's own reset would cost a round trip each time."""


def _literal(value: str) -> str:
    """A SQL string; ids hold no NUL and Postgres reads backslashes as they are."""
    return "'" + value.replace("'", "''") + "'"

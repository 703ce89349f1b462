"""What leaves with time: text of read chats and runs, of chats nobody read, of deleted facts; idempotency keys and tokens that ended.

A sweep is many small transactions, so that it may be killed between any two, and nothing waits for it long: each changes a page of rows,
skips what somebody has locked, and is followed by a rest several times as long as it took. One replica sweeps at a time: whose turn it is
stands in the database, as a lease that every page renews, so the next replica goes on where a killed one stopped.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import structlog

from services.memory_store.database import Connection, Database
from services.memory_store.retention import repository
from services.memory_store.settings import DueRules
from shared.backoff import Backoff
from shared.loops import Loops
from shared.rpc.errors import RpcError
from shared.telemetry.metrics import RETENTION_LAST_SUCCESS, RETENTION_ROWS

log = structlog.get_logger()

Kind = Literal["pending", "dead", "read", "run", "key", "token", "fact"]
Page: TypeAlias = Callable[[Connection], Awaitable[int]]

LOOP = "retention"
AT_ONCE = 500
# Of the time it takes the sweep works a fifth.
REST = 4
LONGEST_REST_S = 5.0
LEASE = timedelta(seconds=60)
# How often a replica looks whether a sweep is due, at most.
LOOK_S = 30.0
# Keys go later than staging calls their records too old, so that no clock that is behind lets one in a second time.
CLOCKS = timedelta(days=1)


class LeaseLost(Exception):
    """Another replica sweeps: this one was silent for too long."""


@dataclass(frozen=True, slots=True)
class Ages:
    """How old what leaves is, since it was read, ended, staged, given up or deleted; `keys` since the broker had it."""

    chat_text: timedelta
    pending: timedelta
    deleted_text: timedelta
    keys: timedelta


@dataclass(frozen=True, slots=True)
class Retention:
    """`every`: from the end of one sweep to the beginning of the next."""

    database: Database
    rules: DueRules
    ages: Ages
    every: timedelta
    loops: Loops
    me: UUID = field(default_factory=uuid4)

    async def run(self) -> None:
        """For ever; what is away is waited for in growing pauses."""
        self.loops.register(LOOP, bound_s=2 * LOOK_S)
        backoff = Backoff(1.0, LOOK_S)
        waits = False
        while True:
            self.loops.beat(LOOP)
            try:
                await self.sweep_if_due()
            except (RpcError, LeaseLost, asyncpg.PostgresError) as error:
                if not waits:
                    log.warning("retention_waits", error=type(error).__name__)
                waits = True
                await asyncio.sleep(backoff.next_pause())
                continue
            if waits:
                log.info("retention_goes_on")
            waits = False
            backoff.reset()
            await asyncio.sleep(min(self.every.total_seconds(), LOOK_S))

    async def sweep_if_due(self) -> bool:
        """Whether this replica swept. Raises RpcError, LeaseLost, asyncpg.PostgresError; what was swept by then is."""
        async with self.database.anonymous(pool="queue") as connection:
            mine = await repository.begin(connection, self.me, self.every, LEASE)
            last = await repository.finished_at(connection)
        if last is not None:
            RETENTION_LAST_SUCCESS.set(last.timestamp())
        if mine:
            await self._sweep()
        return mine

    async def _sweep(self) -> None:
        started = time.monotonic()
        swept: dict[str, int] = {}
        async for kind, rows in self._pages():
            swept[kind] = swept.get(kind, 0) + rows
            RETENTION_ROWS.labels(kind).inc(rows)
            self.loops.beat(LOOP)
        async with self.database.anonymous(pool="queue") as connection:
            await repository.finish(connection, self.me)
        RETENTION_LAST_SUCCESS.set_to_current_time()
        if any(swept.values()):
            rows_by_kind = {kind: rows for kind, rows in swept.items() if rows}
            log.info("retention_swept", seconds=round(time.monotonic() - started, 1), **rows_by_kind)

    async def _pages(self) -> AsyncIterator[tuple[Kind, int]]:
        """Each kind page by page, until one comes back short."""
        ages = self.ages
        kinds: list[tuple[Kind, Page]] = [
            ("pending", lambda connection: repository.pending(connection, self.rules, ages.pending, AT_ONCE)),
            ("dead", lambda connection: repository.chats(connection, "dead", ages.pending, AT_ONCE)),
            ("read", lambda connection: repository.chats(connection, "read", ages.chat_text, AT_ONCE)),
            ("run", lambda connection: repository.runs(connection, ages.chat_text, AT_ONCE)),
            ("key", lambda connection: repository.keys(connection, ages.keys + CLOCKS, AT_ONCE)),
            ("token", lambda connection: repository.tokens(connection, AT_ONCE)),
        ]
        for kind, page in kinds:
            rows = AT_ONCE
            while rows >= AT_ONCE:
                rows = await self._page(page)
                yield kind, rows
        while people := await self._people():
            for tenant, user in people:
                yield "fact", await self._facts(tenant, user)

    async def _page(self, page: Page) -> int:
        async def work() -> int:
            async with self.database.anonymous(pool="queue") as connection:
                await self._hold(connection)
                return await page(connection)

        return await self._rested(work)

    async def _people(self) -> list[repository.Person]:
        async with self.database.anonymous(pool="queue") as connection:
            return await repository.people(connection, self.ages.deleted_text, AT_ONCE)

    async def _facts(self, tenant: str, user: str) -> int:
        """A person's facts are behind row-level security: each in a transaction of their own, under their lock."""

        async def work() -> int:
            async with self.database.person(tenant, user, pool="queue") as connection:
                await self._hold(connection)
                return await repository.facts(connection, self.ages.deleted_text, AT_ONCE)

        return await self._rested(work)

    async def _rested(self, work: Callable[[], Awaitable[int]]) -> int:
        """One transaction, again after a deadlock, and the rest that follows it."""
        started = time.monotonic()
        rows = await self.database.retry(work)
        await asyncio.sleep(min(REST * (time.monotonic() - started), LONGEST_REST_S))
        return rows

    async def _hold(self, connection: Connection) -> None:
        if not await repository.hold(connection, self.me, LEASE):
            raise LeaseLost

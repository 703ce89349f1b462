"""The store's gauges, read from the database every few seconds, not with each scrape. Every replica shows the same."""

import asyncio
from dataclasses import dataclass
from datetime import datetime

import asyncpg
import structlog

from services.memory_store.database import Database
from services.memory_store.gauges import repository
from shared.backoff import Backoff
from shared.loops import Loops
from shared.rpc.errors import RpcError
from shared.telemetry.metrics import BATCHES, OLDEST_DUE_AGE, OLDEST_PENDING_AGE, OUTBOX_OLDEST_AGE

log = structlog.get_logger()

LOOP = "gauges"
# More due batches than this are the same to whoever looks, or scales by them.
CAP = 10_000
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Gauges:
    database: Database
    loops: Loops
    every_s: float

    async def run(self) -> None:
        """For ever; what is away is waited for in growing pauses, and the gauges stand meanwhile."""
        self.loops.register(LOOP, bound_s=LONGEST_PAUSE_S)
        backoff = Backoff(1.0, 30.0)
        while True:
            self.loops.beat(LOOP)
            try:
                await self.read()
            except (RpcError, asyncpg.PostgresError) as error:
                log.debug("gauges_wait", error=type(error).__name__)
                await asyncio.sleep(backoff.next_pause())
                continue
            backoff.reset()
            await asyncio.sleep(self.every_s)

    async def read(self) -> None:
        """Raises RpcError, asyncpg.PostgresError."""
        await self.database.schema()
        async with self.database.anonymous(pool="queue") as connection:
            found = await repository.figures(connection, CAP)

        def age(since: datetime | None) -> float:
            return 0.0 if since is None else max(0.0, (found.now - since).total_seconds())

        BATCHES.labels("due").set(found.due)
        BATCHES.labels("running").set(found.running)
        BATCHES.labels("sleeping").set(found.sleeping)
        OLDEST_DUE_AGE.set(age(found.oldest_due_at))
        OLDEST_PENDING_AGE.set(age(found.oldest_pending_at))
        OUTBOX_OLDEST_AGE.set(age(found.oldest_change_at))

"""What the gauges show, in one statement whose cost does not grow with the batches (store_figures, migrations/0006)."""

from dataclasses import dataclass
from datetime import datetime

from services.memory_store.database import Connection


@dataclass(frozen=True, slots=True)
class Figures:
    """`due` and `running` count up to the cap; `sleeping` beyond it is Postgres' estimate. Times are None where there is nothing."""

    now: datetime
    due: int
    running: int
    sleeping: int
    oldest_due_at: datetime | None
    oldest_pending_at: datetime | None
    oldest_change_at: datetime | None


async def figures(connection: Connection, cap: int) -> Figures:
    row = await connection.fetchrow(
        """
        SELECT now() AS now, due, running, sleeping, oldest_due_at, oldest_pending_at, oldest_change_at FROM store_figures($1)
        """,
        cap,
    )
    return Figures(**dict(row or {}))

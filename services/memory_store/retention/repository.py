"""Sweeps in the database (migrations/0006): whose turn it is, and one page of each kind."""

from datetime import datetime, timedelta
from uuid import UUID

from services.memory_store.database import Connection
from services.memory_store.settings import DueRules

Person = tuple[str, str]


async def begin(connection: Connection, sweeper: UUID, every: timedelta, lease: timedelta) -> bool:
    """Whether this sweeper is to sweep now: the last sweep is `every` ago, and no other one holds the lease."""
    mine = await connection.fetchval(
        """
        UPDATE retention_sweep SET sweeper = $1, leased_until = now() + $3::interval
        WHERE (finished_at IS NULL OR finished_at <= now() - $2::interval) AND (sweeper IS NULL OR sweeper = $1 OR leased_until < now())
        RETURNING true
        """,
        sweeper,
        every,
        lease,
    )
    return mine is True


async def hold(connection: Connection, sweeper: UUID, lease: timedelta) -> bool:
    """Keeps the lease; until the transaction ends nobody else can take it. False where it is another's by now."""
    status = await connection.execute(
        "UPDATE retention_sweep SET leased_until = now() + $2::interval WHERE sweeper = $1", sweeper, lease
    )
    return status == "UPDATE 1"


async def finish(connection: Connection, sweeper: UUID) -> None:
    await connection.execute(
        "UPDATE retention_sweep SET sweeper = NULL, leased_until = NULL, finished_at = now() WHERE sweeper = $1",
        sweeper,
    )


async def finished_at(connection: Connection) -> datetime | None:
    """When a whole sweep was last done, by whichever replica."""
    at: datetime | None = await connection.fetchval("SELECT finished_at FROM retention_sweep")
    return at


async def pending(connection: Connection, rules: DueRules, age: timedelta, at_most: int) -> int:
    return await _page(connection, "SELECT sweep_pending($1, $2, $3)", rules.row(), age, at_most)


async def chats(connection: Connection, state: str, age: timedelta, at_most: int) -> int:
    """`state`: read or dead."""
    return await _page(connection, "SELECT sweep_chats($1, $2, $3)", state, age, at_most)


async def runs(connection: Connection, age: timedelta, at_most: int) -> int:
    return await _page(connection, "SELECT sweep_runs($1, $2)", age, at_most)


async def keys(connection: Connection, age: timedelta, at_most: int) -> int:
    return await _page(connection, "SELECT sweep_keys($1, $2)", age, at_most)


async def tokens(connection: Connection, at_most: int) -> int:
    return await _page(connection, "SELECT sweep_tokens($1)", at_most)


async def people(connection: Connection, age: timedelta, at_most: int) -> list[Person]:
    """Who has text of facts that is to go."""
    rows = await connection.fetch("SELECT tenant, usr FROM people_to_sweep($1, $2)", age, at_most)
    return [(row["tenant"], row["usr"]) for row in rows]


async def facts(connection: Connection, age: timedelta, at_most: int) -> int:
    """In a transaction of the person."""
    await connection.execute("SELECT lock_person()")
    return await _page(connection, "SELECT sweep_facts($1, $2)", age, at_most)


async def _page(connection: Connection, statement: str, *values: object) -> int:
    swept: int = await connection.fetchval(statement, *values)
    return swept

"""The staging functions of migrations/0004, called with one array per column."""

from collections.abc import Collection, Sequence
from typing import Any

from services.memory_store.database import Connection
from services.memory_store.settings import DueRules

# One row of an array each; the order is that of the functions' parameters.
ChatRow = tuple[Any, ...]
ResetRow = tuple[Any, ...]
DeletionRow = tuple[Any, ...]


async def known_tenants(connection: Connection, tenants: Collection[str]) -> set[str]:
    rows = await connection.fetch("SELECT tenant FROM tenant WHERE tenant = ANY ($1)", list(tenants))
    return {row["tenant"] for row in rows}


async def stage_chats(
    connection: Connection, rules: DueRules, chats: Sequence[ChatRow]
) -> list[tuple[int, str, str | None]]:
    """Those that were not staged: (index in `chats`, status, reason).

    A row is tenant, user, workspace, event id, thread, prompt, response, occurred_at, its offset in minutes, time zone, digest, repeat
    key, recorded_at, partition, offset, traceparent.
    """
    rows = await connection.fetch(
        """
        SELECT ord, status, reason FROM stage_chats($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
        """,
        rules.row(),
        *_columns(chats),
    )
    return [(row["ord"] - 1, row["status"], row["reason"]) for row in rows]


async def reset_chats(connection: Connection, rules: DueRules, resets: Sequence[ResetRow]) -> None:
    """A row is tenant, user, workspace, thread, recorded_at, offset."""
    await connection.execute("SELECT reset_chats($1, $2, $3, $4, $5, $6, $7)", rules.row(), *_columns(resets))


async def delete_chats(connection: Connection, rules: DueRules, deletions: Sequence[DeletionRow]) -> None:
    """A row is tenant, user, workspace, event id, recorded_at, partition, offset."""
    await connection.execute("SELECT delete_chats($1, $2, $3, $4, $5, $6, $7, $8)", rules.row(), *_columns(deletions))


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]

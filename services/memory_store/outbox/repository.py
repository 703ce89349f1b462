"""The outbox in the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from services.memory_store.database import Connection
from shared.events import ChangeType


@dataclass(frozen=True, slots=True)
class Change:
    id: int
    change_id: UUID
    at: datetime
    type: ChangeType
    tenant: str
    usr: str
    workspace: str | None
    fact_id: UUID | None
    version: int | None
    traceparent: str | None


async def take(connection: Connection, at_most: int) -> list[Change]:
    """The oldest, until the transaction ends nobody else's; none where another relay is at work."""
    rows = await connection.fetch(
        "SELECT id, change_id, at, type, tenant, usr, workspace, fact_id, version, traceparent FROM take_outbox($1)",
        at_most,
    )
    return [Change(**dict(row)) for row in rows]


async def drop(connection: Connection, ids: Sequence[int]) -> None:
    await connection.execute("SELECT drop_outbox($1)", ids)

"""What tests of memory-store do all the time, in few words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import asyncpg

from deploy.local.database import Database as LocalDatabase
from services.memory_store.access.service import ensure_tenant
from services.memory_store.database import Database
from services.memory_store.settings import DueRules
from services.memory_store.staging.service import Staging
from shared.events import ChatCompleted, ChatDeleted, ChatReset
from shared.ids import STAND_INS
from shared.rpc.messages import StageChats, StageRecord, Verdict

NOW_MS = int(datetime.now(UTC).timestamp() * 1000)
AT_ONCE = DueRules(min_chats=1, idle=timedelta(0), window_chats=20, max_wait=timedelta(hours=24), round_to=None)

Event = ChatCompleted | ChatReset | ChatDeleted


def chat(event_id: str, user: str | None = "ann", **fields: Any) -> ChatCompleted:
    return ChatCompleted.model_validate(
        {"event_id": event_id, "user": user, "prompt": f"prompt of {event_id}", "response": "fine"} | fields
    )


@dataclass
class Lab:
    database: Database
    local: LocalDatabase
    rules: DueRules = AT_ONCE
    _offsets: Any = field(default_factory=count)

    async def add_tenant(self, tenant: str, *, personalization: bool = True) -> None:
        await ensure_tenant(self.database, tenant, personalization=personalization)

    @property
    def staging(self) -> Staging:
        return Staging(self.database, self.rules, frozenset(STAND_INS), timedelta(days=90))

    def record(self, event: Event, *, offset: int | None = None, ms: int | None = None) -> StageRecord:
        """At the next position of one partition."""
        offset = next(self._offsets) if offset is None else offset
        return StageRecord(partition=0, offset=offset, timestamp_ms=NOW_MS + offset if ms is None else ms, event=event)

    async def stage(self, *events: Event | StageRecord) -> list[str]:
        """The verdicts in short: `staged`, or the reason."""
        records = [event if isinstance(event, StageRecord) else self.record(event) for event in events]
        return short((await self.staging.stage(StageChats(records=records))).verdicts)

    async def sql(self, query: str, *values: Any) -> list[asyncpg.Record]:
        """As superuser, past row-level security."""
        connection = await asyncpg.connect(self.local.superuser_url)
        try:
            return await connection.fetch(query, *values)
        finally:
            await connection.close()

    async def value(self, query: str, *values: Any) -> Any:
        return (await self.sql(query, *values))[0][0]


def short(verdicts: Sequence[Verdict]) -> list[str]:
    return [verdict.reason or verdict.status for verdict in verdicts]

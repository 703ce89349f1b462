"""What tests of memory-store do all the time, in few words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from deploy.local.database import Database as LocalDatabase
from services.memory_store.access.service import ensure_tenant
from services.memory_store.database import Database
from services.memory_store.runs.completing import Completing
from services.memory_store.runs.leasing import Leasing, RetryRules
from services.memory_store.settings import DueRules
from services.memory_store.staging.service import Staging
from shared.events import ChatCompleted, ChatDeleted, ChatReset
from shared.ids import STAND_INS
from shared.rpc.messages import (
    Candidate,
    CandidateRecord,
    ClaimedRun,
    ClaimRun,
    CompleteRun,
    Decision,
    Evidence,
    FailRun,
    RunEnd,
    StageChats,
    StageRecord,
    Verdict,
)

NOW_MS = int(datetime.now(UTC).timestamp() * 1000)
AT_ONCE = DueRules(min_chats=1, idle=timedelta(0), window_chats=20, max_wait=timedelta(hours=24), round_to=None)
RETRIES = RetryRules(max_attempts=5, max_lost=20, base=timedelta(milliseconds=1), longest=timedelta(milliseconds=1))

Event = ChatCompleted | ChatReset | ChatDeleted


def chat(event_id: str, user: str | None = "ann", **fields: Any) -> ChatCompleted:
    return ChatCompleted.model_validate(
        {"event_id": event_id, "user": user, "prompt": f"prompt of {event_id}", "response": "fine"} | fields
    )


def candidate(content: str, event_id: str, quote: str, **fields: Any) -> Candidate:
    evidence = [Evidence(event_id=event_id, quote=quote)]
    return Candidate.model_validate({"content": content, "confidence": "high", "evidence": evidence} | fields)


@dataclass
class Lab:
    database: Database
    local: LocalDatabase
    rules: DueRules = AT_ONCE
    retries: RetryRules = RETRIES
    models: tuple[str, ...] = ()
    _offsets: Any = field(default_factory=count)
    _superuser: "asyncpg.Connection[asyncpg.Record] | None" = None

    async def add_tenant(self, tenant: str, *, personalization: bool = True) -> None:
        await ensure_tenant(self.database, tenant, personalization=personalization)

    @property
    def leasing(self) -> Leasing:
        return Leasing(self.database, self.rules, self.retries, self.models)

    @property
    def completing(self) -> Completing:
        return Completing(self.database, self.rules)

    async def claim(self, run_id: UUID | None = None, *, lease_ms: int = 60_000, **fields: Any) -> ClaimedRun | None:
        ask = ClaimRun(run_id=run_id or uuid4(), worker="test", lease_ms=lease_ms, **fields)
        return (await self.leasing.claim(ask)).run

    async def claimed(self, **fields: Any) -> ClaimedRun:
        run = await self.claim(**fields)
        assert run is not None
        return run

    async def complete(self, run: ClaimedRun, *pairs: tuple[Candidate, dict[str, Any]]) -> RunEnd:
        """Each candidate with the decision on it."""
        return await self.completing.complete(
            CompleteRun(
                run_id=run.run_id,
                extractor="model",
                model="m",
                candidates=[CandidateRecord(candidate=candidate) for candidate, _ in pairs],
                decisions=[
                    Decision.model_validate({"candidate": index} | decision)
                    for index, (_, decision) in enumerate(pairs)
                ],
            )
        )

    async def fail(self, run: ClaimedRun, outcome: Any = "model_failed", **fields: Any) -> RunEnd:
        return await self.leasing.fail(FailRun(run_id=run.run_id, outcome=outcome, **fields))

    async def learn(self, *statements: tuple[str, dict[str, Any]], user: str = "ann", **fields: Any) -> RunEnd:
        """One chat per statement, all in one run: (content, decision)."""
        names = [f"{uuid4()}" for _ in statements]
        await self.stage(
            *(
                chat(name, user, prompt=f"well, {content} indeed", **fields)
                for name, (content, _) in zip(names, statements, strict=True)
            )
        )
        run = await self.claimed()
        assert run.user == user
        said = [
            (candidate(content, name, content), decision)
            for name, (content, decision) in zip(names, statements, strict=True)
        ]
        return await self.complete(run, *said)

    async def facts(self, user: str = "ann", state: str = "active") -> list[tuple[str | None, str]]:
        """(workspace, content), oldest first."""
        rows = await self.sql(
            "SELECT workspace, content FROM fact WHERE usr = $1 AND state = $2 ORDER BY created_at, content",
            user,
            state,
        )
        return [(row["workspace"], row["content"]) for row in rows]

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
        if self._superuser is None:
            self._superuser = await asyncpg.connect(self.local.superuser_url)
        return await self._superuser.fetch(query, *values)

    async def close(self) -> None:
        await self.database.close()
        if self._superuser is not None:
            await self._superuser.close()

    async def value(self, query: str, *values: Any) -> Any:
        return (await self.sql(query, *values))[0][0]


def short(verdicts: Sequence[Verdict]) -> list[str]:
    return [verdict.reason or verdict.status for verdict in verdicts]

"""Leases in the database: claiming, the fence, windows, and how runs end."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from services.memory_store.database import Connection
from services.memory_store.settings import DueRules
from shared.rpc.messages import (
    CandidateRecord,
    ClaimedChat,
    Decision,
    DecisionResult,
    Extractor,
    KnownFact,
    RunOutcome,
    RunState,
)

_CANDIDATES: TypeAdapter[Sequence[CandidateRecord]] = TypeAdapter(Sequence[CandidateRecord])
_DECISIONS: TypeAdapter[Sequence[Decision]] = TypeAdapter(Sequence[Decision])
_RESULTS: TypeAdapter[list[DecisionResult]] = TypeAdapter(list[DecisionResult])


@dataclass(frozen=True, slots=True)
class Claimed:
    """`verdict`: claimed, ended (this run id is over) or none. `lost_runs`: leases found run out on the way."""

    verdict: str
    tenant: str
    usr: str
    workspace: str
    event_ids: list[str]
    attempt: int
    model: str | None
    lease_expires_at: datetime
    lost_runs: int


@dataclass(frozen=True, slots=True)
class Owner:
    tenant: str
    user: str
    workspace: str


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch that a run holds, locked."""

    attempts: int


@dataclass(frozen=True, slots=True)
class Policy:
    """The tenant's settings that concern what a run may write."""

    require_approval: bool
    sensitive: str


@dataclass(frozen=True, slots=True)
class RunRow:
    event_ids: list[str]
    state: RunState
    outcome: RunOutcome | None
    results: list[DecisionResult]
    started_at: datetime


@dataclass(frozen=True, slots=True)
class WindowChat:
    """A chat of a run's window. `state` says whether it may still be read; `prompt` is None once its text has left."""

    event_id: str
    workspace: str
    thread: str | None
    state: str
    prompt: str | None
    occurred_at: datetime
    occurred_offset: int | None
    recorded_at: datetime
    src_offset: int

    @property
    def said_at(self) -> datetime:
        """In the person's own offset, as far as it is known."""
        return _local(self.occurred_at, self.occurred_offset)


async def claim(
    connection: Connection,
    rules: DueRules,
    run_id: UUID,
    *,
    worker: str,
    lease: timedelta,
    models: Sequence[str],
    without: Sequence[str],
    only: str | None,
    max_lost: int,
) -> Claimed:
    """After it the transaction is the claimed person's."""
    row = await connection.fetchrow(
        """
        SELECT verdict, tenant, usr, workspace, event_ids, attempt, model, lease_expires_at, lost_runs
        FROM claim_run($1, $2, $3, $4, $5, $6, $7, $8)
        """,
        rules.row(),
        run_id,
        worker,
        lease,
        models,
        without,
        only,
        max_lost,
    )
    return Claimed(**dict(row or {}))


async def note_open_breakers(connection: Connection, models: Sequence[str]) -> None:
    """Remembered at most every few seconds, since every worker says so with every claim."""
    await connection.execute(
        """
        INSERT INTO open_breaker AS o (model, reported_at) SELECT name, now() FROM unnest($1::text[]) AS name ORDER BY name
        ON CONFLICT (model) DO UPDATE SET reported_at = now() WHERE o.reported_at < now() - interval '5 seconds'
        """,
        models,
    )


async def claimed_chats(connection: Connection, event_ids: Sequence[str]) -> list[ClaimedChat]:
    """Those of the window that may still be read, oldest first."""
    rows = await connection.fetch(
        """
        SELECT event_id, thread, prompt, response, occurred_at, occurred_offset, timezone, recorded_at, traceparent FROM chat
        WHERE event_id = ANY ($1) AND state = 'pending' AND prompt IS NOT NULL ORDER BY recorded_at, src_offset
        """,
        event_ids,
    )
    return [
        ClaimedChat(
            event_id=row["event_id"],
            thread=row["thread"],
            prompt=row["prompt"],
            response=row["response"],
            occurred_at=_local(row["occurred_at"], row["occurred_offset"]),
            timezone=row["timezone"],
            recorded_at=row["recorded_at"],
            traceparent=row["traceparent"],
        )
        for row in rows
    ]


async def known_facts(connection: Connection, workspace: str) -> list[KnownFact]:
    """What the reflector sees: active facts that are not past, never a tombstone."""
    rows = await connection.fetch(
        """
        SELECT id, content, CASE WHEN workspace IS NULL THEN 'global' ELSE 'workspace' END AS scope, category, locked, version, valid_from
        FROM fact
        WHERE state = 'active' AND (workspace IS NULL OR workspace = $1)
          AND (valid_to_day IS NULL OR valid_to_day >= (statement_timestamp() AT TIME ZONE 'UTC')::date)
        ORDER BY created_at, id
        """,
        workspace,
    )
    return [KnownFact.model_validate(dict(row)) for row in rows]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`zone` is what the person's latest chats named; free slots count as `ledger.slots` does."""

    zone: str | None
    free_workspace: int
    free_global: int
    heading: str


async def surroundings(connection: Connection, workspace: str) -> Surroundings:
    """In one statement: a claim is asked for every other second by every worker."""
    row = await connection.fetchrow(
        """
        SELECT
          (SELECT timezone FROM batch WHERE timezone IS NOT NULL ORDER BY last_staged_at DESC LIMIT 1) AS zone,
          greatest(0, t.max_workspace_facts - used.workspace)::integer AS free_workspace,
          greatest(0, t.max_global_facts - used.global)::integer AS free_global,
          t.heading
        FROM tenant_setting t CROSS JOIN (
          SELECT count(*) FILTER (WHERE workspace IS NULL) AS global, count(workspace) AS workspace
          FROM fact
          WHERE state = 'active' AND (workspace IS NULL OR workspace = $1)
            AND (valid_to_day IS NULL OR valid_to_day >= (statement_timestamp() AT TIME ZONE 'UTC')::date)
        ) used
        """,
        workspace,
    )
    return Surroundings(**dict(row or {}))


async def owner(connection: Connection, run_id: UUID) -> Owner | None:
    row = await connection.fetchrow("SELECT tenant, usr, workspace FROM run_owner($1)", run_id)
    return None if row is None or row["tenant"] is None else Owner(row["tenant"], row["usr"], row["workspace"])


async def act_for(connection: Connection, owner: Owner) -> None:
    """From here on the transaction sees this person's rows."""
    await connection.execute(
        "SELECT set_config('keepsake.tenant', $1, true), set_config('keepsake.user', $2, true)",
        owner.tenant,
        owner.user,
    )


async def renew(connection: Connection, run_id: UUID, workspace: str, lease: timedelta) -> datetime | None:
    """The lease's new end; None where the run holds it no longer."""
    end: datetime | None = await connection.fetchval(
        "UPDATE batch SET claimable_at = now() + $3 WHERE workspace = $2 AND run_id = $1 RETURNING claimable_at",
        run_id,
        workspace,
        lease,
    )
    return end


async def shorten_window(connection: Connection, run_id: UUID, workspace: str, last: str) -> None:
    """Ends the window with this chat. The rest was due, and stays so as what is left of a failed window does."""
    await connection.execute(
        """
        WITH was AS (SELECT event_ids FROM run WHERE id = $1), rest AS (
          SELECT c.recorded_at, c.src_offset FROM chat c JOIN was ON c.event_id = was.event_ids[cardinality(was.event_ids)]
        ), due AS (
          UPDATE batch b SET failed_at = rest.recorded_at, failed_offset = rest.src_offset FROM rest
          WHERE b.workspace = $2 AND b.run_id = $1 AND b.failed_at IS NULL
        )
        UPDATE run SET event_ids = run.event_ids[1:array_position(run.event_ids, $3)] FROM was
        WHERE run.id = $1 AND $3 = ANY (run.event_ids)
        """,
        run_id,
        workspace,
        last,
    )


async def fenced_batch(connection: Connection, run_id: UUID, workspace: str) -> Batch | None:
    """The batch, locked, while this run holds it."""
    row = await connection.fetchrow(
        "SELECT attempts FROM batch WHERE workspace = $2 AND run_id = $1 FOR UPDATE", run_id, workspace
    )
    return None if row is None else Batch(**dict(row))


async def run(connection: Connection, run_id: UUID) -> RunRow:
    row = await connection.fetchrow(
        "SELECT event_ids, state, outcome, results, started_at FROM run WHERE id = $1", run_id
    )
    found = dict(row or {})
    return RunRow(**(found | {"results": _RESULTS.validate_python(json.loads(found["results"]))}))


async def exclude_barred(connection: Connection, rules: DueRules, workspace: str) -> None:
    await connection.execute("SELECT exclude_barred($1, $2)", rules.row(), workspace)


async def window(connection: Connection, event_ids: Sequence[str]) -> list[WindowChat]:
    rows = await connection.fetch(
        """
        SELECT event_id, workspace, thread, state, prompt, occurred_at, occurred_offset, recorded_at, src_offset FROM chat
        WHERE event_id = ANY ($1) ORDER BY recorded_at, src_offset FOR UPDATE
        """,
        event_ids,
    )
    return [WindowChat(**dict(row)) for row in rows]


async def policy(connection: Connection) -> Policy:
    row = await connection.fetchrow("SELECT require_approval, sensitive FROM tenant_setting")
    return Policy(**dict(row or {}))


async def end_chats(
    connection: Connection, event_ids: Sequence[str], state: str, run_id: UUID, reason: str | None = None
) -> None:
    """Pending chats become read or dead, by this run."""
    await connection.execute(
        """
        UPDATE chat SET state = $2, run_id = $3, reason = $4, settled_at = now() WHERE event_id = ANY ($1) AND state = 'pending'
        """,
        event_ids,
        state,
        run_id,
        reason,
    )


async def end_run(
    connection: Connection,
    run_id: UUID,
    *,
    state: RunState,
    outcome: RunOutcome,
    reason: str | None,
    extractor: Extractor,
    model: str | None,
    prompt_version: str | None,
    candidates: Sequence[CandidateRecord],
    decisions: Sequence[Decision] = (),
    results: Sequence[DecisionResult] = (),
) -> None:
    await connection.execute(
        """
        UPDATE run SET state = $2, outcome = $3, reason = $4, extractor = $5, model = coalesce($6, model), prompt_version = $7,
          candidates = $8, decisions = $9, results = $10, ended_at = statement_timestamp()
        WHERE id = $1
        """,
        run_id,
        state,
        outcome,
        reason,
        extractor,
        model,
        prompt_version,
        _CANDIDATES.dump_json(candidates).decode(),
        _DECISIONS.dump_json(decisions).decode(),
        _RESULTS.dump_json(list(results)).decode(),
    )


async def clear_run(connection: Connection, run_id: UUID) -> None:
    """Takes the text out of the run and of the chats it read, as retention would later."""
    await connection.execute("SELECT clear_run($1)", run_id)


async def release_batch(
    connection: Connection,
    rules: DueRules,
    workspace: str,
    *,
    wait: timedelta = timedelta(0),
    attempts: int | None = None,
    failed_position: tuple[datetime, int] | None = None,
    applied: bool = False,
) -> None:
    """Ends the lease and counts anew. `attempts` and the position of a window's last chat after a failure; None leaves what is there."""
    values: list[Any] = [workspace, wait, attempts, *(failed_position or (None, None)), applied]
    await connection.execute(
        """
        UPDATE batch SET
          run_id = NULL,
          not_before = CASE WHEN $2 > interval '0' THEN now() + $2 END,
          attempts = coalesce($3, attempts),
          failed_at = CASE WHEN attempts = 0 THEN coalesce($4, failed_at) ELSE failed_at END,
          failed_offset = CASE WHEN attempts = 0 THEN coalesce($5, failed_offset) ELSE failed_offset END,
          lost = CASE WHEN $6 THEN 0 ELSE lost END
        WHERE workspace = $1
        """,
        *values,
    )
    await connection.execute("SELECT settle_batch($1, current_tenant(), current_person(), $2)", rules.row(), workspace)


def _local(moment: datetime, offset_minutes: int | None) -> datetime:
    if offset_minutes is None:
        return moment
    return moment.astimezone(timezone(timedelta(minutes=offset_minutes)))

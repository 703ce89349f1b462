"""What runs did and what waits for them: reads for people, and the two things they may ask for (a run now, another try)."""

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from asyncpg import Record

from services.memory_store.database import Connection
from services.memory_store.runs.schemas import DeadChat, Run
from services.memory_store.runs.waiting import Waiting
from services.memory_store.settings import DueRules

_RUN = """
SELECT id, usr AS "user", workspace, state, outcome, reason, attempt, extractor, model, event_ids,
       candidates, decisions, results, started_at, ended_at
FROM run"""
# Workers report an open breaker with every claim; an older report says nothing about now.
_BREAKER_FRESH = "interval '60 seconds'"

Position = tuple[datetime, UUID]
DeadPosition = tuple[datetime, str, str]


async def runs(
    connection: Connection,
    *,
    workspaces: Sequence[str] | None,
    outcome: str | None,
    after: Position | None,
    limit: int,
) -> list[Run]:
    """Newest first, of whoever the transaction may see; `workspaces` None: of all."""
    rows = await connection.fetch(
        _RUN
        + """
        WHERE ($1::text[] IS NULL OR workspace = ANY($1)) AND ($2::text IS NULL OR outcome = $2)
          AND ($3::timestamptz IS NULL OR (started_at, id) < ($3, $4::uuid))
        ORDER BY started_at DESC, id DESC LIMIT $5
        """,
        workspaces,
        outcome,
        *(after or (None, None)),
        limit,
    )
    return [_run(row) for row in rows]


async def run(connection: Connection, run_id: UUID) -> Run | None:
    row = await connection.fetchrow(_RUN + " WHERE id = $1", run_id)
    return None if row is None else _run(row)


def _run(row: Record) -> Run:
    return Run.model_validate(
        {**row, **{name: json.loads(row[name]) for name in ("candidates", "decisions", "results")}}
    )


async def dead_chats(
    connection: Connection, *, workspaces: Sequence[str] | None, after: DeadPosition | None, limit: int
) -> list[DeadChat]:
    """Newest first."""
    rows = await connection.fetch(
        """
        SELECT event_id, usr AS "user", workspace, run_id, reason, settled_at AS at FROM chat
        WHERE state = 'dead' AND ($1::text[] IS NULL OR workspace = ANY($1))
          AND ($2::timestamptz IS NULL OR (settled_at, usr, event_id) < ($2, $3, $4))
        ORDER BY settled_at DESC, usr DESC, event_id DESC LIMIT $5
        """,
        workspaces,
        *(after or (None, None, None)),
        limit,
    )
    return [DeadChat.model_validate(dict(row)) for row in rows]


async def waiting(connection: Connection, workspace: str, models: Sequence[str]) -> Waiting:
    row = await connection.fetchrow(
        f"""
        SELECT now() AS now, s.personalization AND s.auto_extraction AS learns, NOT coalesce(u.learning, true) AS opted_out,
               coalesce(b.pending, 0) AS pending, b.oldest_staged_at AS oldest_at, b.last_staged_at, b.not_before,
               coalesce(b.run_id IS NOT NULL AND b.claimable_at > now(), false) AS running,
               b.asked_at IS NOT NULL AS asked,
               CASE WHEN b.run_id IS NULL OR b.claimable_at <= now() THEN b.claimable_at END AS due_at,
               (SELECT count(*) FROM chat WHERE state = 'dead' AND workspace = $1 AND prompt IS NOT NULL) AS dead,
               EXISTS (SELECT FROM open_breaker o WHERE o.reported_at > now() - {_BREAKER_FRESH}
                       AND o.model = resolve_model($2, w.chat_model, w.agent_model, s.model)) AS provider_away
        FROM tenant_setting s
        LEFT JOIN user_setting u ON u.usr = (SELECT current_person())
        LEFT JOIN workspace_setting w ON w.workspace = $1
        LEFT JOIN batch b ON b.workspace = $1
        """,  # noqa: S608 (a constant)
        workspace,
        list(models),
    )
    return Waiting(**dict(row or {}))


async def ask_for_run(connection: Connection, workspace: str, rules: DueRules) -> None:
    """Makes what is pending due now, whatever its number, age and last failure."""
    asked = await connection.fetchval(
        "UPDATE batch SET asked_at = now(), not_before = NULL WHERE workspace = $1 AND pending > 0 RETURNING true",
        workspace,
    )
    if asked:
        await _settle(connection, workspace, rules)


async def retry_dead(connection: Connection, run_id: UUID, workspace: str, rules: DueRules) -> bool:
    """Makes the chats that this run gave up pending and due; False where there are none left to read.

    They wait anew from now on, for retention too; and still name the run, so that a repeat finds them waiting and changes nothing.
    """
    await connection.execute("SELECT FROM batch WHERE workspace = $1 FOR UPDATE", workspace)
    status = await connection.execute(
        """
        UPDATE chat SET state = 'pending', reason = NULL, settled_at = NULL, staged_at = now()
        WHERE state = 'dead' AND run_id = $1 AND prompt IS NOT NULL
        """,
        run_id,
    )
    if status == "UPDATE 0":
        waits: bool = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM chat WHERE workspace = $2 AND state = 'pending' AND run_id = $1)",
            run_id,
            workspace,
        )
        return waits
    await connection.execute("UPDATE batch SET asked_at = now(), not_before = NULL WHERE workspace = $1", workspace)
    await _settle(connection, workspace, rules)
    return True


async def lock_person(connection: Connection) -> None:
    await connection.execute("SELECT lock_person()")


async def _settle(connection: Connection, workspace: str, rules: DueRules) -> None:
    await connection.execute("SELECT settle_batch($1, current_tenant(), current_person(), $2)", rules.row(), workspace)

"""Reads of one person's facts, in a transaction that row-level security has bound to them. Writes are in ledger.py."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from services.memory_store.database import Connection
from services.memory_store.facts.schemas import Evidence, Fact, FactVersion

# Both sources have the same columns. A stated date sorts as text among dates cut to its own precision, so no date is computed.
_NOW = """
  SELECT f.id, f.usr, f.workspace, f.content, f.state, f.pending_reason, f.category, f.sensitive, f.origin, f.confidence, f.locked,
         f.version, f.valid_from, f.valid_to, f.superseded_by, f.contests, f.created_at, f.updated_at, f.last_confirmed_at,
         to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS today
  FROM fact f"""
_AS_OF = """
  SELECT f.id, f.usr, v.workspace, v.content, v.state, v.pending_reason, v.category, v.sensitive, f.origin, v.confidence, v.locked,
         v.version, v.valid_from, v.valid_to, v.superseded_by, v.contests, f.created_at, v.known_from AS updated_at,
         CASE WHEN f.last_confirmed_at <= $1 THEN f.last_confirmed_at END AS last_confirmed_at,
         to_char($1 AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS today
  FROM fact_version v JOIN fact f ON f.tenant = v.tenant AND f.usr = v.usr AND f.id = v.fact_id
  WHERE v.known_from <= $1 AND (v.known_to IS NULL OR v.known_to > $1)"""
_SHOWN = """
SELECT s.id, s.usr AS "user", s.workspace, CASE WHEN s.workspace IS NULL THEN 'global' ELSE 'workspace' END AS scope, s.content, s.state,
       s.pending_reason, s.category, s.sensitive, s.origin, s.confidence, s.locked, s.version, s.valid_from, s.valid_to,
       coalesce(s.valid_to < left(s.today, length(s.valid_to)), false) AS past, s.superseded_by, s.contests, s.created_at, s.updated_at,
       s.last_confirmed_at, u.last_used_at, coalesce(u.use_count, 0) AS use_count,
       greatest(s.updated_at, s.last_confirmed_at) AS newest_at
FROM ({source}) s LEFT JOIN fact_use u ON u.fact_id = s.id AND u.usr = s.usr AND u.tenant = (SELECT current_tenant())"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which facts a list shows. `true_from` and `true_to` are days (YYYY-MM-DD): facts true at some time between them."""

    workspace: str | None
    states: Sequence[str]
    as_of: datetime | None = None
    true_from: str | None = None
    true_to: str | None = None


@dataclass(frozen=True, slots=True)
class Chat:
    event_id: str
    workspace: str
    thread: str | None
    prompt: str
    occurred_at: datetime
    recorded_at: datetime


Position = tuple[datetime, int, UUID]
"""Of a fact in a list, newest first: its last change or confirmation, its uses, its id."""


async def page(
    connection: Connection, wanted: Wanted, after: Position | None, limit: int
) -> list[tuple[Position, Fact]]:
    """Global facts and those of the workspace, newest first, at most `limit` after the position."""
    values: list[Any] = [] if wanted.as_of is None else [wanted.as_of]

    def put(value: Any) -> str:
        values.append(value)
        return f"${len(values)}"

    conditions = [
        f"(s.workspace IS NULL OR s.workspace = {put(wanted.workspace)}::text)",
        f"s.state = ANY({put(wanted.states)}::text[])",
    ]
    if wanted.true_from is not None and wanted.true_to is not None:
        to, since = put(wanted.true_to), put(wanted.true_from)
        conditions.append(f"(s.valid_from IS NULL OR s.valid_from <= left({to}::text, length(s.valid_from)))")
        conditions.append(f"(s.valid_to IS NULL OR s.valid_to >= left({since}::text, length(s.valid_to)))")
    if after is not None:
        at, uses, last = (put(part) for part in after)
        conditions.append(
            "(greatest(s.updated_at, s.last_confirmed_at), coalesce(u.use_count, 0), s.id)"
            f" < ({at}::timestamptz, {uses}::bigint, {last}::uuid)"
        )
    query = (
        _SHOWN.format(source=_NOW if wanted.as_of is None else _AS_OF)
        + f" WHERE {' AND '.join(conditions)} ORDER BY newest_at DESC, use_count DESC, id DESC LIMIT {put(limit)}"
    )
    rows = await connection.fetch(query, *values)
    evidence = await _evidence(connection, [row["id"] for row in rows], wanted.as_of)
    return [((row["newest_at"], row["use_count"], row["id"]), _fact(row, evidence)) for row in rows]


async def one(connection: Connection, fact_id: UUID) -> Fact | None:
    row = await connection.fetchrow(_SHOWN.format(source=_NOW) + " WHERE s.id = $1", fact_id)
    return None if row is None else _fact(row, await _evidence(connection, [fact_id], None))


def _fact(row: Any, evidence: dict[UUID, list[Evidence]]) -> Fact:
    return Fact.model_validate({**row, "evidence": evidence[row["id"]]})


async def _evidence(connection: Connection, ids: Iterable[UUID], as_of: datetime | None) -> dict[UUID, list[Evidence]]:
    found: dict[UUID, list[Evidence]] = defaultdict(list)
    rows = await connection.fetch(
        """
        SELECT fact_id, event_id, thread, occurred_at, quote FROM evidence
        WHERE fact_id = ANY($1) AND ($2::timestamptz IS NULL OR created_at <= $2)
        ORDER BY recorded_at, event_id, quote
        """,
        list(ids),
        as_of,
    )
    for row in rows:
        found[row["fact_id"]].append(Evidence.model_validate(dict(row)))
    return found


async def chats(connection: Connection, event_ids: Sequence[str]) -> dict[str, Chat]:
    """Chats of the person that may be cited: those whose text is still there, by event id."""
    rows = await connection.fetch(
        """
        SELECT event_id, workspace, thread, prompt, occurred_at, recorded_at FROM chat
        WHERE event_id = ANY($1) AND prompt IS NOT NULL
        """,
        list(event_ids),
    )
    return {row["event_id"]: Chat(**dict(row)) for row in rows}


async def was_true(connection: Connection, fact_id: UUID) -> tuple[str | None, str | None]:
    """valid_from and valid_to of the last version that was active or pending: what they were before it was put away."""
    row = await connection.fetchrow(
        """
        SELECT valid_from, valid_to FROM fact_version WHERE fact_id = $1 AND state IN ('active', 'pending')
        ORDER BY version DESC LIMIT 1
        """,
        fact_id,
    )
    return (None, None) if row is None else (row["valid_from"], row["valid_to"])


async def content_of(connection: Connection, fact_id: UUID, version: int) -> str | None:
    """None where there is no such version, or its text has left."""
    content: str | None = await connection.fetchval(
        "SELECT content FROM fact_version WHERE fact_id = $1 AND version = $2", fact_id, version
    )
    return content


async def owner(connection: Connection, fact_id: UUID) -> str | None:
    """The user of the tenant's fact; the only question about a fact that is asked before its person is known."""
    found: str | None = await connection.fetchval("SELECT fact_owner($1)", fact_id)
    return found


async def versions(connection: Connection, fact_id: UUID, after: int, limit: int) -> list[FactVersion]:
    """Oldest first."""
    rows = await connection.fetch(
        """
        SELECT version, content, state, actor, reason, known_from, known_to FROM fact_version
        WHERE fact_id = $1 AND version > $2 ORDER BY version LIMIT $3
        """,
        fact_id,
        after,
        limit,
    )
    return [FactVersion.model_validate(dict(row)) for row in rows]

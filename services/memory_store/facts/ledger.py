"""Writes of facts, shared by people's requests and runs: each keeps the row, its versions, the outbox and the audit log in step.

Everything here happens in a transaction of one person that holds their lock (`lock_person`, a statement of its own, before anything is
read or counted). What is allowed is decided before, by rules.py. Times are `statement_timestamp()`: the transaction's own time is from
before the lock, and beliefs must not overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from services.memory_store.database import Connection
from services.memory_store.facts.rules import Origin, PendingReason, Slots, State
from shared.events import ChangeType
from shared.rpc.messages import Category, Confidence
from shared.text.normal import same_fact_key


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes, as the audit log names them: `operator`, `key:<id>`, `user:<user>`, `run:<id>`."""

    actor: str
    run_id: UUID | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A fact under its person's lock. `content` is None once a tombstone's text has left."""

    id: UUID
    workspace: str | None
    content: str | None
    state: State
    pending_reason: PendingReason | None
    category: Category
    sensitive: bool
    origin: Origin
    confidence: Confidence | None
    locked: bool
    version: int
    valid_from: str | None
    valid_to: str | None
    superseded_by: UUID | None
    contests: UUID | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewFact:
    workspace: str | None
    content: str
    origin: Origin
    category: Category = "other"
    sensitive: bool = False
    confidence: Confidence | None = None
    locked: bool = False
    valid_from: str | None = None
    valid_to: str | None = None
    contests: UUID | None = None
    pending_reason: PendingReason | None = None  # None: active


@dataclass(frozen=True, slots=True)
class Source:
    """A chat of the person and their own words in it."""

    event_id: str
    workspace: str
    thread: str | None
    occurred_at: datetime
    recorded_at: datetime
    quote: str


_KEY = "keyed_hash((SELECT t.hash_key FROM tenant t WHERE t.tenant = current_tenant()), {})"
_HELD = (
    "id, workspace, content, state, pending_reason, category, sensitive, origin, confidence, locked, version, valid_from, valid_to,"
    " superseded_by, contests, updated_at"
)
# What belongs to a belief: kept by every version, and what `change` may set.
_BELIEF = (
    "workspace",
    "content",
    "state",
    "pending_reason",
    "category",
    "sensitive",
    "confidence",
    "locked",
    "valid_from",
    "valid_to",
    "superseded_by",
    "contests",
)
_KEPT = ", ".join(_BELIEF)

# The rest of every write, after a CTE `f` that holds the fact as it is now. $1 actor, $2 kind, $3 reason, $4 traceparent, $5 old version.
_RECORDED = f"""
, kept AS (
  INSERT INTO fact_version (tenant, usr, fact_id, version, {_KEPT}, known_from, actor, reason)
  SELECT tenant, usr, id, version, {_KEPT}, statement_timestamp(), $1, $3 FROM f
), announced AS (
  INSERT INTO outbox (tenant, usr, at, type, workspace, fact_id, version, traceparent)
  SELECT tenant, usr, statement_timestamp(), $2, workspace, id, version, $4 FROM f
), audited AS (
  INSERT INTO audit (tenant, usr, at, actor, action, fact_id, from_version, to_version, code)
  SELECT tenant, usr, statement_timestamp(), $1, $2, id, $5::integer, version, $3 FROM f
)
SELECT {_HELD} FROM f"""  # noqa: S608 (constants)


async def lock_person(connection: Connection) -> None:
    await connection.execute("SELECT lock_person()")


async def insert(
    connection: Connection, author: Author, new: NewFact, sources: Sequence[Source] = (), *, reason: str | None = None
) -> Held:
    """A new fact, its first version and its evidence."""
    row = await connection.fetchrow(
        f"""
        WITH f AS (
          INSERT INTO fact (tenant, usr, workspace, content, same_key, state, pending_reason, category, sensitive, origin, confidence,
                            locked, valid_from, valid_to, contests, run_id, created_at, updated_at, last_confirmed_at)
          VALUES (current_tenant(), current_person(), $6, $7, {_KEY.format("$8")}, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                  statement_timestamp(), statement_timestamp(), CASE WHEN $20 THEN statement_timestamp() END)
          RETURNING *
        ){_RECORDED}""",  # noqa: S608
        author.actor,
        "fact.created",
        reason,
        author.traceparent,
        None,
        new.workspace,
        new.content,
        same_fact_key(new.content),
        "active" if new.pending_reason is None else "pending",
        new.pending_reason,
        new.category,
        new.sensitive,
        new.origin,
        new.confidence,
        new.locked,
        new.valid_from,
        new.valid_to,
        new.contests,
        author.run_id,
        bool(sources),
    )
    held = _held(row)
    await insert_sources(connection, author, held, sources)
    return held


async def change(
    connection: Connection, author: Author, fact: Held, kind: ChangeType, *, reason: str | None = None, **belief: Any
) -> Held:
    """The next version of a fact. `belief` are the fields that change, of those that a version keeps."""
    sets = "".join(f", {name} = ${place}" for place, name in enumerate(_checked(belief), 8))
    values = list(belief.values())
    if belief.get("content") is not None:
        values.append(same_fact_key(belief["content"]))
        sets += f", same_key = {_KEY.format(f'${len(values) + 7}')}"
    row = await connection.fetchrow(
        f"""
        WITH closed AS (
          UPDATE fact_version SET known_to = statement_timestamp() WHERE fact_id = $6 AND known_to IS NULL
        ), f AS (
          UPDATE fact SET version = version + 1, updated_at = statement_timestamp(), run_id = $7{sets} WHERE id = $6
          RETURNING *
        ){_RECORDED}""",  # noqa: S608 (names of _BELIEF)
        author.actor,
        kind,
        reason,
        author.traceparent,
        fact.version,
        fact.id,
        author.run_id,
        *values,
    )
    return _held(row)


def _checked(belief: dict[str, Any]) -> dict[str, Any]:
    if unknown := belief.keys() - set(_BELIEF):
        raise TypeError(f"no part of a belief: {sorted(unknown)}")
    return belief


async def link_superseded(connection: Connection, old: Held, new: Held) -> None:
    """Names the successor, which had to wait for the old fact's slot: no change of its own, it belongs to the superseding version."""
    await connection.execute("UPDATE fact SET superseded_by = $2 WHERE id = $1", old.id, new.id)
    await connection.execute(
        "UPDATE fact_version SET superseded_by = $3 WHERE fact_id = $1 AND version = $2", old.id, old.version, new.id
    )


async def add_evidence(connection: Connection, author: Author, fact: Held, sources: Sequence[Source]) -> None:
    """The fact was said again: no new version, since nothing else is believed."""
    await connection.execute("UPDATE fact SET last_confirmed_at = statement_timestamp() WHERE id = $1", fact.id)
    await insert_sources(connection, author, fact, sources)


async def insert_sources(connection: Connection, author: Author, fact: Held, sources: Sequence[Source]) -> None:
    """Adds where a version came from; what is there already stays once."""
    if not sources:
        return
    await connection.execute(
        """
        INSERT INTO evidence (tenant, usr, fact_id, event_id, workspace, thread, occurred_at, recorded_at, quote, version, run_id,
                              created_at)
        SELECT current_tenant(), current_person(), $1, s.event_id, s.workspace, s.thread, s.occurred_at, s.recorded_at, s.quote, $2, $3,
               statement_timestamp()
        FROM unnest($4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[], $9::text[])
          AS s (event_id, workspace, thread, occurred_at, recorded_at, quote)
        ON CONFLICT DO NOTHING
        """,
        fact.id,
        fact.version,
        author.run_id,
        [source.event_id for source in sources],
        [source.workspace for source in sources],
        [source.thread for source in sources],
        [source.occurred_at for source in sources],
        [source.recorded_at for source in sources],
        [source.quote for source in sources],
    )


async def held(connection: Connection, fact_id: UUID) -> Held | None:
    row = await connection.fetchrow(f"SELECT {_HELD} FROM fact WHERE id = $1 FOR UPDATE", fact_id)  # noqa: S608
    return None if row is None else _held(row)


async def same(connection: Connection, workspace: str | None, content: str) -> Held | None:
    """The active or pending fact of this scope that says the same already."""
    row = await connection.fetchrow(
        f"""
        SELECT {_HELD} FROM fact
        WHERE same_key = {_KEY.format("$1")} AND workspace IS NOT DISTINCT FROM $2 AND state IN ('active', 'pending')
        """,  # noqa: S608
        same_fact_key(content),
        workspace,
    )
    return None if row is None else _held(row)


async def tombstone(connection: Connection, workspace: str | None, content: str) -> Held | None:
    """The deleted or rejected fact that keeps this content away: the newest of the same content, globally or in the scope.

    Whatever a person brought back since is newer and lifts it.
    """
    row = await connection.fetchrow(
        f"""
        SELECT {_HELD} FROM fact
        WHERE same_key = {_KEY.format("$1")} AND (workspace IS NULL OR $2::text IS NULL OR workspace = $2)
        ORDER BY updated_at DESC LIMIT 1
        """,  # noqa: S608
        same_fact_key(content),
        workspace,
    )
    if row is None or row["state"] not in ("deleted", "rejected"):
        return None
    return _held(row)


async def slots(connection: Connection, workspace: str | None) -> Slots:
    """How full a scope is (None: the global one). A fact that is past holds no slot."""
    row = await connection.fetchrow(
        """
        SELECT s.used, s.waiting, CASE WHEN $1::text IS NULL THEN t.max_global_facts ELSE t.max_workspace_facts END AS maximum
        FROM tenant_setting t CROSS JOIN (
          SELECT
            count(*) FILTER (WHERE state = 'active'
              AND (valid_to_day IS NULL OR valid_to_day >= (statement_timestamp() AT TIME ZONE 'UTC')::date)) AS used,
            count(*) FILTER (WHERE pending_reason = 'limit') AS waiting
          FROM fact WHERE state IN ('active', 'pending') AND workspace IS NOT DISTINCT FROM $1
        ) s
        """,
        workspace,
    )
    return Slots(**dict(row or {}))


async def oldest_waiting(connection: Connection, workspace: str | None, count: int) -> list[Held]:
    """The facts that wait for a slot of this scope, the longest first."""
    rows = await connection.fetch(
        f"""
        SELECT {_HELD} FROM fact
        WHERE state = 'pending' AND pending_reason = 'limit' AND workspace IS NOT DISTINCT FROM $1
        ORDER BY created_at, id LIMIT $2
        """,  # noqa: S608
        workspace,
        count,
    )
    return [_held(row) for row in rows]


async def contesting(connection: Connection, fact_id: UUID) -> list[Held]:
    """Pending facts that contest this one."""
    rows = await connection.fetch(
        f"SELECT {_HELD} FROM fact WHERE contests = $1 AND state = 'pending' ORDER BY created_at, id",  # noqa: S608
        fact_id,
    )
    return [_held(row) for row in rows]


async def take_back_chats(connection: Connection, author: Author, event_ids: Sequence[str]) -> list[Held]:
    """Evidence of these chats leaves; an extracted, unlocked fact that has none left is retired. Answers the retired."""
    rows = await connection.fetch(
        f"""
        WITH gone AS (DELETE FROM evidence WHERE event_id = ANY ($1) RETURNING fact_id)
        SELECT {_HELD} FROM fact
        WHERE id IN (SELECT fact_id FROM gone) AND state IN ('active', 'pending') AND origin = 'extraction' AND NOT locked
          AND NOT EXISTS (SELECT FROM evidence e WHERE e.fact_id = fact.id AND e.event_id <> ALL ($1))
        ORDER BY id
        """,  # noqa: S608
        event_ids,
    )
    return [
        await change(
            connection, author, _held(row), "fact.retired", reason="chat_deleted", state="retired", pending_reason=None
        )
        for row in rows
    ]


def _held(row: Any) -> Held:
    return Held(**dict(row))

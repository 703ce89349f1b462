"""Reads and writes that prompts cause, in the database."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from services.memory_store.database import Connection
from shared.rpc.messages import ListFacts


async def injectable(connection: Connection, ask: ListFacts) -> list[asyncpg.Record]:
    """Rows of the function `injectable_facts`, which binds itself to the person: no transaction is needed around it."""
    return await connection.fetch(
        """
        SELECT heading, withheld, fact_id, version, content, scope, created_at, newest_at, use_count, vector
        FROM injectable_facts($1, $2, $3, $4, $5)
        """,
        ask.tenant,
        ask.user,
        ask.workspace,
        ask.encoder,
        ask.vectors and ask.encoder is not None,
    )


async def put_vectors(
    connection: Connection, encoder: str, fact_ids: Sequence[UUID], versions: Sequence[int], vectors: Sequence[bytes]
) -> None:
    """Those of current versions; the rest is ignored."""
    await connection.execute(
        """
        INSERT INTO fact_vector (tenant, usr, fact_id, encoder, version, vector)
        SELECT DISTINCT ON (f.id) f.tenant, f.usr, f.id, $1, f.version, v.vector
        FROM unnest($2::uuid[], $3::integer[], $4::bytea[]) AS v (fact_id, version, vector)
        JOIN fact f ON f.id = v.fact_id AND f.version = v.version
        ORDER BY f.id
        ON CONFLICT (tenant, usr, fact_id, encoder) DO UPDATE SET version = excluded.version, vector = excluded.vector
        """,
        encoder,
        fact_ids,
        versions,
        vectors,
    )


async def record_use(connection: Connection, fact_ids: Sequence[UUID], at: datetime) -> None:
    """An id that stands several times is as many uses: those of a second travel in one call."""
    await connection.execute(
        """
        INSERT INTO fact_use AS u (tenant, usr, fact_id, last_used_at, use_count)
        SELECT f.tenant, f.usr, f.id, $2, used.times
        FROM fact f JOIN (SELECT id, count(*) AS times FROM unnest($1::uuid[]) id GROUP BY id) used USING (id)
        ORDER BY f.id
        ON CONFLICT (tenant, usr, fact_id) DO UPDATE
          SET last_used_at = greatest(u.last_used_at, excluded.last_used_at), use_count = u.use_count + excluded.use_count
        """,
        fact_ids,
        at,
    )

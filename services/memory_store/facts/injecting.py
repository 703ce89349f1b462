"""ListFacts, PutVectors and RecordUse: what prompts need of facts, and what they leave behind."""

import binascii
from base64 import b64decode, b64encode
from dataclasses import dataclass

from services.memory_store.database import Connection, Database
from shared.rpc.errors import RpcError
from shared.rpc.messages import (
    Done,
    FactVector,
    InjectableFact,
    ListFacts,
    ListFactsReply,
    PutVectors,
    RecordUse,
)


@dataclass(frozen=True, slots=True)
class Injecting:
    database: Database

    async def list_facts(self, ask: ListFacts) -> ListFactsReply:
        """Raises RpcError not_found for a tenant that is not there."""
        async with self.database.statement() as connection:
            rows = await connection.fetch(
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
        if not rows:
            raise RpcError("not_found", "no such tenant")
        facts = [
            InjectableFact(
                id=row["fact_id"],
                version=row["version"],
                content=row["content"],
                scope=row["scope"],
                created_at=row["created_at"],
                newest_at=row["newest_at"],
                use_count=row["use_count"],
                vector=None if row["vector"] is None else b64encode(row["vector"]).decode(),
            )
            for row in rows
            if row["fact_id"] is not None
        ]
        return ListFactsReply(facts=facts, withheld=rows[0]["withheld"], heading=rows[0]["heading"])

    async def put_vectors(self, ask: PutVectors) -> Done:
        """A vector of a version that is no longer current, or of a fact that is gone, is ignored. Raises RpcError invalid_argument."""
        vectors = [_bytes(vector) for vector in ask.vectors]

        async def put() -> None:
            async with self.database.person(ask.tenant, ask.user) as connection:
                await _put(connection, ask, vectors)

        await self.database.retry(put)
        return Done()

    async def record_use(self, ask: RecordUse) -> Done:
        """Counts a use for each time an id is there, nothing for a fact that is gone."""
        async with self.database.person(ask.tenant, ask.user) as connection:
            await connection.execute(
                """
                INSERT INTO fact_use AS u (tenant, usr, fact_id, last_used_at, use_count)
                SELECT f.tenant, f.usr, f.id, $2, used.times
                FROM fact f JOIN (SELECT id, count(*)::integer AS times FROM unnest($1::uuid[]) id GROUP BY id) used USING (id)
                ORDER BY f.id
                ON CONFLICT (tenant, usr, fact_id) DO UPDATE
                  SET last_used_at = greatest(u.last_used_at, excluded.last_used_at),
                      use_count = u.use_count + excluded.use_count
                """,
                ask.fact_ids,
                ask.at,
            )
        return Done()


async def _put(connection: Connection, ask: PutVectors, vectors: list[bytes]) -> None:
    await connection.execute(
        """
        INSERT INTO fact_vector (tenant, usr, fact_id, encoder, version, vector)
        SELECT DISTINCT ON (f.id) f.tenant, f.usr, f.id, $1, f.version, v.vector
        FROM unnest($2::uuid[], $3::integer[], $4::bytea[]) AS v (fact_id, version, vector)
        JOIN fact f ON f.id = v.fact_id AND f.version = v.version
        ORDER BY f.id
        ON CONFLICT (tenant, usr, fact_id, encoder) DO UPDATE SET version = excluded.version, vector = excluded.vector
        """,
        ask.encoder,
        [vector.fact_id for vector in ask.vectors],
        [min(max(vector.version, 0), 2**31 - 1) for vector in ask.vectors],
        vectors,
    )


def _bytes(vector: FactVector) -> bytes:
    try:
        return b64decode(vector.vector, validate=True)
    except (binascii.Error, ValueError):
        raise RpcError("invalid_argument", "vector") from None

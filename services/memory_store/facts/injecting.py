"""ListFacts, PutVectors and RecordUse: what prompts need of facts, and what they leave behind."""

import binascii
from base64 import b64decode, b64encode
from dataclasses import dataclass

from services.memory_store.database import Database
from services.memory_store.facts import injecting_repository as repository
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
            rows = await repository.injectable(connection, ask)
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

        versions = [min(max(vector.version, 0), 2**31 - 1) for vector in ask.vectors]
        fact_ids = [vector.fact_id for vector in ask.vectors]

        async def put() -> None:
            async with self.database.person(ask.tenant, ask.user) as connection:
                await repository.put_vectors(connection, ask.encoder, fact_ids, versions, vectors)

        await self.database.retry(put)
        return Done()

    async def record_use(self, ask: RecordUse) -> Done:
        """Counts a use for each time an id is there, nothing for a fact that is gone."""
        async with self.database.person(ask.tenant, ask.user) as connection:
            await repository.record_use(connection, ask.fact_ids, ask.at)
        return Done()


def _bytes(vector: FactVector) -> bytes:
    try:
        return b64decode(vector.vector, validate=True)
    except (binascii.Error, ValueError):
        raise RpcError("invalid_argument", "vector") from None

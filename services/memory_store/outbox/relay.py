"""The outbox on its way to `memory.changes`: read the oldest, publish them, delete those; at least once, in order per person.

One relay works at a time, however many replicas run, held by a lock of its transaction; whoever gets it next begins with what was
published but not deleted. The transaction holds no row and no snapshot while it waits for Kafka.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from services.memory_store.database import Database
from services.memory_store.outbox import repository
from services.memory_store.outbox.repository import Change
from shared.backoff import Backoff
from shared.events import MemoryChange
from shared.ids import change_key
from shared.kafka import Producer, PublishFailed, Record
from shared.loops import Loops
from shared.rpc.errors import RpcError

log = structlog.get_logger()

AT_ONCE = 500
# Below the database's idle_in_transaction_session_timeout (30 s).
PUBLISH_TIMEOUT_S = 10.0
LOOP = "outbox"


@dataclass(frozen=True, slots=True)
class Relay:
    database: Database
    producer: Producer
    topic: str
    loops: Loops
    pause_s: float

    async def run(self) -> None:
        """For ever; what is away is waited for in growing pauses."""
        self.loops.register(LOOP, bound_s=30)
        backoff = Backoff(0.2, 5.0)
        stuck = False
        while True:
            self.loops.beat(LOOP)
            try:
                relayed = await self.relay()
            except (PublishFailed, RpcError) as error:
                if not stuck:
                    log.warning("outbox_waits", error=type(error).__name__)
                stuck = True
                await asyncio.sleep(backoff.next_pause())
                continue
            if stuck:
                log.info("outbox_relays_again")
            stuck = False
            backoff.reset()
            if relayed < AT_ONCE:
                await asyncio.sleep(self.pause_s)

    async def relay(self) -> int:
        """Publishes the oldest changes; answers how many. Raises PublishFailed, RpcError unavailable; then they stay."""
        async with self.database.anonymous(pool="queue") as connection:
            changes = await repository.take(connection, AT_ONCE)
            if changes:
                await self.producer.publish(self.topic, _records(changes), timeout=PUBLISH_TIMEOUT_S)
                await repository.drop(connection, [change.id for change in changes])
        return len(changes)


def _records(changes: Sequence[Change]) -> list[Record]:
    return [
        Record(
            key=change_key(change.tenant, change.usr),
            value=MemoryChange(
                change_id=str(change.change_id),
                type=change.type,
                tenant=change.tenant,
                user=change.usr,
                workspace=change.workspace,
                fact_id=None if change.fact_id is None else str(change.fact_id),
                version=change.version,
                at=change.at,
            )
            .model_dump_json()
            .encode(),
            headers=() if change.traceparent is None else (("traceparent", change.traceparent.encode()),),
        )
        for change in changes
    ]

"""Keeping a run's lease while it works."""

import asyncio
from uuid import UUID

from shared.backoff import jittered
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.rpc.messages import RenewLease


async def keep_lease(store: MemoryStoreClient, run_id: UUID, lease_ms: int) -> None:
    """Renews every third of the lease; returns once another run has taken the batch.

    A store that is away does not end the run: the fence decides at the end, not the clock.
    """
    pause = third = lease_ms / 3000
    while True:
        await asyncio.sleep(pause)
        try:
            await store.renew_lease(RenewLease(run_id=run_id, lease_ms=lease_ms), timeout=max(1.0, third))
            pause = third
        except RpcError as error:
            if error.code in ("failed_precondition", "not_found"):
                return
            pause = min(third, jittered(1.0))

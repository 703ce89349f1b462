"""StageChats for the records of a poll: retried while memory-store is away, split where it refuses."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from shared.backoff import Backoff
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.rpc.messages import StageChats, StageRecord, Verdict
from shared.telemetry.metrics import STAGER_RETRY_WAIT

log = structlog.get_logger()

CALL_TIMEOUT_S = 30.0
MAX_PAUSE_S = 10.0
# Well below the 64 MiB that memory-store takes; a poll of ordinary chats is a megabyte.
MAX_CALL_BYTES = 16 * 1024 * 1024
# The request itself is at fault: the same one will never pass.
_REFUSED = {"invalid_argument": "invalid", "out_of_range": "invalid", "resource_exhausted": "too_large"}


class Staging:
    """`moved` is called before every try, so that a wait for memory-store counts as progress."""

    def __init__(self, store: MemoryStoreClient, moved: Callable[[], None]) -> None:
        self._store = store
        self._moved = moved

    async def stage(self, records: Sequence[StageRecord], sizes: Sequence[int]) -> list[Verdict]:
        """One verdict per record, in order. `sizes` are the records' bytes. Returns only once all are decided."""
        verdicts: list[Verdict] = []
        start = used = 0
        for at, size in enumerate(sizes):
            if used + size > MAX_CALL_BYTES and at > start:
                verdicts += await self._decide(records[start:at])
                start, used = at, 0
            used += size
        return verdicts + await self._decide(records[start:])

    async def _decide(self, records: Sequence[StageRecord]) -> list[Verdict]:
        if not records:
            return []
        try:
            return await self._patiently(StageChats.model_construct(records=list(records)))
        except RpcError as refusal:
            if len(records) == 1:
                return [Verdict(status="rejected", reason=_REFUSED[refusal.code])]
        half = len(records) // 2
        return await self._decide(records[:half]) + await self._decide(records[half:])

    async def _patiently(self, request: StageChats) -> list[Verdict]:
        """Raises RpcError only for a refusal; anything else is waited out in growing pauses, however long it takes."""
        pauses = Backoff(0.1, MAX_PAUSE_S)
        failed: str | None = None
        while True:
            self._moved()
            try:
                verdicts = (await self._store.stage_chats(request, timeout=CALL_TIMEOUT_S)).verdicts
                if len(verdicts) != len(request.records):
                    raise RpcError("internal")
            except RpcError as error:
                if error.code in _REFUSED:
                    raise
                if error.code != failed:
                    log.warning("staging_waits", code=error.code)
                    failed = error.code
            else:
                if failed is not None:
                    log.info("staging_goes_on")
                return verdicts
            pause = pauses.next_pause()
            STAGER_RETRY_WAIT.inc(pause)
            await asyncio.sleep(pause)

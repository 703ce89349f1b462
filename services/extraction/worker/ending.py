"""Telling the store how a run ended, until it is known that the store knows."""

import asyncio

import structlog

from shared.backoff import Backoff
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.rpc.messages import CompleteRun, FailRun, RunEnd

log = structlog.get_logger()

# Nothing is known of the outcome, or nothing happened: the call is repeated, which is safe.
_REPEAT = frozenset(
    {
        "unavailable",
        "deadline_exceeded",
        "resource_exhausted",
        "aborted",
        "canceled",
        "unauthenticated",
        "permission_denied",
    }
)
# What the store itself fails at is tried this often, for some six seconds; then the try fails, so that a window that it cannot
# apply ends in due course.
_MAX_REFUSALS = 6


async def end_run(store: MemoryStoreClient, request: CompleteRun | FailRun) -> RunEnd | None:
    """The run's end, or None where another run has taken the batch. Waits for a store that is away as long as it takes."""
    pauses = Backoff(0.2, 10.0)
    refusals = 0
    while True:
        try:
            if isinstance(request, CompleteRun):
                end = await store.complete_run(request)
            else:
                end = await store.fail_run(request)
        except RpcError as error:
            if error.code in ("failed_precondition", "not_found"):
                log.warning("run_superseded")
                return None
            if error.code not in _REPEAT:
                refusals += 1
                log.error("run_end_refused", code=error.code)
                if refusals >= _MAX_REFUSALS or error.code == "invalid_argument":
                    if isinstance(request, FailRun):
                        return None
                    request, refusals = _refused(request), 0
        else:
            return end
        await asyncio.sleep(pauses.next_pause())


def _refused(request: CompleteRun) -> FailRun:
    return FailRun(
        run_id=request.run_id,
        outcome="unreadable",
        reason="refused_by_store",
        extractor=request.extractor,
        model=request.model,
        prompt_version=request.prompt_version,
    )

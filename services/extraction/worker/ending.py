"""Telling the store how a run ended, until it is known that the store knows."""

import asyncio
import re

import structlog

from shared.backoff import Backoff
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.rpc.messages import CompleteRun, FailRun, RunEnd
from shared.telemetry.metrics import CANDIDATES, RUNS, STALE_FENCES

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
# What the store itself fails at is tried this often; then the try fails, so that a window it cannot apply ends in due course.
_MAX_REFUSALS = 3
_CODE = re.compile(r"[a-z_]{1,40}")


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
                STALE_FENCES.inc()
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
            _count(request, end)
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


def _count(request: CompleteRun | FailRun, end: RunEnd) -> None:
    RUNS.labels(end.outcome, request.extractor).inc()
    for record in request.candidates:
        if record.dropped is not None:
            CANDIDATES.labels("dropped", record.dropped).inc()
    for result in end.results:
        # A skip's reason is a model's sentence; the others are codes of the store.
        coded = result.result != "skipped" and result.reason and _CODE.fullmatch(result.reason)
        CANDIDATES.labels(result.result, result.reason if coded else "").inc()

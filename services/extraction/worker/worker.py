"""The worker: claims due batches and turns them into facts, several at once, one loop of claims for all."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from services.extraction.models.faults import TryFailed
from services.extraction.models.gate import Gate, Turn
from services.extraction.settings import ExtractionSettings
from services.extraction.worker.ending import end_run
from services.extraction.worker.extract import Extraction
from services.extraction.worker.lease import keep_lease
from shared.backoff import Backoff
from shared.loops import Loops
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import RpcError
from shared.rpc.messages import ClaimedRun, ClaimRun, CompleteRun, FailRun, RenewLease
from shared.telemetry.metrics import CANDIDATES
from shared.telemetry.tracing import link_to, span

if TYPE_CHECKING:
    from services.extraction.models.client import ModelClient

log = structlog.get_logger()

LOOP = "worker"
# The longest silence of the loop: one claim with its deadline, or one wait for a free slot.
LOOP_BOUND_S = 30.0
_SLOT_WAIT_S = 5.0
# Of the grace at SIGTERM, what is kept to tell the store which runs are released.
RELEASE_S = 5.0
# A probe's batch stands back until half the pause is over, so that the next probe meets another batch if there is one.
_PROBE_STANDS_BACK = 0.5


def new_run_id() -> UUID:
    """A UUIDv7 (RFC 9562): ids in the order of their making keep the index of runs compact."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    return UUID(int=value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62)


class Worker:
    def __init__(
        self,
        settings: ExtractionSettings,
        store: MemoryStoreClient,
        models: "Mapping[str, ModelClient]",
        loops: Loops,
        stop: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._store = store
        self._models = models
        self._loops = loops
        self._stop = stop
        self._release = asyncio.Event()
        self._name = settings.instance_id or f"{socket.gethostname()}:{os.getpid()}"
        self._free = settings.worker_concurrency
        self._freed = asyncio.Event()
        self._runs: set[asyncio.Task[None]] = set()
        self._run_id = new_run_id()
        self.not_ready: str | None = "starting"

    @property
    def _gates(self) -> list[Gate]:
        return [model.gate for model in self._models.values()]

    async def run(self) -> None:
        """Works until `stop` is set; then lets its runs end within the grace, and releases those that do not."""
        self._loops.register(LOOP, bound_s=LOOP_BOUND_S)
        pauses = Backoff(self._settings.poll_interval_ms / 1000, 10.0)
        while not self._stop.is_set():
            self._loops.beat(LOOP)
            if self._free <= 0:
                self._freed.clear()
                await self._wait(self._freed, _SLOT_WAIT_S)
                continue
            try:
                claimed = await self._claim()
            except RpcError as error:
                if error.code == "failed_precondition":
                    # The run was claimed, its answer lost, and its lease has run out meanwhile.
                    self._run_id = new_run_id()
                    continue
                if self.not_ready != "memory_store":
                    log.warning("claim_failed", code=error.code)
                self.not_ready = "memory_store"
                await self._wait(self._stop, pauses.next_pause())
                continue
            self.not_ready = None
            pauses.reset()
            if not claimed:
                await self._wait(self._stop, self._settings.poll_interval_ms / 1000)
        self._loops.unregister(LOOP)
        await self._drain()

    async def _claim(self) -> bool:
        """Takes a run on, if one is due. Raises RpcError."""
        admitted = [gate for gate in self._gates if gate.admits()]
        probed = next((gate for gate in self._gates if gate.start_probe_if_due()), None)
        try:
            reply = await self._store.claim_run(
                ClaimRun(
                    # Kept until an answer comes: a claim whose answer was lost is asked for again, not left to its lease.
                    run_id=self._run_id,
                    worker=self._name,
                    lease_ms=self._settings.lease_ms,
                    without_models=[gate.name for gate in self._gates if gate not in admitted and gate is not probed],
                    only_model=probed.name if probed else None,
                )
            )
        except RpcError:
            if probed:
                probed.no_probe()
            raise
        self._run_id = new_run_id()
        if probed and (reply.run is None or reply.run.model != probed.name):
            probed.no_probe()
            probed = None
        elif reply.run is None:
            for gate in admitted:
                gate.nobody_else()
        if reply.run is None:
            return False
        self._start(reply.run, probe=probed is not None)
        return True

    def _start(self, run: ClaimedRun, *, probe: bool) -> None:
        model = self._models.get(run.model) if run.model else None
        gate = model.gate if model else None
        self._free -= 1
        if gate:
            gate.asking += 1
        task = asyncio.create_task(self._serve(run, probe=probe), name=f"run {run.run_id}")
        self._runs.add(task)

        def ended(_: "asyncio.Task[None]") -> None:
            self._runs.discard(task)
            self._free += 1
            self._freed.set()
            if gate:
                gate.asking -= 1
                if probe:
                    gate.no_probe()

        task.add_done_callback(ended)

    async def _serve(self, run: ClaimedRun, *, probe: bool) -> None:
        structlog.contextvars.bind_contextvars(run_id=str(run.run_id))
        links = [link for chat in run.chats for link in link_to(chat.traceparent)]
        with span("run", links=links) as current:
            current.set_attribute("keepsake.run_id", str(run.run_id))
            keeper = asyncio.create_task(keep_lease(self._store, run.run_id, self._settings.lease_ms))
            try:
                request = await self._work(run, keeper, probe=probe)
                end = await end_run(self._store, request) if request else None
            finally:
                keeper.cancel()
            if end is not None:
                log.info("run_ended", state=end.state, outcome=end.outcome, chats=len(run.chats), attempt=run.attempt)

    async def _work(
        self, run: ClaimedRun, keeper: "asyncio.Task[None]", *, probe: bool
    ) -> CompleteRun | FailRun | None:
        """What to tell the store, or None where the batch was lost meanwhile."""
        extraction = Extraction(run, self._settings.max_candidates)
        turn = Turn((run.tenant, run.user, run.workspace), probe=probe, aside=self._aside)
        work = asyncio.create_task(extraction.work(self._models, turn, partial(self._shorten, run.run_id)))
        release = asyncio.create_task(self._release.wait())
        await asyncio.wait({work, keeper, release}, return_when=asyncio.FIRST_COMPLETED)
        release.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
            if keeper.done():
                log.warning("lease_lost")
                return None
            return extraction.failure(TryFailed("released", "shutdown"))
        error = work.exception()
        for record in extraction.candidates:
            if record.dropped:
                CANDIDATES.labels("dropped", record.dropped).inc()
        if error is None:
            return extraction.completion()
        if not isinstance(error, TryFailed):
            # Ours to mend; until then it counts against this window and not against its lease.
            log.error("run_crashed", exc_info=error)
            return extraction.failure(TryFailed("model_failed", "internal"))
        log.info("try_failed", outcome=error.outcome, reason=error.reason)
        return extraction.failure(error, retry_after_ms=self._stand_back_ms(error, probe=probe))

    async def _shorten(self, run_id: UUID, last: str) -> None:
        """Raises TryFailed: what the store does not know of must not be read."""
        try:
            await self._store.renew_lease(RenewLease(run_id=run_id, lease_ms=self._settings.lease_ms, last=last))
        except RpcError as error:
            raise TryFailed("released", error.code) from None

    def _stand_back_ms(self, failed: TryFailed, *, probe: bool) -> int:
        if failed.reason == "unknown_model":
            return self._settings.breaker_probe_ms
        return int(self._settings.breaker_probe_ms * _PROBE_STANDS_BACK) if probe else 0

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Others may use the slot while a run only waits for what becomes of it."""
        self._free += 1
        self._freed.set()
        try:
            yield
        finally:
            self._free -= 1

    async def _drain(self) -> None:
        if not self._runs:
            return
        log.info("draining", runs=len(self._runs))
        for gate in self._gates:
            gate.give_up()
        grace_s = max(0.0, self._settings.shutdown_grace_s - RELEASE_S)
        await asyncio.wait(self._runs, timeout=grace_s)
        self._release.set()
        if self._runs:
            await asyncio.wait(self._runs, timeout=RELEASE_S)
        for task in self._runs:
            task.cancel()

    @staticmethod
    async def _wait(event: asyncio.Event, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

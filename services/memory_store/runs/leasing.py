"""ClaimRun, RenewLease and FailRun: who may work on a batch, and what becomes of it when a try does not succeed.

A run id is the lease and the fence: a batch belongs to the run that stands in its row, whatever the clock says. Tenant and user of an
act come from the run, never from the request.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from services.memory_store.database import Connection, Database
from services.memory_store.runs import lease_repository as repository
from services.memory_store.runs.lease_repository import Owner
from services.memory_store.settings import DueRules
from shared.backoff import jittered
from shared.rpc.errors import RpcError
from shared.rpc.messages import (
    ClaimedRun,
    ClaimRun,
    ClaimRunReply,
    FailRun,
    FreeSlots,
    RenewLease,
    RenewLeaseReply,
    RunEnd,
    RunOutcome,
    RunState,
)
from shared.telemetry.metrics import LEASES_LOST, RUN_SECONDS, RUNS, STALE_FENCES

# These end a try that never had its chance: nothing is counted against the chats.
_BURN_NOTHING = frozenset({"released", "model_unsupported"})


@dataclass(frozen=True, slots=True)
class RetryRules:
    """`max_lost`: runs lost with their worker, `max_attempts`: failed tries, until a window's chats are given up."""

    max_attempts: int
    max_lost: int
    base: timedelta
    longest: timedelta

    def wait(self, attempts: int) -> timedelta:
        """After so many failed tries; each doubles it."""
        seconds = min(self.base.total_seconds() * 2.0 ** (attempts - 1), self.longest.total_seconds())
        return timedelta(seconds=jittered(seconds))


@dataclass(frozen=True, slots=True)
class Leasing:
    """`models`: names of the operator's entries, the default first. `keep_text` as in Completing."""

    database: Database
    rules: DueRules
    retries: RetryRules
    models: tuple[str, ...]
    keep_text: bool = True

    async def claim(self, ask: ClaimRun) -> ClaimRunReply:
        """Raises RpcError failed_precondition for the id of a run that is over."""
        return await self.database.retry(lambda: self._claim(ask))

    async def _claim(self, ask: ClaimRun) -> ClaimRunReply:
        async with self.database.anonymous(pool="queue") as connection:
            if ask.without_models:
                await repository.note_open_breakers(connection, ask.without_models)
            claimed = await repository.claim(
                connection,
                self.rules,
                ask.run_id,
                worker=ask.worker,
                lease=timedelta(milliseconds=ask.lease_ms),
                models=self.models,
                without=ask.without_models,
                only=ask.only_model,
                max_lost=self.retries.max_lost,
            )
            if claimed.verdict == "ended":
                raise stale()
            run = None
            if claimed.verdict == "claimed":
                around = await repository.surroundings(connection, claimed.workspace)
                run = ClaimedRun(
                    run_id=ask.run_id,
                    tenant=claimed.tenant,
                    user=claimed.usr,
                    workspace=claimed.workspace,
                    attempt=claimed.attempt,
                    lease_expires_at=claimed.lease_expires_at,
                    model=claimed.model,
                    chats=await repository.claimed_chats(connection, claimed.event_ids),
                    facts=await repository.known_facts(connection, claimed.workspace),
                    free=FreeSlots(workspace=around.free_workspace, global_=around.free_global),
                    zone=around.zone,
                    heading=around.heading,
                )
        LEASES_LOST.inc(claimed.lost_runs)
        RUNS.labels("worker_lost", "").inc(claimed.lost_runs)
        return ClaimRunReply(run=run)

    async def renew(self, ask: RenewLease) -> RenewLeaseReply:
        """Raises RpcError failed_precondition where the run holds its batch no longer."""
        async with run_transaction(self.database, ask.run_id) as (connection, owner):
            end = await repository.renew(connection, ask.run_id, owner.workspace, timedelta(milliseconds=ask.lease_ms))
            if end is None:
                raise stale()
            if ask.last is not None:
                await repository.shorten_window(connection, ask.run_id, owner.workspace, ask.last)
        return RenewLeaseReply(lease_expires_at=end)

    async def fail(self, ask: FailRun) -> RunEnd:
        """Raises RpcError failed_precondition where the run holds its batch no longer; a run that ended answers how."""
        return await self.database.retry(lambda: self._fail(ask))

    async def _fail(self, ask: FailRun) -> RunEnd:
        async with run_transaction(self.database, ask.run_id) as (connection, owner):
            batch = await repository.fenced_batch(connection, ask.run_id, owner.workspace)
            run = await repository.run(connection, ask.run_id)
            if batch is None:
                if run.outcome is None or run.state == "lost":
                    raise stale()
                return RunEnd(state=run.state, outcome=run.outcome, results=run.results)
            wait = timedelta(milliseconds=ask.retry_after_ms)
            outcome: RunOutcome = ask.outcome
            if ask.outcome in _BURN_NOTHING:
                await repository.release_batch(connection, self.rules, owner.workspace, wait=wait)
            elif batch.attempts + 1 >= self.retries.max_attempts:
                outcome = "dead"
                await self._give_up(connection, ask, owner, run.event_ids)
            else:
                chats = await repository.window(connection, run.event_ids)
                await repository.release_batch(
                    connection,
                    self.rules,
                    owner.workspace,
                    wait=max(wait, self.retries.wait(batch.attempts + 1)),
                    attempts=batch.attempts + 1,
                    failed_position=(chats[-1].recorded_at, chats[-1].src_offset) if chats else None,
                )
            state: RunState = "released" if ask.outcome in _BURN_NOTHING else "failed"
            await repository.end_run(
                connection,
                ask.run_id,
                state=state,
                outcome=outcome,
                reason=ask.outcome if outcome == "dead" else (ask.reason or None),
                extractor=ask.extractor,
                model=ask.model,
                prompt_version=ask.prompt_version,
                candidates=ask.candidates,
            )
            if not self.keep_text:
                await repository.clear_run(connection, ask.run_id)
        observe_end(outcome, ask.extractor, run.started_at)
        return RunEnd(state=state, outcome=outcome)

    async def _give_up(self, connection: Connection, ask: FailRun, owner: Owner, event_ids: list[str]) -> None:
        """The window's chats are dead letters; what comes after them starts with a full window and all its tries.

        The window has shrunk to one chat by then, unless KEEPSAKE_MAX_ATTEMPTS is small.
        """
        await repository.end_chats(connection, event_ids, "dead", ask.run_id, ask.outcome)
        await repository.release_batch(connection, self.rules, owner.workspace, attempts=0)


@asynccontextmanager
async def run_transaction(database: Database, run_id: UUID) -> AsyncIterator[tuple[Connection, Owner]]:
    """A transaction of the run's person. Raises RpcError failed_precondition for a run that never was."""
    async with database.anonymous(pool="queue") as connection:
        owner = await repository.owner(connection, run_id)
        if owner is None:
            raise stale()
        await repository.act_for(connection, owner)
        yield connection, owner


def stale() -> RpcError:
    STALE_FENCES.inc()
    return RpcError("failed_precondition", "another run holds this batch, or the run is over")


def observe_end(outcome: str, extractor: str, started_at: datetime) -> None:
    RUNS.labels(outcome, extractor).inc()
    RUN_SECONDS.observe(max(0.0, (datetime.now(started_at.tzinfo) - started_at).total_seconds()))

"""CompleteRun: what a run learned becomes facts, its chats are read and its lease ends, in one transaction."""

from dataclasses import dataclass

from services.memory_store.database import Connection, Database
from services.memory_store.facts import ledger
from services.memory_store.facts.ledger import Author
from services.memory_store.runs import lease_repository as repository
from services.memory_store.runs.deciding import Deciding
from services.memory_store.runs.lease_repository import Owner
from services.memory_store.runs.leasing import observe_end, run_transaction, stale
from services.memory_store.settings import DueRules
from shared.rpc.messages import CompleteRun, DecisionResult, RunEnd, RunOutcome
from shared.telemetry.metrics import CANDIDATES
from shared.telemetry.tracing import current_traceparent


@dataclass(frozen=True, slots=True)
class Completing:
    """`keep_text` False: what a run read and made of it leaves as it ends; only results and ids stay."""

    database: Database
    rules: DueRules
    keep_text: bool = True

    async def complete(self, ask: CompleteRun) -> RunEnd:
        """Raises RpcError failed_precondition where the run holds its batch no longer; then nothing has changed. A run that was
        applied before answers what it answered then."""
        return await self.database.retry(lambda: self._complete(ask))

    async def _complete(self, ask: CompleteRun) -> RunEnd:
        async with run_transaction(self.database, ask.run_id) as (connection, owner):
            await ledger.lock_person(connection)
            batch = await repository.fenced_batch(connection, ask.run_id, owner.workspace)
            run = await repository.run(connection, ask.run_id)
            if batch is None:
                if run.state != "applied" or run.outcome is None:
                    raise stale()
                return RunEnd(state=run.state, outcome=run.outcome, results=run.results)
            results = await self._apply(connection, ask, owner, run.event_ids)
            outcome = _outcome(ask, results)
            await repository.end_chats(connection, run.event_ids, "read", ask.run_id)
            await repository.end_run(
                connection,
                ask.run_id,
                state="applied",
                outcome=outcome,
                reason=None,
                extractor=ask.extractor,
                model=ask.model,
                prompt_version=ask.prompt_version,
                candidates=ask.candidates,
                decisions=ask.decisions,
                results=results,
            )
            if not self.keep_text:
                await repository.clear_run(connection, ask.run_id)
            await repository.release_batch(connection, self.rules, owner.workspace, applied=True)
        observe_end(outcome, ask.extractor, run.started_at)
        for result in results:
            CANDIDATES.labels(result.result, result.reason or "").inc()
        return RunEnd(state="applied", outcome=outcome, results=results)

    async def _apply(
        self, connection: Connection, ask: CompleteRun, owner: Owner, event_ids: list[str]
    ) -> list[DecisionResult]:
        await repository.exclude_barred(connection, self.rules, owner.workspace)
        chats = await repository.window(connection, event_ids)
        deciding = Deciding(
            connection=connection,
            author=Author(f"run:{ask.run_id}", ask.run_id, current_traceparent()),
            workspace=owner.workspace,
            policy=await repository.policy(connection),
            window={chat.event_id: chat for chat in chats},
            candidates=ask.candidates,
        )
        return [await deciding.apply(decision) for decision in ask.decisions]


def _outcome(ask: CompleteRun, results: list[DecisionResult]) -> RunOutcome:
    """What a person should know first: something was learned; or was refused; or was known already; or there was nothing."""
    kinds = {result.result for result in results}
    if kinds & {"applied", "pending"}:
        return "applied"
    if "refused" in kinds or any(record.dropped for record in ask.candidates):
        return "refused"
    return "all_skipped" if ask.candidates else "nothing_found"

"""A memory-store in memory, for what a real one cannot be made to do: lose an answer, take a batch away, be away for just so long."""

from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from shared.rpc.errors import Code, RpcError


def chat(event_id: str, prompt: str, response: str = "OK", **fields: Any) -> m.ClaimedChat:
    now = datetime.now(UTC)
    return m.ClaimedChat(
        **{
            "event_id": event_id,
            "thread": None,
            "prompt": prompt,
            "response": response,
            "occurred_at": now,
            "timezone": None,
            "recorded_at": now,
        }
        | fields
    )


class FakeStore(MemoryStoreClient):
    """Batches of (user, model, chats). A released or failed one is due again at once; `ends` are the accepted CompleteRun and FailRun."""

    def __init__(self) -> None:
        super().__init__("http://store.invalid", "key")
        self.batches: deque[m.ClaimedRun] = deque()
        self.held: dict[UUID, m.ClaimedRun] = {}
        self.claims: list[m.ClaimRun] = []
        self.renewals: list[UUID] = []
        self.shortened: list[str] = []
        self.ends: list[m.CompleteRun | m.FailRun] = []
        self.errors: dict[str, deque[Code]] = {"claim": deque(), "renew": deque(), "end": deque()}
        self._replies: dict[UUID, m.RunEnd] = {}

    def add(self, user: str, chats: list[m.ClaimedChat], model: str | None = "m", **fields: Any) -> None:
        run = {
            "run_id": UUID(int=0),
            "tenant": "default",
            "user": user,
            "workspace": "default",
            "attempt": 1,
            "lease_expires_at": datetime.now(UTC) + timedelta(minutes=1),
            "model": model,
            "chats": chats,
            "facts": [],
            "free": m.FreeSlots(workspace=20, global_=5),
            "zone": None,
            "heading": "## Things I Remember About You",
        }
        self.batches.append(m.ClaimedRun(**run | fields))

    def _fault(self, kind: str) -> None:
        if self.errors[kind]:
            raise RpcError(self.errors[kind].popleft())

    async def claim_run(self, request: m.ClaimRun, *, timeout: float = 0) -> m.ClaimRunReply:
        self.claims.append(request)
        self._fault("claim")
        for batch in self.batches:
            if request.only_model not in (None, batch.model) or batch.model in request.without_models:
                continue
            self.batches.remove(batch)
            run = batch.model_copy(update={"run_id": request.run_id})
            self.held[request.run_id] = run
            return m.ClaimRunReply(run=run)
        return m.ClaimRunReply(run=None)

    async def renew_lease(self, request: m.RenewLease, *, timeout: float = 0) -> m.RenewLeaseReply:
        self.renewals.append(request.run_id)
        self._fault("renew")
        if request.last is not None:
            self.shortened.append(request.last)
        return m.RenewLeaseReply(lease_expires_at=datetime.now(UTC))

    async def complete_run(self, request: m.CompleteRun, *, timeout: float = 0) -> m.RunEnd:
        outcome: m.RunOutcome = "applied" if request.decisions else "nothing_found"
        return self._end(request, m.RunEnd(state="applied", outcome=outcome))

    async def fail_run(self, request: m.FailRun, *, timeout: float = 0) -> m.RunEnd:
        released = request.outcome in ("released", "model_unsupported")
        return self._end(request, m.RunEnd(state="released" if released else "failed", outcome=request.outcome))

    def _end(self, request: m.CompleteRun | m.FailRun, end: m.RunEnd) -> m.RunEnd:
        self._fault("end")
        if request.run_id not in self._replies:
            run = self.held.pop(request.run_id)
            self.ends.append(request)
            self._replies[request.run_id] = end
            if end.state == "released":
                self.batches.append(run)
        return self._replies[request.run_id]

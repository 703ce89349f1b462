"""The messages between memory-store and the other services, `keepsake.memory.v1.MemoryStore`."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from shared.events import ChatEvent, Time
from shared.ids import Id

SERVICE = "keepsake.memory.v1.MemoryStore"

Category = Literal["identity", "work", "preference", "skill", "constraint", "other"]
Confidence = Literal["high", "medium", "low"]
Scope = Literal["workspace", "global"]
Action = Literal["create", "update", "supersede", "retire", "delete", "skip"]
Extractor = Literal["model", "offline"]
RunState = Literal["running", "applied", "failed", "released", "lost"]
RunOutcome = Literal[
    "applied",
    "nothing_found",
    "all_skipped",
    "refused",
    "unreadable",
    "no_tool_call",
    "model_failed",
    "timed_out",
    "dead",
    "released",
    "model_unsupported",
    "worker_lost",
]


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StageRecord(Message):
    """One record of `chat.events` and its position; of a replayed dead letter, its first position."""

    partition: int
    offset: int
    timestamp_ms: int
    event: ChatEvent
    traceparent: Annotated[str, Field(max_length=55)] | None = None


class StageChats(Message):
    records: Annotated[list[StageRecord], Field(max_length=5000)]


class Verdict(Message):
    """What became of one record. `reason` says why for dropped (anonymous, off, opted_out, erased, reset, deleted, repeat) and rejected
    (a dead letter's reason). A reset or a deletion that was carried out is `staged`."""

    status: Literal["staged", "duplicate", "dropped", "rejected"]
    reason: str | None = None


class StageChatsReply(Message):
    """One verdict per record, in the records' order. All of them hold, or the call failed and none does."""

    verdicts: list[Verdict]


class ClaimRun(Message):
    """Asks for one due batch under a run id of the worker's own making (UUIDv7). Idempotent by `run_id`.

    `without_models` are entries whose breaker is open: their batches wait. `only_model` asks for a probe of one such entry.
    """

    run_id: UUID
    worker: Annotated[str, Field(max_length=200)]
    lease_ms: Annotated[int, Field(ge=1000, le=3_600_000)]
    without_models: list[str] = []
    only_model: str | None = None


class ClaimedChat(Message):
    event_id: str
    thread: str | None = None
    prompt: str
    response: str
    occurred_at: datetime
    timezone: str | None = None
    recorded_at: datetime
    traceparent: str | None = None


class KnownFact(Message):
    """A fact as the reflector sees it."""

    id: UUID
    content: str
    scope: Scope
    category: Category
    locked: bool
    version: int
    valid_from: str | None = None


class FreeSlots(Message):
    workspace: int
    global_: Annotated[int, Field(alias="global")]

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, serialize_by_alias=True)


class ClaimedRun(Message):
    """A leased window: at most 20 chats, oldest first, and what is known of their user.

    `model` is the resolved name of the operator's entry, None for the offline extractor. `zone` is the user's last known time zone,
    `heading` the one of their memory blocks.
    """

    run_id: UUID
    tenant: str
    user: str
    workspace: str
    attempt: int
    lease_expires_at: datetime
    model: str | None = None
    chats: list[ClaimedChat]
    facts: list[KnownFact]
    free: FreeSlots
    zone: str | None = None
    heading: str


class ClaimRunReply(Message):
    run: ClaimedRun | None = None


class RenewLease(Message):
    """`last` ends the run's window with this chat of it: what comes after does not fit the model and is pending, and due, again."""

    run_id: UUID
    lease_ms: Annotated[int, Field(ge=1000, le=3_600_000)]
    last: str | None = None


class RenewLeaseReply(Message):
    lease_expires_at: datetime


class Evidence(Message):
    """A chat of the window and the user's own words in its prompt."""

    event_id: str
    quote: str


class Candidate(Message):
    """What the observer proposes. Dates have stated precision: `2027`, `2027-05`, `2027-05-14`."""

    content: str
    category: Category = "other"
    sensitive: bool = False
    confidence: Confidence
    reasoning: str = ""
    evidence: list[Evidence]
    valid_from: str | None = None
    valid_to: str | None = None


class CandidateRecord(Message):
    """A candidate as the run keeps it. `dropped` names why it went no further: quote_not_found, invalid, over_limit, …"""

    candidate: Candidate
    dropped: str | None = None


class Decision(Message):
    """What the reflector decides on one candidate. `candidate` is its index among the run's candidates.

    `target` is a fact's id for update, supersede, retire, delete, and for a skip the fact that already says it.
    """

    candidate: int
    action: Action
    scope: Scope = "workspace"
    target: str | None = None
    content: str | None = None
    reason: str = ""


class CompleteRun(Message):
    """Applies a run's decisions, marks its chats read and ends its lease, in one transaction. Idempotent by `run_id`."""

    run_id: UUID
    extractor: Extractor
    model: str | None = None
    prompt_version: str | None = None
    candidates: Annotated[list[CandidateRecord], Field(max_length=50)]
    decisions: Annotated[list[Decision], Field(max_length=50)]


class DecisionResult(Message):
    """What memory-store made of one decision: `applied` (with the fact), `pending` (with its reason), `skipped`, `refused` (with why)."""

    candidate: int
    action: Action
    result: Literal["applied", "pending", "skipped", "refused"]
    reason: str | None = None
    fact_id: UUID | None = None


class RunEnd(Message):
    """How a run ended; the same answer each time it is asked."""

    state: RunState
    outcome: RunOutcome
    results: list[DecisionResult] = []


class FailRun(Message):
    """Ends a try without applying it. `released` and `model_unsupported` burn no attempt. Idempotent by `run_id`."""

    run_id: UUID
    outcome: Literal["unreadable", "no_tool_call", "model_failed", "timed_out", "released", "model_unsupported"]
    reason: Annotated[str, Field(max_length=200)] = ""
    retry_after_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 0
    extractor: Extractor = "model"
    model: str | None = None
    prompt_version: str | None = None
    candidates: Annotated[list[CandidateRecord], Field(max_length=50)] = []


class ListFacts(Message):
    """The active facts of one user that a prompt may hold: all global ones and one workspace's."""

    tenant: Id
    user: Id
    workspace: Id
    encoder: str | None = None
    vectors: bool = False


class InjectableFact(Message):
    """`newest_at` is the last change or confirmation. `vector` is base64 of little-endian float32, normalised, or None if none is kept."""

    id: UUID
    version: int
    content: str
    scope: Scope
    created_at: datetime
    newest_at: datetime
    use_count: int
    vector: str | None = None


class ListFactsReply(Message):
    """`withheld` says why there are none to inject whatever is stored."""

    facts: list[InjectableFact]
    withheld: Literal["personalization_off", "opted_out"] | None = None
    heading: str


class FactVector(Message):
    fact_id: UUID
    version: int
    vector: Annotated[str, Field(max_length=16_384)]


class PutVectors(Message):
    """Keeps vectors; one of a version that is no longer current is ignored."""

    tenant: Id
    user: Id
    encoder: Annotated[str, Field(max_length=200)]
    vectors: Annotated[list[FactVector], Field(max_length=200)]


class RecordUse(Message):
    """Counts a use of a fact for each time its id stands in `fact_ids`: several answers to one person travel in one call."""

    tenant: Id
    user: Id
    fact_ids: Annotated[list[UUID], Field(max_length=200)]
    at: Time


class Done(Message):
    pass


class Authenticate(Message):
    """Asks who holds a key or token. `tenant` is the header `Keepsake-Tenant`, which only the operator's key may use."""

    key_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tenant: Id | None = None


class AuthenticateReply(Message):
    """`actor` names who acts in the audit log (`operator`, `key:<id>`, `user:<user>`). `workspaces` None = all, empty = none.
    `user` is set for a user token, which acts for that user alone."""

    actor: str
    tenant: str
    scopes: list[str]
    user: str | None = None
    workspaces: list[str] | None = None
    operator: bool = False
    admin: bool = False
    expires_at: datetime | None = None

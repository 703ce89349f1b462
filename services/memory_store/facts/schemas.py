"""Facts as people and applications see them over HTTP."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from services.memory_store.facts.rules import Origin, PendingReason, State
from shared.events import Time
from shared.ids import DEFAULT_WORKSPACE, Id, is_anonymous
from shared.rpc.messages import Category, Confidence, Scope
from shared.text.normal import MAX_QUOTE

# Above any content that could be kept; what is longer need not be looked at (rules.written says the exact 500).
MAX_WRITTEN = 4000


def _somebody(user: str) -> str:
    if is_anonymous(user):
        raise ValueError("nobody is signed in under this name")
    return user


Person = Annotated[Id, AfterValidator(_somebody)]
# An id in a body. Any string may stand here: what names no fact of this person is not found, however it is written.
FactRef = Annotated[str, Field(max_length=200)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Evidence(BaseModel):
    """The chat a fact came from, and the user's own words in it. `quote` is null once its text has left (retention, erase)."""

    event_id: str
    thread: str | None
    occurred_at: datetime | None
    quote: str | None


class Fact(BaseModel):
    """One sentence about one user. `valid_from` and `valid_to` are dates of stated precision (`2027`, `2027-05`, `2027-05-14`);
    `past` says that valid_to has gone by, so the fact is neither injected nor counted."""

    id: UUID
    user: str
    workspace: str | None = Field(description="null = global")
    scope: Scope
    content: str | None = Field(description="null once the text of a deleted or rejected fact has left")
    state: State
    pending_reason: PendingReason | None
    category: Category
    sensitive: bool
    origin: Origin
    confidence: Confidence | None
    locked: bool = Field(description="a person wrote or edited it: extraction cannot change it")
    version: int
    valid_from: str | None
    valid_to: str | None
    past: bool
    superseded_by: UUID | None
    contests: UUID | None
    created_at: datetime
    updated_at: datetime
    last_confirmed_at: datetime | None
    last_used_at: datetime | None
    use_count: int
    evidence: list[Evidence]


class ScopeLimit(BaseModel):
    """`waiting`: facts that would be active if there were room."""

    used: int
    max: int
    waiting: int


class Limits(BaseModel):
    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    global_: ScopeLimit = Field(alias="global")
    workspace: ScopeLimit | None = Field(description="null when no workspace was asked for")


class FactList(BaseModel):
    """One page, newest first in each list. Limits count everything, whatever the page and the filters."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    global_: list[Fact] = Field(alias="global")
    workspace: list[Fact]
    limits: Limits
    next_cursor: str | None


class FactVersion(BaseModel):
    """One belief: known from `known_from` until `known_to` (null = still)."""

    version: int
    content: str | None
    state: State
    actor: str
    reason: str | None
    known_from: datetime
    known_to: datetime | None


class FactHistory(BaseModel):
    items: list[FactVersion]
    next_cursor: str | None


class GivenEvidence(Request):
    """A staged chat of the user and workspace, and the user's own words in its prompt."""

    event_id: Id
    quote: Annotated[str, Field(min_length=1, max_length=MAX_QUOTE)]


class CreateFact(Request):
    user: Person
    workspace: Id | None = None
    scope: Scope = Field(default="workspace", description="without a workspace: global")
    content: Annotated[str, Field(max_length=MAX_WRITTEN)]
    origin: Literal["person", "agent"] = "person"
    evidence: Annotated[list[GivenEvidence], Field(max_length=20)] = []
    replace: FactRef | None = Field(default=None, description="an active fact of the same scope that gives its slot")


class EditFact(Request):
    """At least one of both. Editing the content locks the fact unless `locked` says otherwise."""

    content: Annotated[str, Field(max_length=MAX_WRITTEN)] | None = None
    locked: bool | None = None


class Slot(Request):
    replace: FactRef | None = Field(default=None, description="an active fact of the target scope that gives its slot")


class Demote(Slot):
    workspace: Id = DEFAULT_WORKSPACE


class Restore(Slot):
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None, description="the version whose content comes back; without it the last one"
    )


class Filters(Request):
    """The query of `GET /v1/facts`. `state` may stand several times or hold several, comma-separated."""

    user: Id
    workspace: Id | None = None
    state: list[str] = []
    as_of: Time | None = None
    valid_at: Annotated[str, Field(max_length=40)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 100
    cursor: Annotated[str, Field(max_length=400)] | None = None

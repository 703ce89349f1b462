"""What goes in and out over HTTP."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shared.ids import DEFAULT_WORKSPACE, Id, check_id
from shared.rpc.messages import Scope

Ranking = Literal["all", "reranked", "newest", "none"]
Reason = Literal["personalization_off", "opted_out", "anonymous", "no_facts", "below_floor"]
Degraded = Literal["ranker_timeout", "ranker_unavailable", "store_unavailable", "language"]


def _id_or_blank(value: str) -> str:
    return check_id(value) if value.strip() else ""


User = Annotated[str, AfterValidator(_id_or_blank)]


class HistoryMessage(BaseModel):
    """A message as OpenAI's API has it; what is not named here (`name`, `tool_calls`, …) may be there and is not read."""

    model_config = ConfigDict(extra="ignore")

    role: str
    content: str | list[Any] | None = Field(
        None, description="Text, or content parts, of which those with `text` are read."
    )


class AssembleRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: User | None = Field(description="Whose facts; null for nobody signed in.")
    workspace: Id = DEFAULT_WORKSPACE
    thread: Id | None = Field(None, description="Keeps the facts of consecutive turns where `previous` is not given.")
    system_prompt: str | None = None
    message: str | None = Field(None, description="What the user says now. Its first 1,000 characters are read.")
    history: list[HistoryMessage] | None = Field(None, description="Of its user turns the last three are read.")
    limit: Annotated[int, Field(ge=0, le=20)] = 5
    max_tokens: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        None, description="Most tokens of the block, as the ranker's tokenizer counts them."
    )
    previous: Annotated[list[str], Field(max_length=200)] | None = Field(
        None, description="Ids of the facts that the thread's last answer had."
    )


class InjectedFact(BaseModel):
    id: UUID
    content: str
    scope: Scope
    score: float | None = Field(description="Of workspace facts that were ranked, else null.")


class AssembleReply(BaseModel):
    system_prompt: str = Field(description="The prompt with the block after it; unchanged where there is no fact.")
    block: str = Field(description="A heading and one line per fact; empty where there is none.")
    facts: list[InjectedFact]
    ranking: Ranking
    reason: Reason | None = Field(description="Why no workspace fact was injected.")
    degraded: Degraded | None = Field(description="What was missing, so that the answer is not the best one.")


class SearchRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: Id
    workspace: Id = DEFAULT_WORKSPACE
    query: Annotated[str, Field(min_length=1)]
    limit: Annotated[int, Field(ge=1, le=20)] = 5


class FoundFact(BaseModel):
    id: UUID
    content: str
    scope: Scope
    score: float | None = Field(description="Cosine of query and fact; null where the ranker could not serve.")


class SearchReply(BaseModel):
    items: list[FoundFact] = Field(description="Best first; newest first where the ranker could not serve.")
    next_cursor: None = None
    degraded: Degraded | None

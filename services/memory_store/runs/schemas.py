"""Runs, dead letters and what waits to be read, as people see them over HTTP."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from services.memory_store.facts.schemas import Person
from shared.ids import DEFAULT_WORKSPACE, Id
from shared.rpc.messages import CandidateRecord, Decision, DecisionResult, Extractor, RunOutcome, RunState

WaitingFor = Literal["off", "opted_out", "running", "provider", "retry", "dead", "min_chats", "idle", "schedule", "due"]


class Run(BaseModel):
    """One try at one window of chats. `results` says what became of each decision."""

    id: UUID
    user: str
    workspace: str
    state: RunState
    outcome: RunOutcome | None
    reason: str | None
    attempt: int
    extractor: Extractor | None
    model: str | None
    event_ids: list[str]
    candidates: list[CandidateRecord]
    decisions: list[Decision]
    results: list[DecisionResult]
    started_at: datetime
    ended_at: datetime | None


class RunList(BaseModel):
    items: list[Run]
    next_cursor: str | None


class DeadChat(BaseModel):
    """A chat given up after the last try; retrying its run makes it pending again."""

    event_id: str
    user: str
    workspace: str
    run_id: UUID | None
    reason: str | None
    at: datetime


class DeadChatList(BaseModel):
    items: list[DeadChat]
    next_cursor: str | None


class Pending(BaseModel):
    """Why nothing was learned yet: the first reason that holds, null when nothing waits. `due_at` null: not before something changes."""

    pending: int
    oldest_at: datetime | None
    waiting_for: WaitingFor | None
    due_at: datetime | None


class AskForRun(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    user: Person
    workspace: Id = DEFAULT_WORKSPACE

"""StageChats: one poll of records in one transaction, a verdict for each.

The order of records in a poll needs no attention: barriers go by position, so resets and deletions are carried out first and whatever
stands before them is dropped when it is staged.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import asyncpg

from services.memory_store.database import Connection, Database
from services.memory_store.facts import ledger
from services.memory_store.settings import DueRules
from services.memory_store.staging import repository
from services.memory_store.staging.rules import (
    STAGED,
    UNKNOWN_TENANT,
    Fingerprints,
    Position,
    at_once,
    fingerprints,
    position,
    without_secrets,
)
from shared.events import ChatCompleted, ChatDeleted, ChatReset
from shared.rpc.errors import RpcError
from shared.rpc.messages import StageChats, StageChatsReply, Verdict
from shared.telemetry.metrics import SECRETS_REDACTED
from shared.telemetry.tracing import current_traceparent

# Reading a poll takes tens of milliseconds; prompts that wait for their facts get a turn in between.
_BREATHE_EVERY = 50


@dataclass(slots=True)
class _Poll:
    """A poll sorted by what has to be done. The numbers are places in the request."""

    verdicts: list[Verdict]
    chats: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)
    # Whose content stood in the poll before, under another id: staged after the first, so that the earlier one is kept.
    repeats: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)
    resets: list[tuple[int, ChatReset, Position]] = field(default_factory=list)
    deletions: list[tuple[int, ChatDeleted, Position]] = field(default_factory=list)
    # Replaced in them, by kind.
    secrets: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Staging:
    database: Database
    rules: DueRules
    stand_ins: frozenset[str]
    idempotency: timedelta

    async def stage(self, ask: StageChats) -> StageChatsReply:
        """Raises RpcError invalid_argument for what Postgres refuses (the caller splits the poll), unavailable."""
        poll = await self._sort(ask)
        try:
            found = await self.database.retry(lambda: self._write(poll))
        except asyncpg.DataError:
            raise RpcError("invalid_argument", "the database refuses a record") from None
        for number, event, _ in poll.deletions:
            if number not in found:
                await self.database.retry(partial(self._take_back, event))
        for number, verdict in found.items():
            poll.verdicts[number] = verdict
        for kind, times in poll.secrets.items():
            SECRETS_REDACTED.labels(kind).inc(times)
        return StageChatsReply(verdicts=poll.verdicts)

    async def _sort(self, ask: StageChats) -> _Poll:
        poll = _Poll([STAGED] * len(ask.records))
        oldest = datetime.now(UTC) - self.idempotency
        places = [position(record) for record in ask.records]
        seen: set[tuple[str, str, bytes]] = set()
        by_position = sorted(range(len(places)), key=places.__getitem__)
        for count, number in enumerate(by_position):
            if count % _BREATHE_EVERY == _BREATHE_EVERY - 1:
                await asyncio.sleep(0)
            record, place = ask.records[number], places[number]
            if (verdict := at_once(record, place, oldest=oldest, stand_ins=self.stand_ins)) is not None:
                poll.verdicts[number] = verdict
            elif isinstance(event := record.event, ChatCompleted):
                prints = fingerprints(event)
                repeat = prints.repeat
                row = _chat_row(event, place, prints, record.traceparent, poll.secrets)
                if repeat is not None and (content := (event.tenant, event.user or "", repeat)) in seen:
                    poll.repeats.append((number, row))
                else:
                    poll.chats.append((number, row))
                    if repeat is not None:
                        seen.add(content)
            elif isinstance(event, ChatReset):
                poll.resets.append((number, event, place))
            else:
                poll.deletions.append((number, event, place))
        return poll

    async def _write(self, poll: _Poll) -> dict[int, Verdict]:
        """The verdicts on what was not staged, by place."""
        found: dict[int, Verdict] = {}
        async with self.database.anonymous(pool="queue") as connection:
            if poll.resets or poll.deletions:
                found |= await self._control(connection, poll)
            for chats in (poll.chats, poll.repeats):
                if chats:
                    refused = await repository.stage_chats(connection, self.rules, [row for _, row in chats])
                    for index, status, reason in refused:
                        found[chats[index][0]] = Verdict.model_validate({"status": status, "reason": reason})
        return found

    async def _control(self, connection: Connection, poll: _Poll) -> dict[int, Verdict]:
        events: Sequence[tuple[int, ChatReset | ChatDeleted, Position]] = [*poll.resets, *poll.deletions]
        known = await repository.known_tenants(connection, {event.tenant for _, event, _ in events})
        resets = [
            (event.tenant, event.user, event.workspace, event.thread, place.recorded_at, place.offset)
            for _, event, place in poll.resets
            if event.tenant in known
        ]
        if resets:
            await repository.reset_chats(connection, self.rules, resets)
        deletions = [
            (event.tenant, event.user, event.workspace, event_id, place.recorded_at, place.partition, place.offset)
            for _, event, place in poll.deletions
            if event.tenant in known
            for event_id in event.event_ids
        ]
        if deletions:
            await repository.delete_chats(connection, self.rules, deletions)
        return {number: UNKNOWN_TENANT for number, event, _ in events if event.tenant not in known}

    async def _take_back(self, event: ChatDeleted) -> None:
        """Evidence leaves in a transaction of its own, since it takes the person's lock, which comes before the batch's.

        It comes after the poll's: a run that completes in between finds the chat deleted. Should it fail, the poll is not answered, comes
        again, and this is done then.
        """
        async with self.database.person(event.tenant, event.user, pool="queue") as connection:
            await ledger.lock_person(connection)
            author = ledger.Author("chat.deleted", traceparent=current_traceparent())
            await ledger.take_back_chats(connection, author, event.event_ids)


def _chat_row(
    event: ChatCompleted, place: Position, prints: Fingerprints, traceparent: str | None, secrets: dict[str, int]
) -> tuple[Any, ...]:
    offset = None if event.occurred_at is None else event.occurred_at.utcoffset()
    return (
        event.tenant,
        event.user,
        event.workspace,
        event.event_id,
        event.thread,
        without_secrets(event.prompt, secrets),
        without_secrets(event.response, secrets),
        event.occurred_at or place.recorded_at,
        None if offset is None else int(offset.total_seconds() // 60),
        event.timezone,
        *prints,
        place.recorded_at,
        place.partition,
        place.offset,
        traceparent,
    )

"""What people see of extraction: runs, dead letters, what waits and why; and the two things they may ask for."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from services.memory_store.cursors import Cursor
from services.memory_store.database import Connection, Database
from services.memory_store.runs import overview_repository as repository
from services.memory_store.runs.schemas import DeadChatList, Pending, Run, RunList
from services.memory_store.runs.waiting import waiting_for
from services.memory_store.settings import DueRules
from shared.auth import Principal
from shared.events import Time
from shared.ids import Id, is_anonymous
from shared.problems import Problem

_RUNS: Cursor[tuple[datetime, UUID]] = Cursor(tuple[Time, UUID])
_DEAD: Cursor[tuple[datetime, str, str]] = Cursor(tuple[Time, Id, Id])


@dataclass(frozen=True, slots=True)
class Overview:
    """`models`: names of the operator's entries, the default first."""

    database: Database
    models: Sequence[str]
    stand_ins: Sequence[str]
    rules: DueRules

    async def pending(self, who: Principal, user: str, workspace: str) -> Pending:
        who.check_user(user)
        who.check_workspace(workspace)
        async with self.database.person(who.tenant, user) as connection:
            return await self._pending(connection, workspace)

    async def ask_for_run(self, who: Principal, user: str, workspace: str) -> Pending:
        who.check_user(user)
        who.check_workspace(workspace)
        if is_anonymous(user, self.stand_ins):
            raise Problem("invalid", "nobody is signed in under this user")
        async with self.database.person(who.tenant, user) as connection:
            await repository.lock_person(connection)
            await repository.ask_for_run(connection, workspace, self.rules)
            return await self._pending(connection, workspace)

    async def runs(
        self,
        who: Principal,
        user: str | None,
        workspace: str | None,
        *,
        outcome: str | None,
        cursor: str | None,
        limit: int,
    ) -> RunList:
        after = _RUNS.read(cursor)
        workspaces = _workspaces(who, workspace)
        async with self._seen(who, user) as connection:
            items = await repository.runs(
                connection, workspaces=workspaces, outcome=outcome, after=after, limit=limit + 1
            )
        more, items = len(items) > limit, items[:limit]
        return RunList(items=items, next_cursor=_RUNS.write((items[-1].started_at, items[-1].id)) if more else None)

    async def run(self, who: Principal, run_id: UUID) -> Run:
        async with self._seen(who, None) as connection:
            run = await repository.run(connection, run_id)
        if run is None:
            raise Problem("not_found")
        who.check_workspace(run.workspace)
        return run

    async def retry(self, who: Principal, run_id: UUID) -> Pending:
        """Makes the chats that this run gave up pending again. Raises Problem not_found, not_dead."""
        run = await self.run(who, run_id)
        async with self.database.person(who.tenant, run.user) as connection:
            await repository.lock_person(connection)
            if not await repository.retry_dead(connection, run_id, run.workspace, self.rules):
                raise Problem("not_dead", "this run left no dead chat whose text is still there")
            return await self._pending(connection, run.workspace)

    async def dead_chats(
        self, who: Principal, user: str | None, workspace: str | None, *, cursor: str | None, limit: int
    ) -> DeadChatList:
        after = _DEAD.read(cursor)
        workspaces = _workspaces(who, workspace)
        async with self._seen(who, user) as connection:
            items = await repository.dead_chats(connection, workspaces=workspaces, after=after, limit=limit + 1)
        more, items = len(items) > limit, items[:limit]
        last = items[-1] if more else None
        return DeadChatList(
            items=items, next_cursor=None if last is None else _DEAD.write((last.at, last.user, last.event_id))
        )

    def _seen(self, who: Principal, user: str | None) -> AbstractAsyncContextManager[Connection]:
        """One person's rows; for an administrator who names nobody, the whole tenant's."""
        user = who.user if user is None else user
        who.check_user(user)
        if user is None:
            return self.database.tenant(who.tenant, whole=True)
        return self.database.person(who.tenant, user)

    async def _pending(self, connection: Connection, workspace: str) -> Pending:
        found = await repository.waiting(connection, workspace, self.models)
        return Pending(
            pending=found.pending,
            oldest_at=found.oldest_at,
            waiting_for=waiting_for(
                found, min_chats=self.rules.min_chats, window_chats=self.rules.window_chats, idle=self.rules.idle
            ),
            due_at=found.due_at,
        )


def _workspaces(who: Principal, workspace: str | None) -> list[str] | None:
    """Which a list may show; None: all. Raises Problem not_found."""
    if workspace is not None:
        who.check_workspace(workspace)
        return [workspace]
    return None if who.workspaces is None else sorted(who.workspaces)

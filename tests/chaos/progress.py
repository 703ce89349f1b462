"""How far the system is, read from its database past every link: for the lines that are printed, and for the time to recover."""

import asyncio
import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from tests.chaos.history import History

_SQL = """
SELECT (SELECT count(*) FROM chat) AS staged, (SELECT count(*) FROM run WHERE state = 'applied') AS applied,
       (SELECT count(*) FROM chat WHERE state = 'pending') AS pending, (SELECT count(*) FROM chat WHERE state = 'dead') AS dead,
       (SELECT count(*) FROM batch WHERE run_id IS NOT NULL) AS leased, (SELECT count(*) FROM outbox) AS outbox
"""


# The last is asyncpg's word for a connection that broke in the middle of an operation.
_AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


@dataclass(frozen=True)
class State:
    staged: int
    applied: int
    pending: int
    dead: int
    leased: int
    outbox: int


async def read_state(url: str) -> State:
    connection = await asyncpg.connect(url)
    try:
        return await _read(connection)
    finally:
        await connection.close()


async def _read(connection: "asyncpg.Connection[asyncpg.Record]") -> State:
    return State(**dict(await connection.fetchrow(_SQL, timeout=5) or {}))


class Progress:
    """`times` are when more was found to be staged or applied than before, in seconds since the start."""

    def __init__(self, url: str, history: History) -> None:
        self.times: list[float] = []
        self.state: State | None = None
        self._url = url
        self._history = history

    async def watch(self) -> None:
        while True:
            try:
                await self._watch()
            except _AWAY as error:
                self._history.note("database_away", error=type(error).__name__)
                await asyncio.sleep(0.2)

    async def _watch(self) -> None:
        connection = await asyncpg.connect(self._url, timeout=3)
        try:
            while True:
                state = await _read(connection)
                if self.state is None or state.staged + state.applied > self.state.staged + self.state.applied:
                    self.times.append(self._history.now())
                self.state = state
                await asyncio.sleep(0.25)
        finally:
            connection.terminate()

    def recoveries(self, ends: Sequence[tuple[str, float]], until: float) -> list[tuple[float, str]]:
        """From the end of each fault to the next progress, the shortest first; only of faults while chats still came (`until`)."""
        found = []
        for name, end in ends:
            at = bisect.bisect(self.times, end)
            if end < until and at < len(self.times):
                found.append((self.times[at] - end, name))
        return sorted(found)

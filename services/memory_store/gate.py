"""One writing transaction per person at a time in this process.

Writers of one person wait for each other on the person's advisory lock anyway. Waiting here, before a connection is taken, keeps a burst
of one person's writes from holding the whole pool while others want to read.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class PersonGate:
    def __init__(self) -> None:
        # A lock lives as long as somebody holds it or waits for it.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, tenant: str, user: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault((tenant, user), asyncio.Lock())
        async with lock:
            yield

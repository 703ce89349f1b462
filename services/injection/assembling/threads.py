"""Which facts a thread has, for applications that do not send `previous`. Holds ids only, in this process, the newest threads."""

from collections import OrderedDict
from collections.abc import Collection
from uuid import UUID

ThreadKey = tuple[str, str, str, str]
"""Tenant, user, workspace, thread: two users' threads of one name are two."""


class ThreadMemory:
    def __init__(self, max_threads: int = 20_000) -> None:
        self._max_threads = max_threads
        self._chosen: OrderedDict[ThreadKey, frozenset[UUID]] = OrderedDict()

    def recall(self, key: ThreadKey) -> frozenset[UUID]:
        return self._chosen.get(key, frozenset())

    def keep(self, key: ThreadKey, chosen: Collection[UUID]) -> None:
        self._chosen[key] = frozenset(chosen)
        self._chosen.move_to_end(key)
        while len(self._chosen) > self._max_threads:
            self._chosen.popitem(last=False)

"""Runs a service's method again when Postgres ended its transaction for another's sake."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from services.memory_store.database import Database


class OnDatabase(Protocol):
    @property
    def database(self) -> Database: ...


Self = TypeVar("Self", bound=OnDatabase)
Args = ParamSpec("Args")
Result = TypeVar("Result")


def again(
    method: Callable[Concatenate[Self, Args], Awaitable[Result]],
) -> Callable[Concatenate[Self, Args], Awaitable[Result]]:
    """For methods that open their own transaction and do nothing outside it."""

    @wraps(method)
    async def retried(self: Self, /, *args: Args.args, **kwargs: Args.kwargs) -> Result:
        return await self.database.retry(lambda: method(self, *args, **kwargs))

    return retried

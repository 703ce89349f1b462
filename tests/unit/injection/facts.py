"""Facts as memory-store lists them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from shared.rpc import messages as m

DAY_ONE = datetime(2027, 1, 1, tzinfo=UTC)


def fact(number: int, content: str = "", **fields: Any) -> m.InjectableFact:
    """The fact of day `number`: the higher, the newer."""
    at = DAY_ONE + timedelta(days=number)
    usual = {
        "id": UUID(int=number),
        "version": 1,
        "content": content or f"User has the number {number}.",
        "scope": "workspace",
        "created_at": at,
        "newest_at": at,
        "use_count": 0,
    }
    return m.InjectableFact(**usual | fields)


def numbers(facts: Any) -> list[int]:
    return [one.id.int for one in facts]

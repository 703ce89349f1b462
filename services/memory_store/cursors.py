"""Cursors of lists: the sort key of a page's last item, opaque to clients."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import TypeAdapter, ValidationError

from shared.problems import Problem

Key = TypeVar("Key")

PageSize = Annotated[int, Query(ge=1, le=200)]
# Two ids of 200 code points, each of four bytes, in base 64, and a time.
PageCursor = Annotated[str | None, Query(max_length=3000)]


class Cursor(Generic[Key]):
    """Reads and writes one list's cursors. `kind` bounds every part: a cursor comes from outside like any other input."""

    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[Key] = TypeAdapter(kind)

    def write(self, key: Key) -> str:
        return urlsafe_b64encode(self._adapter.dump_json(key)).decode().rstrip("=")

    def read(self, cursor: str | None) -> Key | None:
        """Raises Problem `invalid`."""
        if cursor is None:
            return None
        try:
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            return self._adapter.validate_json(urlsafe_b64decode(padded))
        except (UnicodeEncodeError, binascii.Error, ValidationError):
            raise Problem("invalid", "this cursor is not one of this list") from None

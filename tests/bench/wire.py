"""A client that costs little, so that what is measured is the server: requests are made beforehand, answers are hardly read."""

import asyncio
import json
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


def post(path: str, body: bytes, key: str = "") -> bytes:
    """An HTTP/1.1 request as it goes out."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class UnexpectedAnswer(Exception):
    """Another status than 200 or 202, or another shape of answer than our services give."""


class Wire:
    """One kept connection; one request at a time."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def send(self, request: bytes) -> bytes:
        """The answer's body. Raises UnexpectedAnswer."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, _, after = head.partition(b"\r\ncontent-length: ")
        if head[9:12] not in (b"200", b"202") or not after:
            raise UnexpectedAnswer(f"status {head[9:12].decode(errors='replace')}")
        return await self._reader.readexactly(int(after.split(b"\r", 1)[0]))

    async def ask(self, request: bytes) -> Any:
        return json.loads(await self.send(request))

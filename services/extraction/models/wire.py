"""The connections to a provider: no reply is read beyond a bound, whatever the provider sends."""

from collections.abc import AsyncIterator

from httpx2 import AsyncByteStream, AsyncClient, Response
from pydantic_ai.models import create_async_httpx2_client

# A reply of three candidates has some 3 KB, and the reasoning before it may have some 100, or twice as many where JSON escapes it. The
# libraries that read a reply take a tenth of a second for this much, in which nothing else happens.
MAX_REPLY_BYTES = 512 * 1024


class ReplyTooLarge(Exception):
    """A reply above `MAX_REPLY_BYTES`, or a compressed one, of which nobody knows how large it is."""


def bounded_client() -> AsyncClient:
    """Asks for replies as they are, since a bound on compressed bytes bounds nothing. To be closed by the caller."""
    client = create_async_httpx2_client()
    client.headers["Accept-Encoding"] = "identity"
    client.event_hooks["response"].append(_bound)
    return client


async def _bound(response: Response) -> None:
    """A hook sees a response before its body is read."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ReplyTooLarge
    assert isinstance(response.stream, AsyncByteStream)  # noqa: S101 (of an async client)
    response.stream = _Bounded(response.stream)


class _Bounded(AsyncByteStream):
    def __init__(self, stream: AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_REPLY_BYTES:
                raise ReplyTooLarge
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

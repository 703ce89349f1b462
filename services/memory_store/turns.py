"""Writes begin one after the other, reads at once.

A burst of writes that arrives in one moment would otherwise be parsed and checked in one stretch of the event loop (a millisecond each),
and whoever reads meanwhile would wait behind all of it. With one beginning per round of the loop, a read waits for one of them.
"""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send


class WritesInTurn:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD") and scope["path"].startswith("/v1/"):
            async with self._turn:
                await asyncio.sleep(0)
        await self._app(scope, receive, send)

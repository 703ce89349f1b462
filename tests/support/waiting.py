"""Waits for a condition with a deadline, in place of sleeping for a guess."""

import asyncio
import time
from collections.abc import Callable


async def until_async(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (what is waited for has no event)
            await asyncio.sleep(0.005)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError("the condition did not come true")
        time.sleep(0.02)

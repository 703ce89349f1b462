"""Chats over HTTP in lists of 50, acknowledged by Kafka, beside an echo of the same bodies by the same client."""

import asyncio
import json
import time
from contextlib import AsyncExitStack

from tests.bench.bench import Bench
from tests.bench.chats import chats
from tests.bench.figures import Figure, at_least, median, spread
from tests.bench.wire import Wire, post

PER_LIST = 50
_CONNECTIONS = 8


async def measure(bench: Bench) -> list[Figure]:
    rounds, seconds = (2, 1.5) if bench.quick else (5, 2.0)
    some = chats(PER_LIST * 40, seed="ingest")
    bodies = [
        json.dumps([chat.fields() for chat in some[start : start + PER_LIST]]).encode()
        for start in range(0, len(some), PER_LIST)
    ]
    ours, theirs = [], []
    with bench.system("memory_store", "chat_ingest") as system, bench.echo() as echo:
        publishing = [post("/v1/chats", body, system.admin_key) for body in bodies]
        echoing = [post("/echo", body) for body in bodies]
        await _chats_per_s(system.url("chat_ingest"), publishing, 0.5)
        for number in range(rounds):
            theirs.append(await _chats_per_s(echo.url, echoing, seconds))
            ours.append(await _chats_per_s(system.url("chat_ingest"), publishing, seconds))
            bench.say(f"round {number + 1}: ingest {ours[-1]:,.0f} chats/s, echo {theirs[-1]:,.0f}")
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    beside = f"{median(ours):,.0f} chats/s, echo {median(theirs):,.0f}; {rounds} rounds, {spread(ratios)}"
    return [Figure("ingest_over_echo", median(ratios), beside, at_least(0.5))]


async def _chats_per_s(url: str, requests: list[bytes], seconds: float) -> float:
    """Eight connections, each with its next list as soon as the last is acknowledged."""
    sent = 0
    ends = time.perf_counter() + seconds

    async def client(wire: Wire, first: int) -> None:
        nonlocal sent
        number = first
        while time.perf_counter() < ends:
            await wire.send(requests[number % len(requests)])
            number += _CONNECTIONS
            sent += 1

    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(url)) for _ in range(_CONNECTIONS)]
        started = time.perf_counter()
        await asyncio.gather(*(client(wire, first) for first, wire in enumerate(wires)))
        return sent * PER_LIST / (time.perf_counter() - started)

"""Assembling a prompt, beside the sum of what cannot be saved: one encoding of the message, one HTTP echo, one RPC echo, one SELECT.

Each round takes one of all five, one after the other, so that noise hits both sides; each message is a new one. The encoding runs in
this process by itself, the echoes under the services' own server settings, the SELECT on a prepared statement as the tables' owner.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from deploy.local.paths import DEFAULT_DATA_DIR
from deploy.local.services import ranker_folder
from shared.encoder import load_model
from shared.rpc import messages as m
from shared.rpc.client import MemoryStoreClient
from tests.bench.bench import Bench
from tests.bench.facts import FACT_TEXTS, give_facts, message
from tests.bench.figures import Figure, NotMeasured, at_least, at_most, median, percentile, spread
from tests.bench.pairs import CrossEncoder
from tests.bench.wire import Wire, post
from tests.support.system import System

PEOPLE = 10
_SELECT = """
SELECT id, version, content, workspace, created_at, updated_at, last_confirmed_at FROM fact
WHERE tenant = 'default' AND usr = $1 AND workspace = 'default' AND state = 'active'
"""


@dataclass(slots=True)
class Times:
    """Milliseconds of each part, in the order of the rounds."""

    assemble: list[float] = field(default_factory=list)
    encode: list[float] = field(default_factory=list)
    http: list[float] = field(default_factory=list)
    rpc: list[float] = field(default_factory=list)
    select: list[float] = field(default_factory=list)

    def floor(self) -> float:
        return median(self.encode) + median(self.http) + median(self.rpc) + median(self.select)

    def ratio(self) -> float:
        return median(self.assemble) / self.floor()


async def measure(bench: Bench) -> list[Figure]:
    blocks, rounds = (3, 40) if bench.quick else (7, 80)
    with bench.system("memory_store", "injection") as system:
        users = give_facts(bench, system, PEOPLE)
        await _warm(system, users)
        timed = [await _against_floor(bench, system, users, rounds) for _ in range(blocks)]
        # Asked again at the end, so that the p50 of all is of the same minutes as the pairs.
        pairs = _pairs(10 if bench.quick else 30)
        late = await _at_rate(system, users, per_s=50, seconds=5 if bench.quick else 15)
    ratios = [times.ratio() for times in timed]
    p50 = median(ms for times in timed for ms in times.assemble)
    floor = median(times.floor() for times in timed)
    parts = ", ".join(
        f"{name} {median(ms for times in timed for ms in getattr(times, name)):.2f}"
        for name in ("encode", "http", "rpc", "select")
    )
    bench.say(f"assemble p50 {p50:.2f} ms; floor {floor:.2f} ms: {parts}")
    return [
        Figure(
            "assemble_p50_over_floor",
            median(ratios),
            f"p50 {p50:.2f} ms, floor {floor:.2f} ms ({parts}); {blocks} blocks, {spread(ratios)}",
            at_most(1.5),
        ),
        Figure(
            "pairs20_over_assemble_p50",
            median(pairs) / p50,
            f"twenty pairs through minilm-l6-v2: {median(pairs):.0f} ms ({spread(pairs, 0)})",
            at_least(10),
        ),
        Figure(
            "assemble_p95_ms_50rps",
            percentile(late, 95),
            f"open loop; p50 {median(late):.2f}, p99 {percentile(late, 99):.2f} ms",
        ),
    ]


def _body(user: str, text: str) -> bytes:
    return json.dumps({"user": user, "system_prompt": "You are a helpful assistant.", "message": text}).encode()


def _request(system: System, user: str, text: str) -> bytes:
    return post("/v1/assemble", _body(user, text), system.admin_key)


async def _warm(system: System, users: Sequence[str]) -> None:
    """Every fact has its vector, every connection is there. Raises NotMeasured where an answer is not what is to be measured."""
    async with Wire(system.url("injection")) as wire:
        for user in [*users, *users]:
            reply = await wire.ask(_request(system, user, message()))
        if reply["ranking"] != "reranked" or reply["degraded"] is not None:
            raise NotMeasured(f"assemble answered ranking {reply['ranking']}, degraded {reply['degraded']}")


async def _against_floor(bench: Bench, system: System, users: Sequence[str], rounds: int) -> Times:
    model = load_model(ranker_folder(DEFAULT_DATA_DIR))
    use = m.RecordUse(tenant="default", user=users[0], fact_ids=[UUID(int=1)], at=datetime.now(UTC))
    times = Times()
    with bench.echo() as echo:
        async with AsyncExitStack() as stack:
            owner = await asyncpg.connect(system.database.owner_url)
            stack.push_async_callback(owner.close)
            select = await owner.prepare(_SELECT)
            injection = await stack.enter_async_context(Wire(system.url("injection")))
            echoing = await stack.enter_async_context(Wire(echo.url))
            rpc = await stack.enter_async_context(MemoryStoreClient(echo.url, "key"))

            async def encode(text: str) -> None:
                model.encode_query(text)

            for number in range(rounds + 5):
                user, text = users[number % len(users)], message()
                request = _request(system, user, text)
                echoed = post("/echo", _body(user, text))
                took = Times(
                    assemble=[await _ms(lambda: injection.send(request))],  # noqa: B023
                    encode=[await _ms(lambda: encode(text))],  # noqa: B023
                    http=[await _ms(lambda: echoing.send(echoed))],  # noqa: B023
                    rpc=[await _ms(lambda: rpc.record_use(use))],
                    select=[await _ms(lambda: select.fetch(user))],  # noqa: B023
                )
                if number >= 5:
                    for name in ("assemble", "encode", "http", "rpc", "select"):
                        getattr(times, name).extend(getattr(took, name))
            if len(await select.fetch(users[0])) != len(FACT_TEXTS):
                raise NotMeasured(f"the SELECT does not find {len(FACT_TEXTS)} rows")
    return times


async def _ms(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1000


def _pairs(rounds: int) -> list[float]:
    cross = CrossEncoder()
    return [cross.ms(message()) for _ in range(rounds)]


async def _at_rate(system: System, users: Sequence[str], *, per_s: int, seconds: int) -> list[float]:
    """Milliseconds from when each request was due, whether or not the one before it is answered."""
    idle: list[Wire] = []
    late: list[float] = []

    async with AsyncExitStack() as stack:

        async def one(due: float, user: str) -> None:
            wire = idle.pop() if idle else await stack.enter_async_context(Wire(system.url("injection")))
            await wire.send(_request(system, user, message()))
            late.append((time.perf_counter() - due) * 1000)
            idle.append(wire)

        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(per_s * seconds):
                due = started + number / per_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(one(due, users[number % len(users)]))
    return late

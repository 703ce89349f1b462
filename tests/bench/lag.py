"""From the moment Kafka has a person's chat until an assembled prompt holds what it said; idle threshold 0, no model, the rest as deployed.

Workers look for due batches every KEEPSAKE_POLL_INTERVAL_MS (2000), which is most of the figure. Chats come at random moments of it.
"""

import asyncio
import json
import random
import time
from datetime import UTC, datetime

from tests.bench.bench import Bench
from tests.bench.chats import Chat, publish
from tests.bench.figures import Figure, NotMeasured, median, spread
from tests.bench.wire import Wire, post

_DEADLINE_S = 30.0


async def measure(bench: Bench) -> list[Figure]:
    people = 4 if bench.quick else 12
    dice = random.Random("lag")
    lags = []
    with bench.system(min_chats=1, idle_threshold_ms=0) as system:
        async with Wire(system.url("injection")) as wire:
            for number in range(people + 1):
                await asyncio.sleep(dice.random() * 2)
                user = f"newcomer-{number}"
                chat = Chat(
                    f"lag-{number}", user, "I work as a carpenter.", "I will keep that in mind.", datetime.now(UTC)
                )
                await publish(system.kafka_settings, [chat.record()])
                lags.append(await _injectable(wire, user, system.admin_key))
    # The first meets connections that are not there yet.
    lags = lags[1:]
    return [Figure("lag_s", median(lags), f"{people} chats at random moments: {spread(lags)} s; workers ask every 2 s")]


async def _injectable(wire: Wire, user: str, key: str) -> float:
    request = post("/v1/assemble", json.dumps({"user": user, "message": "What should I build next?"}).encode(), key)
    started = time.perf_counter()
    while not (await wire.ask(request))["facts"]:
        if time.perf_counter() - started > _DEADLINE_S:
            raise NotMeasured(f"no fact within {_DEADLINE_S:g} s")
        await asyncio.sleep(0.02)
    return time.perf_counter() - started

"""`make chaos`: exit code 1 where a promise was broken."""

import argparse
import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Sequence

from deploy.local import kafka
from deploy.local.paths import DEFAULT_DATA_DIR
from tests.chaos.chaos import Settings, run


def main(argv: Sequence[str] | None = None) -> int:
    settings = _settings(argv)
    if (missing := kafka.missing(DEFAULT_DATA_DIR)) is not None:
        print(f"chaos needs Apache Kafka: {missing}", file=sys.stderr)
        return 2
    # The test's own clients meet every fault too.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    started = time.monotonic()
    report = asyncio.run(run(settings))
    print(report.text(time.monotonic() - started), flush=True)
    return 1 if report.violations else 0


def _settings(argv: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Kills, stops and cuts off every part of a real system of its own while chats are published, then compares what was "
        "published with what the store holds. The environment's SEED, MINUTES, KILLS and CHATS stand for the flags. History and logs "
        "are left under .keepsake/chaos/SEED/. Exit code 1: a promise was broken.",
    )
    number = os.environ.get
    parser.add_argument("--seed", type=int, default=number("SEED") or random.randrange(10_000), help="which run (any)")
    parser.add_argument(
        "--minutes", type=float, default=number("MINUTES") or 2, help="over which the faults are spread (2)"
    )
    parser.add_argument(
        "--kills", type=int, default=number("KILLS") or 40, help="SIGKILLs; half as many other faults beside (40)"
    )
    parser.add_argument("--chats", type=int, default=number("CHATS"), help="to publish (600 a minute)")
    given = parser.parse_args(argv)
    chats = int(given.chats or 600 * float(given.minutes))
    return Settings(int(given.seed), float(given.minutes), int(given.kills), chats)


if __name__ == "__main__":
    sys.exit(main())

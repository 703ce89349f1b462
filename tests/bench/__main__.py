"""`make bench`: the performance table. Exit code 1 where a gate fails or something could not be measured."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import asyncpg
import uvloop

from deploy.errors import DeployError
from deploy.local.paths import DEFAULT_DATA_DIR
from shared.kafka import PublishFailed
from shared.rpc.errors import RpcError
from tests.bench import assembling, claiming, ingest, lag, staging
from tests.bench.bench import Bench, running_bench
from tests.bench.figures import Figure, NotMeasured, at_most, table, write
from tests.bench.wire import UnexpectedAnswer
from tests.support import kafka

Measure = Callable[[Bench], Coroutine[Any, Any, list[Figure]]]
MEASUREMENTS: dict[str, Measure] = {
    "staging": staging.measure,
    "ingest": ingest.measure,
    "assembling": assembling.measure,
    "claiming": claiming.measure,
    "lag": lag.measure,
}
RESULT = DEFAULT_DATA_DIR / "bench.json"
_MB = {"chat-ingest": 120, "memory-store": 120, "injection": 300, "extraction": 300}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measures the real system on a database, a broker and ports of its own. "
        "docs/performance.md says how each figure is taken. The figures of a whole run also go to .keepsake/bench.json.",
    )
    parser.add_argument(
        "--only", choices=MEASUREMENTS, action="append", help="measure this alone (may be repeated); nothing is written"
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: within 90 seconds, less exact")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} before the start, broker: {kafka.kind()}", flush=True)
    figures, problems = _measure_all(arguments.only or list(MEASUREMENTS), quick=arguments.quick)
    print(f"\n{table(figures)}\n\n{time.monotonic() - started:.0f} s")
    for problem in problems:
        print(f"not measured: {problem}")
    if not arguments.only:
        write(RESULT, figures)
    return 1 if problems or any(figure.failed for figure in figures) else 0


def _measure_all(names: Sequence[str], *, quick: bool) -> tuple[list[Figure], list[str]]:
    figures: list[Figure] = []
    problems: list[str] = []
    with running_bench(quick=quick) as bench:
        for name in names:
            print(name, flush=True)
            try:
                figures += uvloop.run(MEASUREMENTS[name](bench))
            except (
                DeployError,
                NotMeasured,
                UnexpectedAnswer,
                PublishFailed,
                RpcError,
                OSError,
                EOFError,
                asyncpg.PostgresError,
            ) as error:
                problems.append(f"{name}: {type(error).__name__}: {error}")
        for service, resident in sorted(bench.rss_mb.items()):
            figures.append(
                Figure(f"rss_mb.{service}", resident, "most after any of these", at_most(_MB[service], gate=False))
            )
    return figures, problems


if __name__ == "__main__":
    sys.exit(main())

"""The parts that all measurements share: one broker and one Postgres, and for each measurement a Keepsake of its own."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from deploy.local.broker import Broker
from deploy.local.services import deployed_name
from tests.bench.echo import Echo
from tests.support.kafka import running_kafka
from tests.support.postgres import PostgresForTests, running_postgres
from tests.support.system import System

# What an operator has who sets nothing, but for personalization, which starts off; tests are quicker.
_AS_DEPLOYED = {
    "personalization": True,
    "min_chats": 5,
    "idle_threshold_ms": 1_200_000,
    "poll_interval_ms": 2000,
    "log_level": "INFO",
}


class Bench:
    """`quick` asks for fewer repetitions. `rss_mb` holds the most that each service was seen to take after work."""

    def __init__(self, folder: Path, broker: Broker, postgres: PostgresForTests, *, quick: bool) -> None:
        self.quick = quick
        self.rss_mb: dict[str, float] = {}
        self._folder = folder
        self._broker = broker
        self._postgres = postgres

    @contextmanager
    def system(self, *services: str, **settings: object) -> Iterator[System]:
        """These services, on a database and topics of their own."""
        database = self._postgres.create()
        system = System(database, self._broker, self._folder, **_AS_DEPLOYED | settings)
        try:
            system.make_topics()
            system.start(*services)
            yield system
            self.note_memory(system)
        except BaseException:
            for name, log in system.logs():
                print(f"last lines of {name}:", *log.splitlines()[-5:], sep="\n    ", flush=True)
            raise
        finally:
            system.close()
            self._postgres.drop(database)

    @contextmanager
    def echo(self) -> Iterator[Echo]:
        echo = Echo(self._folder)
        echo.start()
        try:
            yield echo
        finally:
            echo.stop()

    def note_memory(self, system: System) -> None:
        """Call it while the services that worked still run."""
        for name, service in system.services.items():
            if service.running:
                resident = psutil.Process(service.child.pid).memory_info().rss / 1e6
                key = deployed_name(name)
                self.rss_mb[key] = max(resident, self.rss_mb.get(key, 0))

    def say(self, text: str) -> None:
        print(f"  {text}", flush=True)


@contextmanager
def running_bench(*, quick: bool) -> Iterator[Bench]:
    """Postgres writes to disk as in production: fsync and synchronous_commit are on."""
    with (
        tempfile.TemporaryDirectory(prefix="keepsake-bench-", ignore_cleanup_errors=True) as folder,
        running_kafka() as broker,
        running_postgres(durable=True) as postgres,
    ):
        yield Bench(Path(folder), broker, postgres, quick=quick)

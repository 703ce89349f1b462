"""Real parts for tests. A broker and a Postgres run once per session; a test's database and topics are its own.

`kafka`, `postgres`     shared servers; never stop them
`own_kafka`, `own_postgres`   servers of this test alone, which it may stop, kill and start again
`database`              an empty database with the newest schema
`system`                makes a `System` on these: `system(min_chats=5).start("memory_store", "extraction")`
`own_system`            the same on `own_kafka` and `own_postgres`
"""

import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from deploy.local.broker import Broker
from deploy.local.database import Database
from tests.support import kafka as kafka_support
from tests.support.kafka import running_kafka
from tests.support.postgres import PostgresForTests, running_postgres
from tests.support.system import System, in_ci

SystemFactory = Callable[..., System]
_SYSTEMS: pytest.StashKey[list[System]] = pytest.StashKey()


@pytest.fixture
def data_folder() -> Iterator[Path]:
    """A folder for a server's data. Not `tmp_path`: pytest closes its folders to other users, as one of whom root's Postgres runs."""
    with tempfile.TemporaryDirectory(prefix="keepsake-data-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    with running_kafka() as broker:
        yield broker


@pytest.fixture
def own_kafka() -> Iterator[Broker]:
    with running_kafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresForTests]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresForTests]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresForTests) -> Iterator[Database]:
    created = postgres.create()
    yield created
    postgres.drop(created)


@pytest.fixture
def system(
    database: Database, kafka: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[SystemFactory]:
    yield from _systems(database, kafka, tmp_path, request)


@pytest.fixture
def own_system(
    own_postgres: PostgresForTests, own_kafka: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[SystemFactory]:
    yield from _systems(own_postgres.create(), own_kafka, tmp_path, request)


def _systems(
    database: Database, broker: Broker, folder: Path, request: pytest.FixtureRequest
) -> Iterator[SystemFactory]:
    made = request.node.stash.setdefault(_SYSTEMS, [])

    def make(**settings: object) -> System:
        system = System(database, broker, folder, **settings)
        made.append(system)
        system.make_topics()
        return system

    yield make
    for system in made:
        system.close()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "apache_kafka: needs Apache Kafka; skipped on Tansu, which keeps nothing")


def pytest_report_header() -> str:
    return f"broker: {kafka_support.kind()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if kafka_support.is_apache_kafka():
        return
    if in_ci() and any({"kafka", "own_kafka"} & set(getattr(item, "fixturenames", ())) for item in items):
        raise pytest.UsageError("CI needs Apache Kafka: neither a Docker engine nor Java with Kafka's jars is here")
    for item in items:
        if item.get_closest_marker("apache_kafka"):
            item.add_marker(pytest.mark.skip(reason="needs Apache Kafka (Java and `make kafka`, or Docker)"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Puts the services' last lines under a failed test."""
    report = yield
    if report.failed:
        for system in item.stash.get(_SYSTEMS, []):
            for service, log in system.logs():
                report.sections.append((f"log of {service}", "\n".join(log.splitlines()[-40:])))
    return report

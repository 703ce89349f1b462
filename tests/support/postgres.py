"""A real Postgres for tests: the schema is made once, and every test has a database of its own, copied from it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from deploy.errors import DeployError
from deploy.local import database
from deploy.local.database import OWNER_ROLE, Database
from deploy.local.postgres import Postgres
from tests.support.ports import free_port

_TEMPLATE = "keepsake_template"
_PASSWORDS = {"owner_password": "owner's for tests", "app_password": "app's for tests"}


class PostgresForTests:
    """`server` can be stopped, killed and started again; its databases stay."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.server = Postgres(folder / "postgres", free_port(), "superuser's for tests", durable=durable)
        self.server.start()
        database.prepare(self.server, _TEMPLATE, **_PASSWORDS)

    def create(self) -> Database:
        """A database with the newest schema and the first tenant, and no other row."""
        name = f"test_{uuid4().hex[:12]}"
        self.server.run_script(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} OWNER {OWNER_ROLE};")
        return database.at(self.server, name, **_PASSWORDS)

    def drop(self, dropped: Database) -> None:
        # A test that killed the server takes its databases with it.
        with suppress(DeployError):
            self.server.run_script(f"DROP DATABASE IF EXISTS {dropped.name} WITH (FORCE);")


@contextmanager
def running_postgres(*, durable: bool = False) -> Iterator[PostgresForTests]:
    with tempfile.TemporaryDirectory(prefix="keepsake-postgres-", ignore_cleanup_errors=True) as folder:
        postgres = PostgresForTests(Path(folder), durable=durable)
        try:
            yield postgres
        finally:
            postgres.server.stop()

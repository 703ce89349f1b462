"""Keepsake's database on a local Postgres: its roles, its schema and their passwords."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from deploy.local.postgres import Postgres
from deploy.migrate import APP_ROLE, migrate, set_app_password

OWNER_ROLE = "keepsake_owner"
BOOTSTRAP = Path(__file__).parents[1] / "bootstrap.sql"


@dataclass(frozen=True)
class Database:
    """One database and the URLs of its roles."""

    name: str
    app_url: str
    owner_url: str
    superuser_url: str


def prepare(server: Postgres, name: str, *, owner_password: str, app_password: str) -> tuple[Database, list[str]]:
    """Makes what is missing of the database; answers it and the migrations that were applied. Raises DeployError."""
    server.run_script(BOOTSTRAP.read_text(), {"database": name, "owner_password": owner_password})
    database = at(server, name, owner_password=owner_password, app_password=app_password)
    applied = migrate(database.owner_url)
    asyncio.run(set_app_password(database.owner_url, database.app_url))
    return database, applied


def at(server: Postgres, name: str, *, owner_password: str, app_password: str) -> Database:
    return Database(
        name=name,
        app_url=server.url(name, APP_ROLE, app_password),
        owner_url=server.url(name, OWNER_ROLE, owner_password),
        superuser_url=server.url(name),
    )

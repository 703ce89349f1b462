"""Settings of the operator's commands."""

from pathlib import Path

from pydantic import Field, SecretStr

from shared.settings import KeepsakeSettings

MIGRATIONS = Path(__file__).parents[1] / "services" / "memory_store" / "migrations"


class DatabaseSettings(KeepsakeSettings):
    """Read by `python -m deploy migrate`."""

    migration_database_url: SecretStr = Field(description="Postgres URL of the owner's role.")
    database_url: SecretStr | None = Field(
        None, description="Postgres URL of memory-store's role; a password in it becomes that role's."
    )

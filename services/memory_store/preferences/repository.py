"""Settings in the database. They are read in the transaction that goes by them and never cached, so a change holds everywhere at once."""

from collections.abc import Iterable, Sequence
from typing import Any

from services.memory_store.database import Connection
from services.memory_store.preferences.schemas import TenantSettings, UserSettings, WorkspaceSettings
from services.memory_store.settings import DueRules

# Also an allow-list: the names of columns that a PATCH may write.
_TENANT = tuple(TenantSettings.model_fields)
_WORKSPACE = tuple(WorkspaceSettings.model_fields)
_USER = tuple(UserSettings.model_fields)


async def tenant_settings(connection: Connection, *, for_change: bool = False) -> TenantSettings:
    lock = "FOR UPDATE" if for_change else ""
    row = await connection.fetchrow(f"SELECT {', '.join(_TENANT)} FROM tenant_setting {lock}")  # noqa: S608 (constants)
    return TenantSettings.model_validate(dict(row or {}))


async def write_tenant_settings(connection: Connection, settings: dict[str, Any]) -> None:
    """`settings` are columns and their new values."""
    await _update(connection, "tenant_setting", _TENANT, settings, "true")


async def workspace_settings(connection: Connection, workspace: str) -> WorkspaceSettings:
    row = await connection.fetchrow(
        "SELECT chat_model, agent_model FROM workspace_setting WHERE workspace = $1", workspace
    )
    return WorkspaceSettings(chat_model=None, agent_model=None) if row is None else WorkspaceSettings(**row)


async def write_workspace_settings(connection: Connection, workspace: str, settings: dict[str, Any]) -> None:
    await connection.execute(
        "INSERT INTO workspace_setting (tenant, workspace) VALUES (current_tenant(), $1) ON CONFLICT DO NOTHING",
        workspace,
    )
    await _update(connection, "workspace_setting", _WORKSPACE, settings, "workspace = $1", workspace)


async def user_settings(connection: Connection) -> UserSettings:
    """Of the transaction's person; as a newcomer's where nothing was ever set."""
    row = await connection.fetchrow("SELECT memory, learning FROM user_setting")
    return UserSettings.model_validate({"memory": True, "learning": True} if row is None else dict(row))


async def write_user_settings(connection: Connection, settings: dict[str, Any]) -> None:
    await connection.execute(
        "INSERT INTO user_setting (tenant, usr) VALUES (current_tenant(), current_person()) ON CONFLICT DO NOTHING"
    )
    await _update(connection, "user_setting", _USER, settings, "true")


async def _update(
    connection: Connection, table: str, columns: tuple[str, ...], settings: dict[str, Any], where: str, *values: Any
) -> None:
    names = [name for name in columns if name in settings]
    if not names:
        return
    sets = ", ".join(f"{name} = ${len(values) + place}" for place, name in enumerate(names, 1))
    await connection.execute(
        f"UPDATE {table} SET {sets}, updated_at = now() WHERE {where}",  # noqa: S608 (names from the schemas)
        *values,
        *(settings[name] for name in names),
    )


async def lock_person(connection: Connection) -> None:
    await connection.execute("SELECT lock_person()")


async def resolved_model(connection: Connection, models: Sequence[str], workspace: str) -> str | None:
    """The entry a run of this workspace is given; None: the offline extractor."""
    name: str | None = await connection.fetchval(
        """
        SELECT resolve_model($1, w.chat_model, w.agent_model, s.model)
        FROM tenant_setting s LEFT JOIN workspace_setting w ON w.tenant = s.tenant AND w.workspace = $2
        """,
        list(models),
        workspace,
    )
    return name


async def tenant_stops_learning(connection: Connection) -> None:
    await connection.execute("UPDATE tenant_setting SET off_since = now()")


async def tenant_learns_again(connection: Connection) -> None:
    """What was said meanwhile stays unread; what waited before is read."""
    await connection.execute("SELECT add_barrier('off', NULL, NULL, off_since, now(), 0) FROM tenant_setting")
    await connection.execute("UPDATE tenant_setting SET off_since = NULL")


async def forget_unread(connection: Connection, rules: DueRules) -> None:
    """Closes all that the person said until now to reading, staged or still on its way, also when a run holds it."""
    # A broker's clock may be ahead of the database's; what is staged was said before.
    await connection.execute(
        """
        SELECT add_barrier('opted_out', NULL, NULL, NULL, greatest(now(), max(recorded_at)), 9223372036854775807)
        FROM chat WHERE state = 'pending'
        """
    )
    await connection.execute("SELECT exclude_barred($1, NULL)", rules.row())


async def audit(connection: Connection, user: str, actor: str, changed: Iterable[str]) -> None:
    """`user` is '' for the tenant's settings; `changed` names them."""
    await connection.execute(
        "INSERT INTO audit (tenant, usr, actor, action, code) VALUES (current_tenant(), $1, $2, 'settings.changed', $3)",
        user,
        actor,
        ",".join(sorted(changed)),
    )

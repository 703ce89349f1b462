"""Keys, tokens and tenants in the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from services.memory_store.access.schemas import Key, Tenant
from services.memory_store.database import Connection


@dataclass(frozen=True, slots=True)
class Credential:
    kind: str  # key or token
    tenant: str
    id: str
    usr: str | None
    scopes: list[str]
    workspaces: list[str] | None
    admin: bool
    expires_at: datetime | None


async def find_credential(connection: Connection, sha256: bytes) -> Credential | None:
    """A key or token that holds now; tenants apart do not matter yet, since it says which tenant it is."""
    row = await connection.fetchrow(
        "SELECT kind, tenant, id, usr, scopes, workspaces, admin, expires_at FROM find_credential($1)", sha256
    )
    return None if row is None else Credential(**row)


_KEY = "id, name, scopes, workspaces, created_at, created_by"


async def insert_key(
    connection: Connection,
    *,
    key_id: str,
    name: str,
    sha256: bytes,
    scopes: Sequence[str],
    workspaces: Sequence[str] | None,
    created_by: str,
) -> Key:
    row = await connection.fetchrow(
        f"""
        INSERT INTO api_key (tenant, id, name, sha256, scopes, workspaces, created_by)
        VALUES (current_tenant(), $1, $2, $3, $4, $5, $6) RETURNING {_KEY}
        """,  # noqa: S608 (a constant)
        key_id,
        name,
        sha256,
        scopes,
        workspaces,
        created_by,
    )
    return Key.model_validate(dict(row or {}))


async def list_keys(connection: Connection, after: tuple[datetime, str] | None, limit: int) -> list[Key]:
    """Those that hold, oldest first."""
    rows = await connection.fetch(
        f"""
        SELECT {_KEY} FROM api_key
        WHERE revoked_at IS NULL AND ($1::timestamptz IS NULL OR (created_at, id) > ($1, $2))
        ORDER BY created_at, id LIMIT $3
        """,  # noqa: S608
        *(after or (None, None)),
        limit,
    )
    return [Key.model_validate(dict(row)) for row in rows]


async def revoke_key(connection: Connection, key_id: str) -> bool:
    status = await connection.execute(
        "UPDATE api_key SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL", key_id
    )
    return status == "UPDATE 1"


async def insert_token(
    connection: Connection,
    *,
    user: str | None,
    sha256: bytes,
    minted_by: str,
    scopes: Sequence[str],
    workspaces: Sequence[str] | None,
    admin: bool,
    ttl_s: int,
) -> datetime:
    """When it ends. The person's tokens that have ended leave on the way."""
    await connection.execute("DELETE FROM user_token WHERE expires_at < now()")
    expires_at: datetime = await connection.fetchval(
        """
        INSERT INTO user_token (tenant, usr, sha256, minted_by, scopes, workspaces, admin, expires_at)
        VALUES (current_tenant(), $1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7)) RETURNING expires_at
        """,
        user or "",
        sha256,
        minted_by,
        scopes,
        workspaces,
        admin,
        float(ttl_s),
    )
    return expires_at


async def tenant_exists(connection: Connection, tenant: str) -> bool:
    return await connection.fetchval("SELECT EXISTS (SELECT FROM tenant WHERE tenant = $1)", tenant) is True


async def insert_tenant(connection: Connection, tenant: str, *, personalization: bool) -> bool:
    """False where it is there already; then nothing changes. The transaction is the new tenant's."""
    status = await connection.execute("INSERT INTO tenant (tenant) VALUES ($1) ON CONFLICT DO NOTHING", tenant)
    await connection.execute(
        """
        INSERT INTO tenant_setting (tenant, personalization, off_since)
        VALUES ($1, $2, CASE WHEN $2 THEN NULL ELSE now() END) ON CONFLICT DO NOTHING
        """,
        tenant,
        personalization,
    )
    return status == "INSERT 0 1"


async def one_tenant(connection: Connection, tenant: str) -> Tenant:
    row = await connection.fetchrow("SELECT tenant, created_at FROM tenant WHERE tenant = $1", tenant)
    return Tenant.model_validate(dict(row or {}))


async def list_tenants(connection: Connection, after: str | None, limit: int) -> list[Tenant]:
    rows = await connection.fetch(
        "SELECT tenant, created_at FROM tenant WHERE $1::text IS NULL OR tenant > $1 ORDER BY tenant LIMIT $2",
        after,
        limit,
    )
    return [Tenant.model_validate(dict(row)) for row in rows]


async def audit(connection: Connection, actor: str, action: str, code: str | None = None) -> None:
    """An act that concerns no user, as on keys and settings."""
    await connection.execute(
        "INSERT INTO audit (tenant, usr, actor, action, code) VALUES (current_tenant(), '', $1, $2, $3)",
        actor,
        action,
        code,
    )

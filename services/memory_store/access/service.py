"""Who holds a credential, and how keys, tokens and tenants come and go."""

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from services.memory_store.access import repository
from services.memory_store.access.schemas import (
    CreateKey,
    KeyList,
    MintToken,
    NewKey,
    Tenant,
    TenantList,
    Token,
)
from services.memory_store.cursors import Cursor
from services.memory_store.database import Database
from shared.auth import SCOPES, Principal, hash_credential
from shared.events import Time
from shared.ids import DEFAULT_TENANT, Id, check_id, is_anonymous
from shared.problems import Problem
from shared.rpc.errors import RpcError
from shared.rpc.messages import Authenticate, AuthenticateReply

KEY_PREFIX, TOKEN_PREFIX = "ks_", "kt_"
# What a user token may inherit of its key; `admin` too, when it is asked for.
TOKEN_SCOPES = frozenset({"facts:read", "facts:write", "chats:write", "assemble"})

_KEYS: Cursor[tuple[datetime, str]] = Cursor(tuple[Time, Id])
_TENANTS: Cursor[str] = Cursor(Id)


@dataclass(frozen=True, slots=True)
class Access:
    """`operator_sha256`: hash of the operator's key, hex. `personalization`: how a new tenant starts. `stand_ins`: as in settings."""

    database: Database
    operator_sha256: str
    personalization: bool
    stand_ins: Sequence[str]

    async def authenticate(self, request: Authenticate) -> AuthenticateReply:
        """Answers the RPC. Raises RpcError `unauthenticated`, or `not_found` for a tenant that is not there (or not this key's)."""
        if hmac.compare_digest(request.key_sha256, self.operator_sha256):
            return await self._operator(request.tenant or DEFAULT_TENANT)
        async with self.database.anonymous() as connection:
            found = await repository.find_credential(connection, bytes.fromhex(request.key_sha256))
        if found is None:
            raise RpcError("unauthenticated")
        if request.tenant is not None and request.tenant != found.tenant:
            raise RpcError("not_found", "this tenant is not there")
        return AuthenticateReply(
            actor=f"{found.kind}:{found.id}" if found.usr is None else f"user:{found.usr}",
            tenant=found.tenant,
            scopes=found.scopes,
            user=found.usr,
            workspaces=found.workspaces,
            admin="admin" in found.scopes,
            expires_at=found.expires_at,
        )

    async def _operator(self, tenant: str) -> AuthenticateReply:
        try:
            check_id(tenant)
        except ValueError:
            raise RpcError("not_found", "this tenant is not there") from None
        async with self.database.tenant(tenant) as connection:
            if not await repository.tenant_exists(connection, tenant):
                raise RpcError("not_found", "this tenant is not there")
        return AuthenticateReply(actor="operator", tenant=tenant, scopes=list(SCOPES), operator=True, admin=True)

    async def create_key(self, who: Principal, wanted: CreateKey) -> NewKey:
        key_id = secrets.token_hex(8)
        key = f"{KEY_PREFIX}{key_id}_{secrets.token_urlsafe(32)}"
        async with self.database.tenant(who.tenant) as connection:
            kept = await repository.insert_key(
                connection,
                key_id=key_id,
                name=wanted.name,
                sha256=bytes.fromhex(hash_credential(key)),
                scopes=wanted.scopes,
                workspaces=_narrowed(who, wanted.workspaces),
                created_by=who.actor,
            )
            await repository.audit(connection, who.actor, "key.created", key_id)
        return NewKey(**kept.model_dump(), key=key)

    async def list_keys(self, who: Principal, cursor: str | None, limit: int) -> KeyList:
        after = _KEYS.read(cursor)
        async with self.database.tenant(who.tenant) as connection:
            items = await repository.list_keys(connection, after, limit + 1)
        more = len(items) > limit
        items = items[:limit]
        return KeyList(items=items, next_cursor=_KEYS.write((items[-1].created_at, items[-1].id)) if more else None)

    async def revoke_key(self, who: Principal, key_id: str) -> None:
        """Its tokens end with it. Raises Problem not_found."""
        async with self.database.tenant(who.tenant) as connection:
            if not await repository.revoke_key(connection, key_id):
                raise Problem("not_found")
            await repository.audit(connection, who.actor, "key.revoked", key_id)

    async def mint_token(self, who: Principal, wanted: MintToken) -> Token:
        """Raises Problem forbidden where `admin` is asked for by a key that has it not, not_found for a workspace it has not."""
        if wanted.user is None and not wanted.admin:
            raise Problem("invalid", "a token needs a user, or admin")
        if wanted.user is not None and is_anonymous(wanted.user, self.stand_ins):
            raise Problem("invalid", "nobody is signed in under this user")
        if wanted.admin and not who.may("admin"):
            raise Problem("forbidden", "this key is no administrator's, so its tokens are not either")
        scopes = {scope for scope in TOKEN_SCOPES if wanted.user is not None and who.may(scope)}
        if wanted.admin:
            scopes.add("admin")
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        async with self.database.person(who.tenant, wanted.user or "") as connection:
            expires_at = await repository.insert_token(
                connection,
                user=wanted.user,
                sha256=bytes.fromhex(hash_credential(token)),
                minted_by=who.actor.removeprefix("key:"),
                scopes=sorted(scopes),
                workspaces=_narrowed(who, wanted.workspaces),
                admin=wanted.admin,
                ttl_s=wanted.ttl,
            )
        return Token(token=token, expires_at=expires_at)

    async def create_tenant(self, who: Principal, tenant: str) -> tuple[Tenant, bool]:
        """The tenant, and whether it is new."""
        new = await ensure_tenant(self.database, tenant, personalization=self.personalization)
        async with self.database.tenant(tenant) as connection:
            if new:
                await repository.audit(connection, who.actor, "tenant.created")
            return await repository.one_tenant(connection, tenant), new

    async def list_tenants(self, cursor: str | None, limit: int) -> TenantList:
        after = _TENANTS.read(cursor)
        async with self.database.anonymous() as connection:
            items = await repository.list_tenants(connection, after, limit + 1)
        more = len(items) > limit
        items = items[:limit]
        return TenantList(items=items, next_cursor=_TENANTS.write(items[-1].tenant) if more else None)


async def ensure_tenant(database: Database, tenant: str, *, personalization: bool) -> bool:
    """Safe to run twice; true where the tenant is new."""
    async with database.tenant(tenant) as connection:
        return await repository.insert_tenant(connection, tenant, personalization=personalization)


def _narrowed(who: Principal, wanted: Sequence[str] | None) -> list[str] | None:
    """Nobody hands out more workspaces than they have. Raises Problem not_found."""
    if wanted is None:
        return None if who.workspaces is None else sorted(who.workspaces)
    for workspace in wanted:
        who.check_workspace(workspace)
    return list(wanted)

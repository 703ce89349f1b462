"""Who calls: API keys, user tokens and the operator's key, and what each may do.

A route says which scopes open it by `Requires(…)`; any one of them is enough. Beside the scopes of keys there are three conditions:
`own` (a user token, which sees what is its user's), `operator` (the operator's key) and `any` (any valid credential).
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from shared.ids import MAX_ID_LENGTH
from shared.problems import Problem, unauthenticated
from shared.rpc import messages as m
from shared.rpc.errors import RpcError
from shared.telemetry.metrics import AUTH_FAILURES

SCOPES = ("chats:write", "facts:read", "facts:write", "assemble", "admin", "tokens:mint")
CONDITIONS = ("own", "operator", "any")
TENANT_HEADER = "Keepsake-Tenant"
MAX_CREDENTIAL_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Principal:
    """Who acts. `user` is set for a user token; `workspaces` None means all, an empty set none."""

    tenant: str
    actor: str
    scopes: frozenset[str]
    user: str | None = None
    workspaces: frozenset[str] | None = None
    operator: bool = False

    def may(self, need: str) -> bool:
        if need == "any":
            return True
        if need == "own":
            return self.user is not None
        if need == "operator":
            return self.operator
        return self.operator or need in self.scopes

    def check_user(self, user: str | None) -> None:
        """Raises Problem not_found for another's: as if it did not exist."""
        if self.user is not None and user != self.user:
            raise Problem("not_found")

    def sees_workspace(self, workspace: str) -> bool:
        return self.workspaces is None or workspace in self.workspaces

    def check_workspace(self, workspace: str | None) -> None:
        """Raises Problem not_found for a workspace that this credential does not have. None is the global scope, always there."""
        if workspace is not None and not self.sees_workspace(workspace):
            raise Problem("not_found")

    @classmethod
    def of(cls, reply: m.AuthenticateReply) -> "Principal":
        return cls(
            tenant=reply.tenant,
            actor=reply.actor,
            scopes=frozenset(reply.scopes),
            user=reply.user,
            workspaces=None if reply.workspaces is None else frozenset(reply.workspaces),
            operator=reply.operator,
        )


class Authenticator(Protocol):
    async def authenticate(self, credential: str, tenant: str | None) -> Principal:
        """Raises Problem unauthenticated or not_found (a tenant that is not there), RpcError unavailable."""
        ...


def hash_credential(credential: str) -> str:
    return hashlib.sha256(credential.encode("utf-8", "surrogateescape")).hexdigest()


class KnowsCredentials(Protocol):
    """memory-store, from afar (MemoryStoreClient) or within."""

    async def authenticate(self, request: m.Authenticate) -> m.AuthenticateReply:
        """Raises RpcError unauthenticated, not_found, unavailable."""
        ...


@dataclass(slots=True)
class RpcAuthenticator:
    """Asks memory-store and remembers the answer for `ttl_s`, so that a revoked key is gone within 30 s."""

    store: KnowsCredentials
    ttl_s: float = 20.0
    refused_ttl_s: float = 2.0
    max_entries: int = 10_000
    clock: Callable[[], float] = time.monotonic
    _known: OrderedDict[tuple[str, str | None], tuple[float, Principal | None]] = field(default_factory=OrderedDict)

    async def authenticate(self, credential: str, tenant: str | None) -> Principal:
        key = (hash_credential(credential), tenant)
        known = self._known.get(key)
        if known is None or known[0] < self.clock():
            known = await self._ask(key)
        if known[1] is None:
            AUTH_FAILURES.labels("unknown").inc()
            raise unauthenticated()
        return known[1]

    async def _ask(self, key: tuple[str, str | None]) -> tuple[float, Principal | None]:
        try:
            reply = await self.store.authenticate(m.Authenticate(key_sha256=key[0], tenant=key[1]))
        except RpcError as error:
            if error.code == "not_found":
                raise Problem("not_found", "this tenant is not there") from None
            if error.code != "unauthenticated":
                raise
            answer: tuple[float, Principal | None] = (self.clock() + self.refused_ttl_s, None)
        else:
            ends = self.ttl_s
            if reply.expires_at is not None:
                ends = min(ends, reply.expires_at.timestamp() - time.time())
            answer = (self.clock() + ends, Principal.of(reply))
        self._known[key] = answer
        self._known.move_to_end(key)
        while len(self._known) > self.max_entries:
            self._known.popitem(last=False)
        return answer


_bearer = HTTPBearer(auto_error=False, description="An API key or a user token.")


async def authenticated(
    request: Request,
    needs: SecurityScopes,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Principal:
    """Raises Problem unauthenticated, forbidden; RpcError unavailable where memory-store is away."""
    if credentials is None or not credentials.credentials or len(credentials.credentials) > MAX_CREDENTIAL_LENGTH:
        AUTH_FAILURES.labels("missing").inc()
        raise unauthenticated()
    tenant = request.headers.get(TENANT_HEADER)
    if tenant is not None and not 1 <= len(tenant) <= MAX_ID_LENGTH:
        raise Problem("not_found", "this tenant is not there")
    authenticator: Authenticator = request.app.state.authenticator
    principal = await authenticator.authenticate(credentials.credentials, tenant)
    if not any(principal.may(need) for need in needs.scopes):
        AUTH_FAILURES.labels("forbidden").inc()
        raise Problem("forbidden", f"this needs one of: {', '.join(needs.scopes)}")
    return principal


def Requires(*needs: str) -> Any:  # noqa: N802 (reads as a marker in a signature, as Depends does)
    """Marks a route's `Principal` parameter: `who: Annotated[Principal, Requires("facts:read")]`; any one of `needs` is enough.

    The needs stand in the OpenAPI document, where the matrix test reads them.
    """
    unknown = set(needs) - set(SCOPES) - set(CONDITIONS)
    if unknown or not needs:
        raise ValueError(f"unknown scopes: {sorted(unknown)}")
    return Security(authenticated, scopes=list(needs))

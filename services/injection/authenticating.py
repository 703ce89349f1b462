"""Authentication for a service whose main answer must come also while memory-store, which knows the keys, is away."""

import asyncio

from shared.auth import Authenticator, Principal
from shared.rpc.errors import RpcError

NOBODY = Principal(tenant="", actor="unknown", scopes=frozenset({"assemble", "facts:read"}))
"""Who calls could not be asked. Its routes must look at nothing: assemble hands the prompt back, the others answer 503."""


class ForgivingAuthenticator:
    """Asks for at most `timeout_s` and answers NOBODY where memory-store does not; a wrong credential is refused as everywhere."""

    def __init__(self, inner: Authenticator, *, timeout_s: float) -> None:
        self._inner = inner
        self._timeout_s = timeout_s

    async def authenticate(self, credential: str, tenant: str | None) -> Principal:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._inner.authenticate(credential, tenant)
        except (RpcError, TimeoutError):
            return NOBODY

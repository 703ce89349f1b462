"""Routes of keys, tokens and tenants."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from services.memory_store.access.schemas import (
    CreateKey,
    CreateTenant,
    KeyList,
    MintToken,
    NewKey,
    Tenant,
    TenantList,
    Token,
)
from services.memory_store.access.service import Access
from services.memory_store.cursors import PageCursor, PageSize
from shared.auth import Principal, Requires

router = APIRouter(tags=["access"])


def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


Service = Annotated[Access, Depends(_access)]
Admin = Annotated[Principal, Requires("admin")]
Operator = Annotated[Principal, Requires("operator")]
KeyId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]


@router.get("/v1/keys", summary="Keys of the tenant that hold, oldest first")
async def list_keys(access: Service, who: Admin, limit: PageSize = 100, cursor: PageCursor = None) -> KeyList:
    return await access.list_keys(who, cursor, limit)


@router.post("/v1/keys", status_code=201, summary="Make a key; it is shown this once")
async def create_key(access: Service, who: Admin, wanted: CreateKey, response: Response) -> NewKey:
    response.headers["Cache-Control"] = "no-store"
    return await access.create_key(who, wanted)


@router.delete("/v1/keys/{key_id}", status_code=204, summary="Revoke a key and its tokens, everywhere within 30 s")
async def revoke_key(access: Service, who: Admin, key_id: KeyId) -> None:
    await access.revoke_key(who, key_id)


@router.post("/v1/tokens", summary="Mint a token for one user")
async def mint_token(
    access: Service, who: Annotated[Principal, Requires("tokens:mint")], wanted: MintToken, response: Response
) -> Token:
    response.headers["Cache-Control"] = "no-store"
    return await access.mint_token(who, wanted)


@router.get("/v1/tenants", summary="All tenants")
async def list_tenants(access: Service, _: Operator, limit: PageSize = 100, cursor: PageCursor = None) -> TenantList:
    return await access.list_tenants(cursor, limit)


@router.post(
    "/v1/tenants", status_code=201, summary="Make a tenant", responses={200: {"model": Tenant, "description": "There"}}
)
async def create_tenant(access: Service, who: Operator, wanted: CreateTenant, response: Response) -> Tenant:
    tenant, new = await access.create_tenant(who, wanted.tenant)
    response.status_code = 201 if new else 200
    return tenant

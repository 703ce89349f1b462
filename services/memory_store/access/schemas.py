"""Keys, tokens and tenants over HTTP."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shared.ids import Id

KeyScope = Literal["chats:write", "facts:read", "facts:write", "assemble", "admin", "tokens:mint"]
MAX_TOKEN_S = 3600
DEFAULT_TOKEN_S = 900


def _distinct(values: list[str]) -> list[str]:
    return sorted(set(values))


Workspaces = Annotated[list[Id], Field(max_length=200), AfterValidator(_distinct)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CreateKey(Request):
    name: Id
    scopes: Annotated[list[KeyScope], Field(min_length=1, max_length=20), AfterValidator(_distinct)]
    workspaces: Workspaces | None = Field(default=None, description="absent or null = all of the tenant, [] = none")


class Key(BaseModel):
    id: str
    name: str
    scopes: list[str]
    workspaces: list[str] | None
    created_at: datetime
    created_by: str


class NewKey(Key):
    key: str = Field(description="shown this once")


class KeyList(BaseModel):
    items: list[Key]
    next_cursor: str | None


class MintToken(Request):
    """Without a user the token holds `admin` alone, so it must be asked for."""

    user: Id | None = None
    workspaces: Workspaces | None = Field(default=None, description="absent or null = those of the key, [] = none")
    ttl: Annotated[int, Field(ge=1, le=MAX_TOKEN_S, description="seconds")] = DEFAULT_TOKEN_S
    admin: bool = False


class Token(BaseModel):
    token: str
    expires_at: datetime


class CreateTenant(Request):
    tenant: Id


class Tenant(BaseModel):
    tenant: str
    created_at: datetime


class TenantList(BaseModel):
    items: list[Tenant]
    next_cursor: str | None

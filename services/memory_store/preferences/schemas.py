"""Settings of a tenant, a workspace and a user over HTTP. In a PATCH an absent field stays and null takes the default back."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _switch(value: object) -> object:
    """YAML 1.1 writes on and off as booleans, so clients send them."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


Switch = Annotated[Literal["on", "off"], BeforeValidator(_switch)]
Sensitive = Literal["skip", "approve", "allow"]
Cap = Annotated[int, Field(ge=0, le=200)]
ModelName = Annotated[str, Field(min_length=1, max_length=200)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TenantSettings(BaseModel):
    personalization: Switch
    auto_extraction: Switch
    require_approval: Switch
    sensitive: Sensitive
    max_workspace_facts: int
    max_global_facts: int
    model: str | None = Field(description="a name of the operator's entries; null = the operator's default")
    heading: str


class PatchTenantSettings(Request):
    personalization: Switch | None = None
    auto_extraction: Switch | None = None
    require_approval: Switch | None = None
    sensitive: Sensitive | None = None
    max_workspace_facts: Cap | None = None
    max_global_facts: Cap | None = None
    model: ModelName | None = None
    heading: Annotated[str, Field(max_length=200)] | None = None


class WorkspaceSettings(BaseModel):
    """Names of the operator's model entries. `chat_model` is what the workspace chats with, `agent_model` what its agent uses."""

    chat_model: str | None
    agent_model: str | None


class PatchWorkspaceSettings(Request):
    chat_model: ModelName | None = None
    agent_model: ModelName | None = None


class UserSettings(BaseModel):
    memory: Switch = Field(description="off: nothing is injected")
    learning: Switch = Field(description="off: chats are dropped unread")


class PatchUserSettings(Request):
    memory: Switch | None = None
    learning: Switch | None = None


class EffectiveSettings(TenantSettings):
    """What is in force for one user in one workspace: `model` is the entry that reads their chats, null = the offline extractor."""

    memory: Switch
    learning: Switch

"""Routes of settings."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from services.memory_store.preferences.schemas import (
    EffectiveSettings,
    PatchTenantSettings,
    PatchUserSettings,
    PatchWorkspaceSettings,
    TenantSettings,
    UserSettings,
    WorkspaceSettings,
)
from services.memory_store.preferences.service import Preferences
from shared.auth import Principal, Requires
from shared.ids import DEFAULT_WORKSPACE, Id

router = APIRouter(tags=["settings"])


def _preferences(request: Request) -> Preferences:
    preferences: Preferences = request.app.state.preferences
    return preferences


Service = Annotated[Preferences, Depends(_preferences)]
Admin = Annotated[Principal, Requires("admin")]
Own = Annotated[Principal, Requires("admin", "own")]
User = Annotated[Id, Query()]
Workspace = Annotated[Id, Query()]


@router.get("/v1/settings", summary="The tenant's settings")
async def tenant_settings(preferences: Service, who: Admin) -> TenantSettings:
    return await preferences.tenant(who)


@router.patch("/v1/settings", summary="Change them; in force at once")
async def patch_tenant_settings(preferences: Service, who: Admin, patch: PatchTenantSettings) -> TenantSettings:
    return await preferences.patch_tenant(who, patch)


@router.get("/v1/settings/effective", summary="What is in force for a user in a workspace")
async def effective_settings(
    preferences: Service,
    who: Annotated[Principal, Requires("any")],
    user: Annotated[Id | None, Query()] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> EffectiveSettings:
    return await preferences.effective(who, user, workspace)


@router.get("/v1/workspaces/settings", summary="A workspace's models")
async def workspace_settings(
    preferences: Service, who: Admin, workspace: Workspace = DEFAULT_WORKSPACE
) -> WorkspaceSettings:
    return await preferences.workspace(who, workspace)


@router.patch("/v1/workspaces/settings", summary="Change them")
async def patch_workspace_settings(
    preferences: Service, who: Admin, patch: PatchWorkspaceSettings, workspace: Workspace = DEFAULT_WORKSPACE
) -> WorkspaceSettings:
    return await preferences.patch_workspace(who, workspace, patch)


@router.get("/v1/users/settings", summary="Whether a user's memory is used, and whether it learns")
async def user_settings(preferences: Service, who: Own, user: User) -> UserSettings:
    return await preferences.user(who, user)


@router.patch("/v1/users/settings", summary="Change them; learning off also deletes the chats that wait to be read")
async def patch_user_settings(preferences: Service, who: Own, user: User, patch: PatchUserSettings) -> UserSettings:
    return await preferences.patch_user(who, user, patch)

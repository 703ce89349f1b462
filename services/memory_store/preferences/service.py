"""Settings: who may see and change them, and what turning learning off and on does to chats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from services.memory_store.database import Database
from services.memory_store.preferences import repository
from services.memory_store.preferences.schemas import (
    EffectiveSettings,
    PatchTenantSettings,
    PatchUserSettings,
    PatchWorkspaceSettings,
    TenantSettings,
    UserSettings,
    WorkspaceSettings,
)
from services.memory_store.settings import DueRules
from shared.auth import Principal
from shared.ids import is_anonymous
from shared.problems import Problem
from shared.text.normal import ContentError, clean_content

DEFAULT_HEADING = "## Things I Remember About You"
_DEFAULTS: Mapping[str, Any] = {
    "auto_extraction": True,
    "require_approval": False,
    "sensitive": "approve",
    "max_workspace_facts": 20,
    "max_global_facts": 5,
    "model": None,
    "heading": DEFAULT_HEADING,
    "chat_model": None,
    "agent_model": None,
    "memory": True,
    "learning": True,
}


@dataclass(frozen=True, slots=True)
class Preferences:
    """`models`: names of the operator's entries, the default first. `personalization`: how a new tenant starts."""

    database: Database
    models: Sequence[str]
    personalization: bool
    stand_ins: Sequence[str]
    rules: DueRules

    async def tenant(self, who: Principal) -> TenantSettings:
        async with self.database.tenant(who.tenant) as connection:
            return await repository.tenant_settings(connection)

    async def patch_tenant(self, who: Principal, patch: PatchTenantSettings) -> TenantSettings:
        changes = self._changes(patch)
        async with self.database.tenant(who.tenant) as connection:
            before = await repository.tenant_settings(connection, for_change=True)
            await repository.write_tenant_settings(connection, changes)
            after = await repository.tenant_settings(connection)
            if _learns(before) and not _learns(after):
                await repository.tenant_stops_learning(connection)
            elif _learns(after) and not _learns(before):
                await repository.tenant_learns_again(connection)
            await repository.audit(connection, "", who.actor, changes)
            return after

    async def workspace(self, who: Principal, workspace: str) -> WorkspaceSettings:
        who.check_workspace(workspace)
        async with self.database.tenant(who.tenant) as connection:
            return await repository.workspace_settings(connection, workspace)

    async def patch_workspace(self, who: Principal, workspace: str, patch: PatchWorkspaceSettings) -> WorkspaceSettings:
        who.check_workspace(workspace)
        changes = self._changes(patch)
        async with self.database.tenant(who.tenant) as connection:
            await repository.write_workspace_settings(connection, workspace, changes)
            await repository.audit(connection, "", who.actor, changes)
            return await repository.workspace_settings(connection, workspace)

    async def user(self, who: Principal, user: str) -> UserSettings:
        who.check_user(user)
        async with self.database.person(who.tenant, user) as connection:
            return await repository.user_settings(connection)

    async def patch_user(self, who: Principal, user: str, patch: PatchUserSettings) -> UserSettings:
        who.check_user(user)
        if is_anonymous(user, self.stand_ins):
            raise Problem("invalid", "nobody is signed in under this user")
        changes = self._changes(patch)
        async with self.database.person(who.tenant, user) as connection:
            await repository.lock_person(connection)
            before = await repository.user_settings(connection)
            await repository.write_user_settings(connection, changes)
            after = await repository.user_settings(connection)
            if before.learning != after.learning:
                # Off: what waits goes. On: what was said meanwhile stays unlearned, however late it comes.
                await repository.forget_unread(connection, self.rules)
            await repository.audit(connection, user, who.actor, changes)
            return after

    async def effective(self, who: Principal, user: str | None, workspace: str) -> EffectiveSettings:
        """What holds for this user (of a user token: its own) in this workspace; without a user, what holds for a newcomer."""
        if user is None:
            user = who.user
        who.check_user(user)
        who.check_workspace(workspace)
        async with self.database.person(who.tenant, user or "") as connection:
            of_tenant = await repository.tenant_settings(connection)
            of_user = await repository.user_settings(connection)
            model = await repository.resolved_model(connection, self.models, workspace)
        return EffectiveSettings(**(of_tenant.model_dump() | of_user.model_dump() | {"model": model}))

    def _changes(self, patch: BaseModel) -> dict[str, Any]:
        """Columns and their new values. Raises Problem unknown_model, invalid."""
        given = patch.model_dump(exclude_unset=True)
        if not given:
            raise Problem("invalid", "nothing to change")
        changes = {name: self._default(name) if value is None else value for name, value in given.items()}
        for name in ("model", "chat_model", "agent_model"):
            if changes.get(name) is not None and changes[name] not in self.models:
                raise Problem("unknown_model", f"{name}: the operator lists no entry of this name")
        if "heading" in changes:
            try:
                changes["heading"] = clean_content(changes["heading"])
            except ContentError as error:
                raise Problem("invalid", f"heading: {error.reason}") from None
        return {name: {"on": True, "off": False}.get(value, value) for name, value in changes.items()}

    def _default(self, name: str) -> Any:
        return self.personalization if name == "personalization" else _DEFAULTS[name]


def _learns(settings: TenantSettings) -> bool:
    return settings.personalization == "on" and settings.auto_extraction == "on"

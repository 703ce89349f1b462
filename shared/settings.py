"""Settings from the environment, one class per service. A wrong one ends the start with one line that names it, exit code 2."""

import argparse
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

PREFIX = "KEEPSAKE_"
EXIT_BAD_SETTING = 2

AnySettings = TypeVar("AnySettings", bound=BaseSettings)


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


class KeepsakeSettings(BaseSettings):
    """Reads `KEEPSAKE_<FIELD>`. An empty variable counts as unset, as compose files and charts leave them."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )


class ServiceSettings(KeepsakeSettings):
    """What every service has."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 in a container.")
    port: int = Field(ge=0, le=65535, description="Port to listen on.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="The least level that is logged."
    )
    log_format: Literal["console", "json"] = Field("console", description="`console` for people, `json` for machines.")
    cors_origins: CommaSeparated = Field((), description="Origins whose pages may call the API, comma-separated.")
    shutdown_grace_s: float = Field(30.0, ge=0, description="Seconds that work in progress has to end at SIGTERM.")


class StoreClientSettings(KeepsakeSettings):
    """How a service reaches memory-store."""

    memory_store_url: str = Field("http://127.0.0.1:8002", description="Base URL of memory-store.")
    service_key: SecretStr = Field(description="This service's key; memory-store knows its SHA-256.")


def fail(message: str) -> NoReturn:
    """Ends a start that cannot succeed: one line, exit code 2."""
    print(f"keepsake: {message}", file=sys.stderr)  # noqa: T201 (before logs are configured)
    raise SystemExit(EXIT_BAD_SETTING)


def variable(name: str) -> str:
    return PREFIX + name.upper()


def load(settings: type[AnySettings], program: str, argv: Sequence[str] | None = None) -> AnySettings:
    """Reads the settings; `--help` lists them. Exits with 2 and one line on a wrong or missing one."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description="Settings are environment variables:\n\n" + describe(settings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    try:
        return settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = variable(str(first["loc"][0])) if first["loc"] else PREFIX + "*"
        inner = "".join(f"[{part}]" for part in first["loc"][1:])
        problem = "is missing" if first["type"] == "missing" else f"is wrong: {first['msg']}"
        fail(f"{place}{inner} {problem} (see python -m {program} --help)")
    except SettingsError as error:
        # A structure that is no JSON; pydantic-settings names the field in its text and never the value.
        named = [variable(name) for name in settings.model_fields if f'"{name}"' in str(error)]
        fail(f"{', '.join(named) or 'a setting'} is wrong: not valid JSON (see python -m {program} --help)")


def shown_default(field: FieldInfo) -> str:
    """The default as one would write it in the environment; "required" where there is none."""
    if field.is_required():
        return "required"
    default: Any = field.get_default(call_default_factory=True, validated_data={})
    if default is None or default in ((), [], {}):
        return ""
    if isinstance(default, tuple):
        return ",".join(str(part) for part in default)
    if isinstance(default, bool):
        return str(default).lower()
    return str(default)


def describe(settings: type[BaseSettings]) -> str:
    rows = [
        f"  {variable(name)}  [{shown_default(field)}]\n      {field.description or ''}"
        for name, field in settings.model_fields.items()
    ]
    return "\n".join(rows)

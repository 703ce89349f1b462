"""Settings of memory-store."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from shared.ids import STAND_INS
from shared.kafka import KafkaSettings
from shared.settings import CommaSeparated, ServiceSettings

ServiceName = Literal["chat-ingest", "injection", "extraction"]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _interval(value: object) -> object:
    """`90s`, `15m`, `3h`, `1d`."""
    if isinstance(value, str) and value[:-1].isdigit() and value[-1:] in _UNITS:
        return timedelta(seconds=int(value[:-1]) * _UNITS[value[-1]])
    if value is None or isinstance(value, timedelta):
        return value
    raise ValueError("write a number and s, m, h or d, as in 15m")


class ModelEntry(BaseModel):
    """Of `KEEPSAKE_MODELS` memory-store reads the names alone: which there are, and which is the default."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class DueRules:
    """When a batch is due; the SQL type `due_rules`. `max_wait` None: never; `round_to` None: not at all."""

    min_chats: int
    idle: timedelta
    window_chats: int
    max_wait: timedelta | None
    round_to: timedelta | None

    def row(self) -> tuple[Any, ...]:
        return (self.min_chats, self.idle, self.window_chats, self.max_wait, self.round_to)


class Settings(ServiceSettings, KafkaSettings):
    port: int = Field(8002, ge=0, le=65535, description="Port to listen on.")
    database_url: SecretStr = Field(description="Postgres URL of memory-store's role (keepsake_app).")
    database_pool: int = Field(
        10, ge=1, le=200, description="Most connections for people's requests; as many again stage and run."
    )
    admin_key: SecretStr = Field(
        description="The operator's key, for tenant `default` or the one in `Keepsake-Tenant`."
    )
    service_keys: Mapping[ServiceName, tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], ...]] = Field(
        description="SHA-256 (hex) of each service's keys, two while one is replaced: JSON `{service: [sha256, …]}`."
    )
    models: tuple[ModelEntry, ...] = Field(
        (),
        description="The operator's model entries, JSON as for extraction; memory-store reads the names. The first is the default.",
    )
    model: str | None = Field(None, description="Short form of one entry, named `default`.")
    personalization: bool = Field(False, description="Whether a new tenant starts with memory on.")
    anonymous_users: CommaSeparated = Field(
        STAND_INS, description="What applications send as user when nobody is signed in; any case."
    )
    idempotency_days: float = Field(
        90,
        gt=0,
        le=36_500,
        description="Days for which an event id is known; older records are dead letters. Above topic retention.",
    )
    chat_text_days: float = Field(
        30,
        ge=0,
        le=36_500,
        description="Days that text of read chats and of runs is kept; 0 = it leaves as the run ends.",
    )
    pending_days: float = Field(
        30,
        ge=0,
        le=36_500,
        description="Days that text of unread chats and of those given up is kept; 0 = until the next sweep, read or not.",
    )
    deleted_text_days: float = Field(
        30,
        ge=0,
        le=36_500,
        description="Days that text of deleted and rejected facts is kept, to restore them; 0 = until the next sweep.",
    )
    retention_interval_ms: int = Field(3_600_000, ge=1, description="From one sweep of what is too old to the next.")
    gauges_interval_ms: int = Field(
        5000, ge=1, le=60_000, description="How often gauges of batches and the outbox are read from the database."
    )
    min_chats: int = Field(5, ge=1, description="Pending chats that make a batch due once it is idle.")
    idle_threshold_ms: int = Field(
        1_200_000, ge=0, description="Time without a new chat until a batch is idle; 0 = do not wait."
    )
    window_chats: int = Field(20, ge=1, le=200, description="Most chats a run reads; so many pending are due at once.")
    max_wait_hours: float = Field(
        24,
        ge=0,
        le=87_600,
        description="Hours after which fewer chats than KEEPSAKE_MIN_CHATS are due too, once idle; 0 = never.",
    )
    extraction_interval: Annotated[timedelta | None, NoDecode, BeforeValidator(_interval)] = Field(
        None,
        gt=timedelta(0),
        description="Due times are rounded up to multiples of this: `15m`, `3h`; unset = not at all.",
    )
    max_attempts: int = Field(5, ge=1, le=30, description="Failed tries until a window's chats are dead letters.")
    max_lost: int = Field(
        20, ge=1, le=1000, description="Runs lost with their worker until a window's chats are dead letters."
    )
    retry_base_ms: int = Field(1000, ge=1, description="Wait after the first failed try; doubles with each.")
    retry_max_ms: int = Field(600_000, ge=1, description="Longest wait after a failed try.")
    outbox_interval_ms: int = Field(200, ge=1, description="Pause between two looks at an empty outbox.")

    @field_validator("database_url")
    @classmethod
    def _postgres_url(cls, value: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(value.get_secret_value())
            good = parts.scheme in ("postgres", "postgresql") and bool(parts.path.strip("/")) and parts.port != 0
        except ValueError:
            good = False
        if not good:
            # Said without the value: it holds a password.
            raise ValueError("a Postgres URL is postgres://role:password@host:port/name")
        return value

    @property
    def model_names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.models) or (("default",) if self.model else ())

    @property
    def due_rules(self) -> DueRules:
        return DueRules(
            min_chats=self.min_chats,
            idle=timedelta(milliseconds=self.idle_threshold_ms),
            window_chats=self.window_chats,
            max_wait=timedelta(hours=self.max_wait_hours) if self.max_wait_hours else None,
            round_to=self.extraction_interval,
        )

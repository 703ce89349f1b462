"""Settings of extraction."""

from pydantic import Field, field_validator

from services.extraction.models.entries import ModelSettings
from services.extraction.stager.settings import StagerSettings
from shared.settings import CommaSeparated, ServiceSettings, StoreClientSettings


class ExtractionSettings(ServiceSettings, StoreClientSettings, StagerSettings, ModelSettings):
    port: int = Field(8004, ge=0, le=65535, description="Port to listen on: probes and metrics only.")
    roles: CommaSeparated = Field(
        ("stager", "worker"), description="What this process does: `stager`, `worker` or both."
    )
    worker_concurrency: int = Field(4, ge=1, le=64, description="Runs that one process works on at once.")
    poll_interval_ms: int = Field(
        2000, ge=10, description="How often a worker asks for a due batch while there is none."
    )
    lease_ms: int = Field(60_000, ge=1000, le=3_600_000, description="How long a run holds its batch without renewing.")
    max_candidates: int = Field(3, ge=1, le=20, description="Facts that one run may propose.")
    breaker_probe_ms: int = Field(
        10_000, ge=100, description="How often a model that is out of service is tried again."
    )

    @field_validator("roles")
    @classmethod
    def _known_roles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not set(value) <= {"stager", "worker"}:
            raise ValueError("roles are stager, worker or both")
        return value

"""Settings of the local run, beside those it hands on to the services."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from deploy.local.paths import DEFAULT_DATA_DIR
from deploy.local.processes import LocalError


class LocalSettings(BaseSettings):
    """Read from the environment only; each name has the prefix KEEPSAKE_."""

    model_config = SettingsConfigDict(env_prefix="KEEPSAKE_", extra="ignore", frozen=True)

    data_dir: Path = Field(DEFAULT_DATA_DIR, description="where the local run keeps its data, keys and logs")
    local_broker: Literal["auto", "kafka", "tansu"] = Field("auto", description="auto: Apache Kafka where it is there")
    local_on_exit: Literal["stop", "restart"] = Field("stop", description="what to do when a part ends by itself")
    local_port_offset: int = Field(0, ge=-1000, le=50000, description="added to every port below")
    local_chat_ingest_port: int = Field(8001, ge=1, le=65535)
    local_memory_store_port: int = Field(8002, ge=1, le=65535)
    local_injection_port: int = Field(8003, ge=1, le=65535)
    local_extraction_port: int = Field(8004, ge=1, le=65535)
    local_kafka_port: int = Field(9092, ge=1, le=65535)
    local_kafka_controller_port: int = Field(9093, ge=1, le=65535, description="used by Apache Kafka alone")
    local_postgres_port: int = Field(5433, ge=1, le=65535)

    def port(self, part: str) -> int:
        """The port of a part, such as `memory_store` or `kafka`, the offset added."""
        port: int = getattr(self, f"local_{part}_port") + self.local_port_offset
        if not 1 <= port <= 65535:
            raise LocalError(
                f"KEEPSAKE_LOCAL_PORT_OFFSET moves {part} to port {port}, which does not exist", exit_code=2
            )
        return port


def load() -> LocalSettings:
    """Raises LocalError naming the first wrong setting."""
    try:
        settings = LocalSettings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        name = name if name.startswith("KEEPSAKE_") else f"KEEPSAKE_{name}"
        raise LocalError(f"{name}: {first['msg']}", exit_code=2) from None
    return settings.model_copy(update={"data_dir": settings.data_dir.resolve()})

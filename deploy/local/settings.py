"""Settings of the local run, beside those it hands on to the services."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from deploy.errors import DeployError
from deploy.local.paths import DEFAULT_DATA_DIR
from shared.settings import KeepsakeSettings


class LocalSettings(KeepsakeSettings):
    """What the local run itself reads."""

    data_dir: Annotated[Path, AfterValidator(Path.resolve)] = Field(
        DEFAULT_DATA_DIR, description="Folder of the local run's data, keys and logs."
    )
    local_broker: Literal["auto", "kafka", "tansu"] = Field(
        "auto", description="`auto`: Apache Kafka where Java and its jars are there, else Tansu."
    )
    local_on_exit: Literal["stop", "restart"] = Field("stop", description="What to do when a part ends by itself.")
    local_port_offset: int = Field(0, ge=-1000, le=60000, description="Added to every port of the local run.")
    local_chat_ingest_port: int = Field(8001, ge=1, le=65535, description="Port of chat-ingest.")
    local_memory_store_port: int = Field(8002, ge=1, le=65535, description="Port of memory-store.")
    local_injection_port: int = Field(8003, ge=1, le=65535, description="Port of injection.")
    local_extraction_port: int = Field(8004, ge=1, le=65535, description="Port of extraction (probes and metrics).")
    local_kafka_port: int = Field(9092, ge=1, le=65535, description="Port of the broker.")
    local_kafka_controller_port: int = Field(9093, ge=1, le=65535, description="Second port of Apache Kafka.")
    local_postgres_port: int = Field(5433, ge=1, le=65535, description="Port of Postgres.")

    def port(self, part: str) -> int:
        """The port of a part, such as `memory_store` or `kafka`, the offset added."""
        port: int = getattr(self, f"local_{part}_port") + self.local_port_offset
        if not 1 <= port <= 65535:
            raise DeployError(
                f"KEEPSAKE_LOCAL_PORT_OFFSET moves {part} to port {port}, which does not exist", exit_code=2
            )
        return port

"""Settings of the stager."""

from pydantic import Field

from shared.ids import STAND_INS
from shared.kafka import KafkaSettings
from shared.settings import CommaSeparated


class StagerSettings(KafkaSettings):
    instance_id: str | None = Field(
        None,
        max_length=200,
        description="Name of this replica, the same after each restart: a restart then costs no rebalance.",
    )
    group_id: str = Field("keepsake-extraction", description="Consumer group of the stagers.")
    stage_batch: int = Field(1000, ge=1, le=5000, description="Records of one poll, staged in one transaction.")
    max_poll_interval_ms: int = Field(
        300_000,
        ge=1000,
        description="Silence after which Kafka takes a stager's partitions; it waits in shorter pauses.",
    )
    dead_letter_max_ratio: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the last 200 records since start that may be dead letters; above it the stager pauses, "
        "so that a bad release does not drain the topic. 1 = never.",
    )
    anonymous_users: CommaSeparated = Field(
        STAND_INS, description="User names that mean nobody is signed in, comma-separated, in any case."
    )

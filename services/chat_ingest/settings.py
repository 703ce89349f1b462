"""Settings of chat-ingest."""

from pydantic import Field

from shared.kafka import KafkaSettings
from shared.settings import ServiceSettings, StoreClientSettings


class IngestSettings(ServiceSettings, StoreClientSettings, KafkaSettings):
    port: int = Field(8001, ge=0, le=65535, description="Port to listen on.")
    publish_timeout_ms: int = Field(
        5000, ge=100, le=60_000, description="How long Kafka may take to confirm a request's chats; then 503."
    )

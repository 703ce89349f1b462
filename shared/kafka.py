"""How every service reaches Kafka, and what its topics are called."""

import ssl
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr

from shared.settings import CommaSeparated, KeepsakeSettings


class KafkaSettings(KeepsakeSettings):
    """Settings of whoever talks to Kafka; mixed into a service's own."""

    kafka_bootstrap_servers: CommaSeparated = Field(
        ("127.0.0.1:9092",), description="Kafka brokers to ask first, comma-separated host:port."
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How the brokers are spoken to."
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="How a SASL protocol checks name and password."
    )
    kafka_username: str | None = Field(None, description="User name for a SASL protocol.")
    kafka_password: SecretStr | None = Field(None, description="Password for a SASL protocol.")
    kafka_ssl_cafile: Path | None = Field(None, description="PEM file of the brokers' authority; unset: the system's.")
    topic_chat_events: str = Field("chat.events", description="Topic of the chats.")
    topic_dead_letter: str = Field("chat.events.dead-letter", description="Topic of records that can never be staged.")
    topic_memory_changes: str = Field("memory.changes", description="Topic of what changed in people's memories.")

    def kafka_client(self) -> dict[str, Any]:
        """Keyword arguments for aiokafka's clients: addresses and security."""
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.kafka_bootstrap_servers),
            "security_protocol": self.kafka_security_protocol,
        }
        if self.kafka_security_protocol.endswith("SSL"):
            options["ssl_context"] = ssl.create_default_context(cafile=self.kafka_ssl_cafile)
        if self.kafka_security_protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.kafka_sasl_mechanism
            options["sasl_plain_username"] = self.kafka_username
            options["sasl_plain_password"] = self.kafka_password.get_secret_value() if self.kafka_password else None
        return options

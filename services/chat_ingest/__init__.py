"""chat-ingest: chats over HTTP → Kafka."""

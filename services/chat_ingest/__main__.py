"""`python -m services.chat_ingest`; `--help` lists the settings."""

from services.chat_ingest.app import build
from services.chat_ingest.settings import IngestSettings
from shared.settings import load
from shared.web import configure, serve

if __name__ == "__main__":
    settings = load(IngestSettings, "services.chat_ingest")
    configure("chat-ingest", settings)
    serve(build(settings), settings)

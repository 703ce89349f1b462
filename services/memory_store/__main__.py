"""`python -m services.memory_store`; `--help` lists the settings."""

from services.memory_store.app import build
from services.memory_store.settings import Settings
from shared.settings import load
from shared.web import configure, serve

if __name__ == "__main__":
    settings = load(Settings, "services.memory_store")
    configure("memory-store", settings)
    serve(build(settings), settings)

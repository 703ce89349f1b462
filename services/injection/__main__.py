"""`python -m services.injection`; `--help` lists the settings."""

from services.injection.app import build
from services.injection.settings import InjectionSettings
from shared.settings import load
from shared.web import configure, serve

if __name__ == "__main__":
    settings = load(InjectionSettings, "services.injection")
    configure("injection", settings)
    serve(build(settings), settings)

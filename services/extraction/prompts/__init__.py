"""The prompts, as files that people can read and compare; the run keeps their version."""

from hashlib import sha256
from pathlib import Path

_FOLDER = Path(__file__).parent

OBSERVER = (_FOLDER / "observer.md").read_text(encoding="utf-8")
REFLECTOR = (_FOLDER / "reflector.md").read_text(encoding="utf-8")


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


# By content, so that no edit can go without a new version.
VERSION = f"observer-{_short(OBSERVER)}+reflector-{_short(REFLECTOR)}"

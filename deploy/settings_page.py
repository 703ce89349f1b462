"""docs/configure.md: every setting of every service, written from the code so that it cannot be out of date."""

from pathlib import Path

from pydantic_settings import BaseSettings

from deploy.local.settings import LocalSettings
from deploy.settings import DatabaseSettings
from services.chat_ingest.settings import IngestSettings
from services.extraction.settings import ExtractionSettings
from services.injection.settings import InjectionSettings
from services.memory_store.settings import Settings as MemoryStoreSettings
from shared.settings import shown_default, variable

ROOT = Path(__file__).parents[1]
WHO: dict[str, type[BaseSettings]] = {
    "chat-ingest": IngestSettings,
    "memory-store": MemoryStoreSettings,
    "injection": InjectionSettings,
    "extraction": ExtractionSettings,
    "local run": LocalSettings,
    "deploy migrate": DatabaseSettings,
}

HEAD = """# Configure

Settings are environment variables. `python -m services.NAME --help` lists those of one service. Lists are comma-separated, structures
JSON; an empty variable counts as unset. A wrong or missing setting ends the start with one line that names it, and exit code 2. What is
set for `make run` reaches the services.

Traces are exported where `OTEL_EXPORTER_OTLP_ENDPOINT` is set, after OpenTelemetry's own variables.

This page is written by `python -m deploy contracts`.
"""


def page() -> str:
    """The page in Markdown: one table for what several read alike, then one for each reader."""
    readers: dict[tuple[str, str, str], list[str]] = {}
    for who, settings in WHO.items():
        for name, field in settings.model_fields.items():
            default = shown_default(field).removeprefix(f"{ROOT}/")
            row = (variable(name), default, " ".join((field.description or "").split()))
            readers.setdefault(row, []).append(who)
    parts = [
        HEAD,
        _table("Read by several", {row: who for row, who in readers.items() if len(who) > 1}, of_several=True),
    ]
    parts += [_table(who, {row: names for row, names in readers.items() if names == [who]}) for who in WHO]
    return "\n".join(part for part in parts if part)


def _table(title: str, rows: dict[tuple[str, str, str], list[str]], *, of_several: bool = False) -> str:
    if not rows:
        return ""
    lines = [f"## {title[0].upper()}{title[1:]}", "", "| setting | default | |" + (" read by |" if of_several else "")]
    lines.append("|---|---|---|" + ("---|" if of_several else ""))
    for (name, default, text), who in sorted(rows.items()):
        shown = default if default in ("", "required") else f"`{default}`"
        lines.append(
            f"| `{name}` | {shown} | {text.replace('|', '&#124;')} |" + (f" {', '.join(who)} |" if of_several else "")
        )
    return "\n".join(lines) + "\n"

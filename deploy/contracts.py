"""`python -m deploy contracts [--check]`: the published contracts, made from the code.

`docs/openapi/*.json` are what the services answer at `/openapi.json`; `docs/asyncapi.json` is made from the models of `shared.events`,
`docs/configure.md` from the services' settings.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.json_schema import models_json_schema

from deploy import topics
from shared import events
from shared.kafka import KafkaSettings

DOCS = Path(__file__).resolve().parent.parent / "docs"
Json = dict[str, Any]

_KEY = "tenant, user and workspace, each percent-encoded (all but A–Z a–z 0–9 - . _ ~), joined by /; anonymous = empty user"
_CHANGE_KEY = "tenant and user, each percent-encoded (all but A–Z a–z 0–9 - . _ ~), joined by /"
_EVENTS: tuple[type[BaseModel], ...] = (events.ChatCompleted, events.ChatReset, events.ChatDeleted)


def main(argv: Sequence[str]) -> int:
    """Writes the files; with --check only compares. Exit code 1 where one is not current."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy contracts", description="Writes docs/openapi, asyncapi.json and configure.md."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is not current")
    check = parser.parse_args(argv).check
    stale = [path for path, text in files().items() if not path.exists() or path.read_text("utf-8") != text]
    if check:
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} is not current: run `python -m deploy contracts`")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files()[path], "utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")
    return 0


def files() -> dict[Path, str]:
    from deploy import settings_page  # noqa: PLC0415 (deploy's other commands need no service)

    documents = {DOCS / "openapi" / f"{name}.json": document for name, document in openapi().items()}
    documents[DOCS / "asyncapi.json"] = asyncapi()
    return {
        path: json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        for path, document in documents.items()
    } | {DOCS / "configure.md": settings_page.page()}


def openapi() -> dict[str, Json]:
    """By service as deployed. Building an app connects to nothing, so its settings need no truth."""
    from services.chat_ingest import app as chat_ingest  # noqa: PLC0415 (deploy's other commands need no service)
    from services.chat_ingest.settings import IngestSettings  # noqa: PLC0415
    from services.injection import app as injection  # noqa: PLC0415
    from services.injection.settings import InjectionSettings  # noqa: PLC0415
    from services.memory_store import app as memory_store  # noqa: PLC0415
    from services.memory_store.settings import Settings as StoreSettings  # noqa: PLC0415

    none = SecretStr("none")
    store = StoreSettings(database_url=SecretStr("postgresql://nobody@nowhere/none"), admin_key=none, service_keys={})
    return {
        "chat-ingest": chat_ingest.build(IngestSettings(service_key=none)).openapi(),
        "injection": injection.build(InjectionSettings(service_key=none)).openapi(),
        "memory-store": memory_store.build(store).openapi(),
    }


def asyncapi() -> Json:
    models: list[type[BaseModel]] = [*_EVENTS, events.DeadLetter, events.MemoryChange]
    _, definitions = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    schemas: Json = definitions["$defs"]
    for model in _EVENTS:
        # The readers insist on it; only who makes one in Python need not say it.
        schemas[model.__name__]["required"].append("type")
    chats, dead, changes = topics.wanted(KafkaSettings())
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Keepsake on Kafka",
            "version": "1",
            "description": (
                "Finished chats in, changes of people's memories out. Producers of chats set acks=all; whoever may write that topic "
                "speaks for all its tenants. A chat's identity is (tenant, user, event_id): sent again, today or in weeks, it changes "
                "nothing. Unknown fields are ignored."
            ),
        },
        "defaultContentType": "application/json",
        "channels": {
            "chatEvents": _channel(
                chats,
                _EVENTS,
                "UTF-8 JSON of at most 256 KiB. `before` and `after` are the broker's append time, then the offset.",
            ),
            "deadLetters": _channel(dead, (events.DeadLetter,), "Records that can never be staged, with their key."),
            "memoryChanges": _channel(
                changes, (events.MemoryChange,), "What changed, never any text; in order per key, at least once."
            ),
        },
        "operations": {
            "takeChats": _operation("receive", "chatEvents", "Keepsake stages every record once."),
            "tellDeadLetters": _operation(
                "send", "deadLetters", "A record goes here alone; its neighbours are staged."
            ),
            "tellChanges": _operation("send", "memoryChanges", "Written with the change, in one transaction."),
        },
        "components": {
            "messages": {
                **{model.__name__: _message(model, _KEY, _CHAT_HEADERS) for model in _EVENTS},
                "DeadLetter": _message(events.DeadLetter, "the key of the dead record"),
                "MemoryChange": _message(events.MemoryChange, _CHANGE_KEY),
            },
            "schemas": schemas,
        },
    }


_CHAT_HEADERS: Json = {
    "type": "object",
    "properties": {
        "traceparent": {"type": "string", "description": "W3C trace context; linked by the spans that stage and read"},
        **{
            name: {"type": "string", "pattern": "^[0-9]+$", "description": "set when a dead letter is replayed"}
            for name in (events.ORIGINAL_TIMESTAMP, events.ORIGINAL_PARTITION, events.ORIGINAL_OFFSET)
        },
    },
}


def _channel(topic: topics.Topic, messages: Sequence[type[BaseModel]], description: str) -> Json:
    kafka = {
        "topic": topic.name,
        "partitions": topic.partitions,
        "topicConfiguration": {"cleanup.policy": ["delete"], "retention.ms": int(topic.config["retention.ms"])},
        "bindingVersion": "0.5.0",
    }
    return {
        "address": topic.name,
        "description": description,
        "messages": {model.__name__: {"$ref": f"#/components/messages/{model.__name__}"} for model in messages},
        "bindings": {"kafka": kafka},
    }


def _operation(action: str, channel: str, summary: str) -> Json:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "summary": summary}


def _message(model: type[BaseModel], key: str, headers: Json | None = None) -> Json:
    message: Json = {
        "name": model.__name__,
        "summary": (model.__doc__ or "").strip(),
        "payload": {"$ref": f"#/components/schemas/{model.__name__}"},
        "bindings": {"kafka": {"key": {"type": "string", "description": key}, "bindingVersion": "0.5.0"}},
    }
    return message | ({"headers": headers} if headers else {})

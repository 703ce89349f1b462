"""What people say, who they are and their keys appear in no log, span, metric, error body, listing or change, whatever goes wrong.

Everything here holds a canary; the table of what went wrong is checked too, so that silence means silence and not that nothing happened.
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from deploy.local.database import Database
from deploy.local.paths import ROOT
from deploy.local.services import SERVICES
from shared.events import ORIGINAL_OFFSET, ORIGINAL_PARTITION, ORIGINAL_TIMESTAMP
from shared.rpc.messages import SERVICE as RPC
from tests.conftest import SystemFactory
from tests.support.model_server import ScriptedModel, running_model
from tests.support.otlp import Receiver, running_receiver
from tests.support.postgres import PostgresForTests
from tests.support.system import System
from tests.support.waiting import until

# What is said (prompts, responses, facts, queries, replies of the model), who it is (ids of all kinds, names of fields), what opens.
SAID, WHO, KEY = "quartzcanary", "topazcanary", "rubycanary"
CANARIES = (SAID, WHO, KEY)
Json = Any
PATIENCE_S = 90.0
# `case-…` stands in the prompt, so that the script knows which one it is.
BAD_REPLIES: dict[str, Json] = {
    "html": {"body": f"<html>{SAID}</html>"},
    "empty": {"body": "{}"},
    "prose": {"text": f"What a {SAID}!"},
    "cut": {"call": f'{{"candidates": [{{"content": "{SAID}'},
    "shape": {"call": {SAID: [SAID], "candidates": {SAID: SAID}}},
    "status500": {"status": 500, "body": json.dumps({"error": {"message": SAID, "type": SAID, "code": SAID}})},
    "status400": {"status": 400, "body": json.dumps({"error": {"message": SAID, "param": SAID, "code": SAID}})},
    "status404": {"status": 404, "body": SAID, "headers": {"x-request-id": SAID}},
    "drop": {"drop": True},
    "hang": {"hang": 30},
    "invented": {
        "call": {
            "candidates": [
                {
                    "content": f"User {SAID}",
                    "category": SAID,
                    "confidence": "high",
                    "evidence": [{"event_id": WHO, "quote": SAID}],
                },
                {"content": {SAID: SAID}, "confidence": SAID, "reasoning": SAID},
            ]
        }
    },
}
BAD_DECISIONS: dict[str, Json] = {
    "words": {"all": {"action": SAID, "scope": SAID, "target": SAID, "reason": SAID, "content": SAID}},
    "target": {
        "all": {"action": "update", "scope": "workspace", "target": str(uuid4()), "content": SAID, "reason": SAID}
    },
    "markup": {
        "all": {
            "action": "create",
            "scope": "workspace",
            "content": f"<b>{SAID}</b> https://x.y/{SAID}",
            "reason": SAID,
        }
    },
    "text": {"text": SAID},
}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with running_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        yield receiver


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with running_model() as model:
        yield model


class Trouble:
    """A running system and what its services answered while everything went wrong."""

    def __init__(self, system: System, stack: ExitStack) -> None:
        self.system = system
        self.refusals: list[httpx.Response] = []
        self.clients = {name: stack.enter_context(system.client(name)) for name in SERVICES}

    def ask(self, service: str, method: str, path: str, **request: Any) -> httpx.Response:
        answer = self.clients[service].request(method, path, **request)
        if answer.status_code >= 400:
            self.refusals.append(answer)
        return answer

    def refused(self, service: str, method: str, path: str, *statuses: int, **request: Any) -> None:
        answer = self.ask(service, method, path, **request)
        assert answer.status_code in statuses, (path, answer.status_code, answer.text)

    def publish(self, *records: tuple[bytes, list[tuple[str, bytes]]]) -> None:
        async def send() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.system.broker.bootstrap, acks="all", max_request_size=2**21
            )
            await producer.start()
            try:
                for value, headers in records:
                    await producer.send(self.system.topic_chat_events, value, key=WHO.encode(), headers=headers)
                await producer.flush()
            finally:
                await producer.stop()

        asyncio.run(send())

    def pending(self, user: str) -> int:
        return int(
            self.ask("memory_store", "GET", "/v1/pending", params={"user": user, "workspace": WHO}).json()["pending"]
        )

    def events(self, service: str) -> set[str]:
        return {json.loads(line)["event"] for line in self.system.log(service).splitlines() if line.startswith("{")}


def chat(user: str | None, prompt: str, **fields: Any) -> bytes:
    event = {
        "type": "chat.completed",
        "event_id": f"{WHO}-{uuid4()}",
        "user": user,
        "workspace": WHO,
        "thread": WHO,
        "prompt": prompt,
        "response": SAID,
        "metadata": {SAID: WHO},
    }
    return json.dumps(event | fields).encode()


def test_nothing_tells_what_people_said(
    system: SystemFactory, receiver: Receiver, model: ScriptedModel, database: Database, postgres: PostgresForTests
) -> None:
    entry = {"name": "m", "model": "openai:scripted", "base_url": model.url, "api_key": KEY, "timeout_s": 1}
    started = system(
        models=json.dumps([entry]),
        breaker_probe_ms=100,
        retry_base_ms=10,
        retry_max_ms=50,
        max_attempts=2,
        dead_letter_max_ratio=1,
    ).start()
    with ExitStack() as stack:
        trouble = Trouble(started, stack)
        bad_requests(trouble)
        bad_records(trouble)
        bad_model(trouble, model)
        bad_database(trouble, database)
        absences(trouble)
        metrics = {name: httpx.get(started.url(name) + "/metrics", trust_env=False).text for name in SERVICES}
        changes = changed(started)
    started.stop()

    assert {span.service for span in receiver.spans} == {"memory-store", "chat-ingest", "extraction", "injection"}
    assert receiver.named("run")
    silent = {f"log of {name}": started.log(name) for name in SERVICES}
    silent |= {f"metrics of {name}": text for name, text in metrics.items()}
    silent |= {
        f"{answer.request.method} {answer.url}": answer.text + str(answer.headers) for answer in trouble.refusals
    }
    silent["Postgres' log"] = postgres.server.log.read_text(errors="replace")
    silent["spans"] = receiver.raw.decode("latin-1")
    silent["dead letters"] = dead_letters(started)
    assert "not_json" in silent["dead letters"]
    found = {f"{canary} in {place}": told(canary, text) for place, text in silent.items() for canary in CANARIES}
    assert {place: words for place, words in found.items() if words} == {}
    assert len(changes) >= 5
    for change in changes:  # their key and value name the person, by contract
        assert not told(SAID, change)
        assert not told(KEY, change)


def told(canary: str, text: str) -> str | None:
    """Where a text holds the canary, plain or in base64 at whichever of the three places."""
    forms = [canary]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + canary.encode()).decode()
        forms.append(encoded[4 if shift else 0 : len(encoded) // 4 * 4 - 4])
    for form in forms:
        at = text.find(form)
        if at >= 0:
            return text[max(0, at - 200) : at + 200]
    return None


def bad_requests(trouble: Trouble) -> None:
    """Of every service, every way of being refused."""
    refused = trouble.refused
    posted = {"user": WHO, "prompt": SAID, "response": SAID}
    for service, path in (("chat_ingest", "/v1/chats"), ("memory_store", "/v1/facts"), ("injection", "/v1/assemble")):
        refused(service, "POST", path, 422, content=f'{{"user": "{WHO}", "prompt": {SAID}')
        refused(service, "POST", path, 422, json={"user": [WHO], "prompt": {SAID: SAID}, SAID: SAID, "content": [SAID]})
        refused(service, "POST", path, 422, json={"user": WHO * 40, "content": SAID, "prompt": SAID, "response": SAID})
        refused(service, "POST", path, 422, content=f'{{"user": "{WHO}", "{SAID}": "\\ud800{SAID}"}}')
        refused(service, "POST", path, 422, content="[" * 40 + f'"{SAID}"' + "]" * 40)
        refused(service, "POST", path, 413, content=SAID.encode() * 500_000)
        refused(service, "POST", path, 415, content=SAID, headers={"Content-Encoding": SAID})
        refused(service, "POST", path, 401, json=posted, headers={"Authorization": f"Bearer {KEY}"})
        refused(service, "POST", path, 401, json=posted, headers={"Authorization": f"{KEY} {KEY}"})
        refused(service, "POST", path, 404, json=posted, headers={"Keepsake-Tenant": WHO})
        refused(service, "POST", f"/v1/{WHO}", 404, params={SAID: SAID}, headers={"traceparent": SAID, "baggage": SAID})
        refused(service, "PROPFIND", f"{path}/{WHO}", 404, 405)
        refused(service, SAID.upper(), f"/{WHO}", 400)
    refused("chat_ingest", "POST", "/v1/chats", 422, json=posted, headers={"Idempotency-Key": SAID * 30})
    trouble.ask("chat_ingest", "POST", "/v1/chats", json={**posted, "event_id": WHO}, headers={"Idempotency-Key": KEY})
    refused("injection", "POST", "/v1/facts/search", 422, json={"user": WHO, "query": [SAID], "limit": SAID})
    for _ in range(3):
        trouble.ask("injection", "POST", "/v1/assemble", json={"user": WHO, "message": SAID, "system_prompt": SAID})
        trouble.ask("injection", "POST", "/v1/facts/search", json={"user": WHO, "query": SAID})
    bad_store_requests(trouble)
    bad_calls(trouble)


def bad_store_requests(trouble: Trouble) -> None:
    store = "memory_store"
    fact = {"user": WHO, "workspace": WHO, "content": f"User likes {SAID}"}
    made = trouble.ask(store, "POST", "/v1/facts", json=fact).json()
    for body, status in (
        (fact, 409),
        (fact | {"content": f"User's password is {SAID}4Xq9!pw"}, 422),
        (fact | {"content": f"<b>{SAID}</b> https://example.com/{SAID}", "origin": "agent"}, 422),
        (fact | {"content": f"{SAID}@example.com", "origin": "agent"}, 422),
        (fact | {"content": SAID * 100}, 422),
        (fact | {"replace": WHO}, 404),
        (fact | {"scope": SAID}, 422),
    ):
        trouble.refused(store, "POST", "/v1/facts", status, json=body)
    for path in (f"/v1/facts/{WHO}", f"/v1/facts/{uuid4()}", f"/v1/runs/{WHO}", f"/v1/keys/{KEY}"):
        trouble.ask(store, "DELETE" if "keys" in path else "GET", path, params={"user": WHO})
    trouble.ask(store, "PATCH", f"/v1/facts/{made['id']}", json={"content": SAID}, headers={"If-Match": f'"{SAID}"'})
    trouble.ask(store, "PATCH", f"/v1/facts/{made['id']}", json={"content": SAID}, headers={"If-Match": '"99"'})
    trouble.ask(store, "GET", "/v1/facts", params={"user": WHO, "state": SAID, "cursor": SAID, "as_of": SAID})
    trouble.ask(store, "PATCH", "/v1/settings", json={"model": SAID, "sensitive": SAID, SAID: SAID})
    trouble.ask(store, "PATCH", "/v1/workspaces/settings", params={"workspace": WHO}, json={"chat_model": SAID})
    trouble.ask(store, "POST", "/v1/tokens", json={"user": WHO, "scopes": [SAID], "ttl": SAID})
    key = trouble.ask(
        store, "POST", "/v1/keys", json={"name": KEY, "scopes": ["facts:read"], "workspaces": [WHO]}
    ).json()
    as_reader = {"Authorization": f"Bearer {key['key']}"}
    trouble.refused(store, "POST", "/v1/facts", 403, json=fact, headers=as_reader)
    trouble.refused(store, "GET", "/v1/facts", 404, params={"user": WHO, "workspace": SAID}, headers=as_reader)


def bad_calls(trouble: Trouble) -> None:
    """As another service would make them."""
    extraction = {"Authorization": f"Bearer {trouble.system.service_keys['extraction']}"}

    def call(method: str, body: Any, **headers: str) -> None:
        content = body if isinstance(body, str) else json.dumps(body)
        sent = extraction | {"Content-Type": "application/json"} | headers
        trouble.ask("memory_store", "POST", f"/{RPC}/{method}", content=content, headers=sent)
        assert trouble.refusals[-1].url.path.endswith(method)

    call(WHO, {})
    call("StageChats", SAID)
    call("StageChats", {"records": [{SAID: SAID, "event": {"user": WHO, SAID: SAID}}]})
    call("ClaimRun", {"run_id": WHO, "worker": WHO, SAID: 1})
    call("CompleteRun", {"run_id": str(uuid4()), "candidates": [{SAID: SAID}], "extractor": SAID})
    call("ClaimRun", {"run_id": str(uuid4()), "worker": WHO, "lease_ms": 1000}, Authorization=f"Bearer {KEY}")
    call("ClaimRun", {}, **{"Content-Type": SAID})
    call("ListFacts", {"tenant": WHO, "user": WHO, "workspace": WHO})


def bad_records(trouble: Trouble) -> None:
    same = f"{WHO}-same"
    old = [(ORIGINAL_TIMESTAMP, b"1500000000000"), (ORIGINAL_PARTITION, b"0"), (ORIGINAL_OFFSET, b"0")]
    trouble.publish(
        (SAID.encode(), []),
        (b"\xff" + SAID.encode(), [(SAID, b"\xff" + SAID.encode()), ("traceparent", SAID.encode())]),
        (chat(WHO, SAID, type=SAID), []),
        (chat(WHO, SAID, tenant=WHO), []),
        (chat(WHO, SAID, response={SAID: SAID}, thread=[WHO]), []),
        (chat(WHO, SAID, timezone=SAID, occurred_at=SAID), []),
        (chat(WHO, SAID * 30_000), []),
        (chat(WHO, SAID), old),
        (chat(WHO, f"{SAID} one", event_id=same), []),
        (chat(WHO, f"{SAID} two", event_id=same), []),
        (chat(WHO, f"{SAID} \0 \ufffe", event_id=f"{WHO}-nul"), []),
        (chat(WHO, f"My password is {SAID}4Xq9!pw and my key sk-{SAID}AbCdEfGhIjKlMnOpQrStUv"), []),
        (chat(None, SAID, **{SAID: SAID}), []),
        (chat("guest", SAID), []),
    )
    until(lambda: {"unknown_tenant", "too_old", "event_id_conflict"} <= reasons(trouble), PATIENCE_S)
    assert reasons(trouble) == {
        "not_json", "unknown_type", "unknown_tenant", "invalid", "too_large", "too_old", "event_id_conflict"
    }  # fmt: skip


def reasons(trouble: Trouble) -> set[str]:
    """Of the dead letters so far."""
    text = httpx.get(trouble.system.url("extraction") + "/metrics", trust_env=False).text
    counts = [line for line in text.splitlines() if line.startswith("keepsake_dead_letters_total{")]
    return {line.split('"')[1] for line in counts if not line.endswith(" 0.0")}


def bad_model(trouble: Trouble, model: ScriptedModel) -> None:
    rules: list[Json] = [
        {"phase": "observer", "when": f"case-{name}.", "reply": reply} for name, reply in BAD_REPLIES.items()
    ]
    rules += [{"phase": "reflector", "when": f"case-{name} ", "reply": reply} for name, reply in BAD_DECISIONS.items()]
    down = {"status": 429, "body": json.dumps({"error": {"message": SAID}}), "headers": {"retry-after": SAID}}
    model.script({"when": "case-down", "times": 2, "reply": down}, *rules)
    users = {f"{WHO}-{name}": f"I like {SAID} case-{name}." for name in BAD_REPLIES}
    users |= {f"{WHO}-{name}": f"I like {SAID} case-{name} , really" for name in BAD_DECISIONS}
    users |= {f"{WHO}-down": f"I like {SAID} case-down", f"{WHO}-good": f"I like {SAID}"}
    users[f"{WHO}-sensitive"] = f"I am {SAID} and diabetic, my number is +4915112345678"
    trouble.publish(*((chat(user, prompt), []) for user, prompt in users.items()))
    until(lambda: not [user for user in users if user not in known(trouble) or trouble.pending(user)], PATIENCE_S)
    ends = {run["outcome"] for user in users for run in runs(trouble, user)}
    assert {"applied", "dead", "refused", "released"} <= ends
    assert {"try_failed", "run_ended", "model_out", "model_back"} <= trouble.events("extraction")


def runs(trouble: Trouble, user: str) -> list[Json]:
    return list(trouble.ask("memory_store", "GET", "/v1/runs", params={"user": user, "workspace": WHO}).json()["items"])


def known(trouble: Trouble) -> set[str]:
    """The users that had a run."""
    found, cursor = set[str](), None
    while True:
        page = trouble.ask(
            "memory_store", "GET", "/v1/runs", params={"limit": 200} | ({"cursor": cursor} if cursor else {})
        ).json()
        found |= {run["user"] for run in page["items"]}
        if not (cursor := page["next_cursor"]):
            return found


def bad_database(trouble: Trouble, database: Database) -> None:
    """A refusal that the code does not expect, whose error quotes the whole row; and a lock that is not granted."""
    sql(database, "ALTER TABLE fact ADD CONSTRAINT no_boom CHECK (content NOT LIKE '%boom%')")
    sql(database, "ALTER TABLE chat ADD CONSTRAINT no_boom CHECK (prompt NOT LIKE '%boom%') NOT VALID")
    fact = {"user": WHO, "workspace": WHO, "content": f"{SAID} boom"}
    trouble.refused("memory_store", "POST", "/v1/facts", 500, json=fact)
    trouble.publish((chat(f"{WHO}-boom", f"{SAID} boom"), []))
    until(lambda: "staging_waits" in trouble.events("extraction"), PATIENCE_S)
    sql(database, "ALTER TABLE chat DROP CONSTRAINT no_boom")
    until(lambda: "staging_goes_on" in trouble.events("extraction"), PATIENCE_S)
    assert {"request_failed", "rpc_handler_failed"} <= trouble.events("memory_store")

    async def locked() -> None:
        connection = await asyncpg.connect(database.superuser_url)
        try:
            async with connection.transaction():
                await connection.execute("LOCK TABLE fact")
                await asyncio.to_thread(
                    trouble.refused, "memory_store", "GET", "/v1/facts", 503, params={"user": WHO, "workspace": WHO}
                )
        finally:
            await connection.close()

    asyncio.run(locked())
    assert "database_unavailable" in trouble.events("memory_store")


def sql(database: Database, statement: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(database.superuser_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def absences(trouble: Trouble) -> None:
    """The store dies while others need it, and comes back."""
    trouble.system.kill("memory_store")
    trouble.publish((chat(f"{WHO}-late", f"I like {SAID} a lot"), []))
    trouble.refused("injection", "POST", "/v1/facts/search", 503, json={"user": WHO, "query": SAID})
    trouble.ask("injection", "POST", "/v1/assemble", json={"user": WHO, "message": SAID, "system_prompt": SAID})
    trouble.refused(
        "chat_ingest",
        "POST",
        "/v1/chats",
        503,
        json={"user": WHO, "prompt": SAID},
        headers={"Authorization": f"Bearer {KEY}2"},
    )
    until(lambda: "claim_failed" in trouble.events("extraction"), PATIENCE_S)
    trouble.system.start("memory_store")
    until(lambda: f"{WHO}-late" in known(trouble) and not trouble.pending(f"{WHO}-late"), PATIENCE_S)


def changed(system: System) -> list[str]:
    """What stands in memory.changes, key and value."""

    async def read() -> list[str]:
        consumer = AIOKafkaConsumer(
            system.topic_memory_changes,
            bootstrap_servers=system.broker.bootstrap,
            auto_offset_reset="earliest",
            group_id=None,
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            texts: list[str] = []
            while found := await consumer.getmany(timeout_ms=2000):
                texts += [f"{each.key!r} {each.value!r} {each.headers!r}" for some in found.values() for each in some]
            return texts
        finally:
            await consumer.stop()

    return asyncio.run(read())


def dead_letters(system: System) -> str:
    """What the command lists, and says on its way."""
    settings = {
        "KEEPSAKE_KAFKA_BOOTSTRAP_SERVERS": system.broker.bootstrap,
        "KEEPSAKE_TOPIC_CHAT_EVENTS": system.topic_chat_events,
        "KEEPSAKE_TOPIC_DEAD_LETTER": system.topic_dead_letter,
        "KEEPSAKE_TOPIC_MEMORY_CHANGES": system.topic_memory_changes,
    }
    done = subprocess.run(
        [sys.executable, "-m", "deploy", "dead-letters", "list"],
        env=os.environ | settings,
        cwd=Path(ROOT),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr

"""`make demo`: one person's memory, from what she says to the prompt that knows it. Every run tells it of a new person."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
from aiokafka import AIOKafkaProducer

from deploy.errors import DeployError
from deploy.local.output import say
from deploy.local.supervisor import LocalSystem
from shared.ids import partition_key

# A chat is read as soon as it is staged, so that the story takes seconds and not the twenty idle minutes of real use.
SETTINGS = {
    "KEEPSAKE_MIN_CHATS": "1",
    "KEEPSAKE_IDLE_THRESHOLD_MS": "0",
    "KEEPSAKE_POLL_INTERVAL_MS": "200",
    "KEEPSAKE_MAX_CANDIDATES": "10",
    "KEEPSAKE_PERSONALIZATION": "true",
}
TENANT, WORKSPACE = "default", "kitchen"
SYSTEM_PROMPT = "You are a helpful assistant."
CHATS = (
    "Hi! Call me Dana. I work as a nurse.",
    "I live in Lisbon. I am learning Portuguese. I love hiking.",
    "I prefer recipes without meat. I always cook on Sundays. I work night shifts.",
)
MESSAGES = ("What shall I cook tonight?", "Can you check my Portuguese homework?")
_LEARNED_WITHIN_S = 60.0

Facts = list[dict[str, Any]]


def tell(system: LocalSystem) -> None:
    """Publishes, waits, corrects and deletes as applications and people do. Raises DeployError where the story breaks off."""
    story = Story(system)
    try:
        story.learn()
        story.use()
        story.correct()
        story.forget()
    except httpx.HTTPError as error:
        raise DeployError(f"the demo broke off: {type(error).__name__}, see {system.data_dir / 'logs'}") from None
    finally:
        story.close()


class Story:
    """One person, who is new in every run, so that no run depends on another."""

    def __init__(self, system: LocalSystem) -> None:
        self._system = system
        self._user = f"dana-{uuid4().hex[:6]}"
        headers = {"Authorization": f"Bearer {system.admin_key}"}
        self._store = httpx.Client(base_url=system.wiring.url("memory_store"), headers=headers, trust_env=False)
        self._injection = httpx.Client(base_url=system.wiring.url("injection"), headers=headers, trust_env=False)
        self._events = [self._event(prompt) for prompt in CHATS]

    def close(self) -> None:
        self._store.close()
        self._injection.close()

    def learn(self) -> None:
        say(f"\n1  A chat application publishes {len(CHATS)} chats of {self._user} to Kafka. She says:")
        for prompt in CHATS:
            say(f"     {prompt}")
        begun = time.monotonic()
        facts = self._read(self._events)
        say(f"   {time.monotonic() - begun:.1f} s later Keepsake remembers, each fact with her own words for it:")
        for fact in facts:
            say(f'     {fact["content"]:<46} <- "{fact["evidence"][0]["quote"]}"')

    def use(self) -> None:
        say(f"\n2  Before it asks its model, the application asks for its prompt. Without a user: {SYSTEM_PROMPT}")
        for message in MESSAGES:
            say(f"   With her, for the message: {message}")
            prompt = self._assemble(message)
            for line in prompt.removeprefix(SYSTEM_PROMPT).strip().splitlines():
                say(f"     {line}")

    def correct(self) -> None:
        home = self._fact_with("Lisbon")
        mine = "User lives in Porto"
        said = self._event("I live in Berlin.")
        say(f'\n3  She corrects "{home["content"]}" to "{mine}". Then she says in a chat: {said["prompt"]}')
        self._store.patch(f"/v1/facts/{home['id']}", json={"content": mine}).raise_for_status()
        facts = self._read([said])
        if mine not in (fact["content"] for fact in facts):
            raise DeployError("the demo broke off: what a person wrote was changed by a chat")
        say("   What she wrote stays.")
        for waiting in self._facts(state="pending"):
            say(f'   "{waiting["content"]}" waits until she approves or rejects it.')

    def forget(self) -> None:
        fact = self._fact_with("Portuguese")
        say(f'\n4  She deletes "{fact["content"]}". All her old chats are published again, as after a failure.')
        self._store.delete(f"/v1/facts/{fact['id']}").raise_for_status()
        facts = self._read([*self._events, self._event("I am learning to dance.")])
        if any("Portuguese" in fact["content"] for fact in facts):
            raise DeployError("the demo broke off: a deleted fact came back")
        contents = [fact["content"] for fact in facts]
        if len(set(contents)) != len(contents):
            raise DeployError("the demo broke off: a fact stands twice")
        say(f"   It stays gone, and nothing stands twice: she has {len(contents)} facts, each once.")

    def _event(self, prompt: str) -> dict[str, Any]:
        return {
            "type": "chat.completed",
            "event_id": str(uuid4()),
            "tenant": TENANT,
            "workspace": WORKSPACE,
            "user": self._user,
            "prompt": prompt,
            "response": "Noted.",
            "occurred_at": datetime.now(UTC).isoformat(),
        }

    def _publish(self, events: Sequence[Mapping[str, Any]]) -> None:
        """As any Kafka producer would: JSON, keyed by the person, confirmed by all replicas."""

        async def publish() -> None:
            settings = self._system.kafka_settings
            producer = AIOKafkaProducer(**settings.kafka_client(), acks="all")
            await producer.start()
            try:
                for event in events:
                    key = partition_key(TENANT, self._user, WORKSPACE)
                    await producer.send_and_wait(settings.topic_chat_events, json.dumps(event).encode(), key=key)
            finally:
                await producer.stop()

        asyncio.run(publish())

    def _facts(self, state: str = "active") -> Facts:
        reply = self._store.get("/v1/facts", params={"user": self._user, "workspace": WORKSPACE, "state": state})
        listed = reply.raise_for_status().json()
        return sorted([*listed["global"], *listed["workspace"]], key=lambda fact: str(fact["created_at"]))

    def _fact_with(self, word: str) -> dict[str, Any]:
        for fact in self._facts():
            if word in fact["content"]:
                return fact
        raise DeployError(f"the demo broke off: no fact about {word} was learned")

    def _read(self, events: Sequence[Mapping[str, Any]]) -> Facts:
        """Publishes chats and waits until a run has read them all; answers what is then remembered."""
        self._publish(events)
        deadline = time.monotonic() + _LEARNED_WITHIN_S
        while not self._read_events().issuperset(event["event_id"] for event in events):
            if time.monotonic() > deadline:
                where = self._system.data_dir / "logs"
                raise DeployError(
                    f"the demo broke off: a chat was not read within {_LEARNED_WITHIN_S:g} s, see {where}"
                )
            time.sleep(0.2)
        return self._facts()

    def _read_events(self) -> set[str]:
        reply = self._store.get("/v1/runs", params={"user": self._user, "workspace": WORKSPACE}).raise_for_status()
        return {event for run in reply.json()["items"] if run["state"] == "applied" for event in run["event_ids"]}

    def _assemble(self, message: str) -> str:
        asked = {
            "user": self._user,
            "workspace": WORKSPACE,
            "system_prompt": SYSTEM_PROMPT,
            "message": message,
            "limit": 2,
        }
        return str(self._injection.post("/v1/assemble", json=asked).raise_for_status().json()["system_prompt"])

"""Short ways to ask the offline extractor."""

from datetime import datetime

from services.extraction.offline import observe
from shared.rpc.messages import Candidate, ClaimedChat


def chat(
    prompt: str,
    event_id: str = "e1",
    at: str = "2023-05-10T12:00:00+00:00",
    zone: str | None = None,
    response: str = "",
) -> ClaimedChat:
    sent = datetime.fromisoformat(at)
    return ClaimedChat(
        event_id=event_id,
        thread=None,
        prompt=prompt,
        response=response,
        occurred_at=sent,
        timezone=zone,
        recorded_at=sent,
    )


def seen(*prompts: str) -> list[Candidate]:
    return observe([chat(prompt, f"e{number}") for number, prompt in enumerate(prompts)])


def contents(*prompts: str) -> list[str]:
    return [candidate.content for candidate in seen(*prompts)]

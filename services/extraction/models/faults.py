"""What can go wrong with a model, told apart by what it means for the try and for the entry."""

from typing import Literal

# down: nobody can be served (refused, DNS, 401, 403, 429) · server, timeout: an outage only if others meet it too
# rejected: a 4xx to this request · unreadable: an answer that holds no reply · unsupported: none of the output modes is taken
FaultKind = Literal["down", "server", "timeout", "rejected", "unreadable", "unsupported"]
TryOutcome = Literal["unreadable", "no_tool_call", "model_failed", "timed_out", "released", "model_unsupported"]


class ModelFault(Exception):
    """One request failed. `reason` is a word of a closed set, as `status_500` or `refused`."""

    def __init__(self, kind: FaultKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class TryFailed(Exception):
    """A phase ended without a reply: how the try ends, unless the breaker finds that the provider is out."""

    def __init__(self, outcome: TryOutcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


def status_fault(status: int) -> ModelFault:
    reason = f"status_{status}"
    if status in (401, 402, 403, 429):
        return ModelFault("down", reason)
    if status in (408, 504):
        return ModelFault("timeout", reason)
    if status >= 500:
        return ModelFault("server", reason)
    return ModelFault("rejected", reason)

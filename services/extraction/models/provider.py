"""One request to one model, through pydantic-ai. Imported only where a model is configured: it costs 45 MB and a second.

Its errors and the SDK's hold requests and replies, so none of them leaves this module: each becomes a ModelFault with a closed reason.
"""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from httpx2 import AsyncClient
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UserError,
)
from pydantic_ai.messages import ModelRequest, SystemPromptPart, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from services.extraction.models.entries import ModelEntry
from services.extraction.models.faults import ModelFault, status_fault
from services.extraction.models.tool import Tool
from services.extraction.models.wire import ReplyTooLarge

Mode = Literal["tool", "json_schema", "text"]

# pydantic-ai splits reasoning tags off in quadratic time; `repair` does it in linear time.
_NO_TAGS = ("\0think", "\0/think")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said: the arguments of its calls, as text or parsed, and its text without a call. `filtered`: the provider would not."""

    calls: list[str | dict[str, Any]]
    text: str
    input_tokens: int
    output_tokens: int
    filtered: bool


def build_model(entry: ModelEntry, client: AsyncClient) -> Model:
    """Providers that take such a client use `client`. Raises ValueError with a line for the operator where the entry cannot be used."""
    kind, _, model = entry.model.partition(":")
    api_key = entry.api_key.get_secret_value() if entry.api_key else None
    given: dict[str, Any] = {key: value for key, value in (("base_url", entry.base_url), ("api_key", api_key)) if value}
    try:
        provider = infer_provider_class(kind)
    except ValueError:
        raise ValueError(f"entry {entry.name}: {kind} is no provider that is known") from None
    except ImportError:
        raise ValueError(f"entry {entry.name}: install pydantic-ai-slim[{kind}] to use provider {kind}") from None
    try:
        if kind in ("openai", "openai-chat"):
            profile = ModelProfile(thinking_tags=_NO_TAGS)
            return OpenAIChatModel(
                model,
                provider=OpenAIProvider(base_url=entry.base_url, api_key=api_key, http_client=client),
                profile=profile,
            )
        if "HTTPClient" in str(getattr(inspect.signature(provider).parameters.get("http_client"), "annotation", "")):
            given["http_client"] = client
        return infer_model(entry.model, provider_factory=lambda _: provider(**given))
    except UserError:
        raise ValueError(f"entry {entry.name}: provider {kind} needs an api_key") from None
    except (TypeError, ValueError):
        raise ValueError(
            f"entry {entry.name}: provider {kind} does not take what is given of base_url and api_key"
        ) from None


async def ask(model: Model, mode: Mode, tool: Tool, texts: tuple[str, str], timeout_s: float) -> Reply:
    """One request with (system, user) texts, without retries, over after `timeout_s` however it drips. Raises ModelFault."""
    system, user = texts
    request = ModelRequest(parts=[SystemPromptPart(system), UserPromptPart(user)])
    with _told_apart():
        async with asyncio.timeout(timeout_s):
            response = await model_request(
                model,
                [request],
                model_settings=ModelSettings(max_retries=0, timeout=timeout_s, request_timeout=timeout_s),
                model_request_parameters=_parameters(mode, tool),
            )
        calls = [
            dict(part.args) if isinstance(part.args, dict) else part.args or ""
            for part in response.parts
            if isinstance(part, ToolCallPart)
        ]
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    filtered = response.finish_reason == "content_filter" and not calls
    return Reply(calls, text, response.usage.input_tokens or 0, response.usage.output_tokens or 0, filtered)


def _parameters(mode: Mode, tool: Tool) -> ModelRequestParameters:
    if mode == "tool":
        definition = ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.schema)
        return ModelRequestParameters(function_tools=[definition], allow_text_output=False)
    if mode == "json_schema":
        shape = OutputObjectDefinition(json_schema=tool.schema, name=tool.name, description=tool.description)
        return ModelRequestParameters(output_mode="native", output_object=shape)
    return ModelRequestParameters()


@contextmanager
def _told_apart() -> Iterator[None]:
    try:
        yield
    except ModelContextWindowExceededError:
        raise ModelFault("rejected", "context_window") from None
    except ModelHTTPError as error:
        raise status_fault(error.status_code) from None
    except ModelRequestTimeout:
        raise ModelFault("timeout", "timed_out") from None
    except ReplyTooLarge:
        raise ModelFault("unreadable", "too_large") from None
    except TimeoutError:
        raise ModelFault("timeout", "timed_out") from None
    except ModelConnectionError as error:
        raise _connection_fault(error) from None
    except UserError:
        # The library itself says that this model does not take this way of asking.
        raise ModelFault("rejected", "mode") from None
    except ModelAPIError:
        raise ModelFault("unreadable", "not_json") from None
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError):
        # A 200 whose body is no chat completion: pydantic-ai's UnexpectedModelBehavior, or whatever its reading stumbled over.
        raise ModelFault("unreadable", "not_a_completion") from None


def _connection_fault(error: ModelConnectionError) -> ModelFault:
    """Refused, DNS, no route or TLS: the request was not sent."""
    if any(isinstance(cause, ReplyTooLarge) for cause in _causes(error)):
        return ModelFault("unreadable", "too_large")
    names = " ".join(type(cause).__name__ for cause in _causes(error))
    if "ConnectError" in names or "ConnectTimeout" in names or getattr(error, "phase", None) == "connect":
        return ModelFault("down", "refused")
    return (
        ModelFault("timeout", "timed_out") if isinstance(error, ModelTimeoutError) else ModelFault("server", "dropped")
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

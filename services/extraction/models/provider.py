"""One request to one model, through pydantic-ai. Imported only where a model is configured: it costs 45 MB and a second.

Its errors and the SDK's hold requests and replies, so none of them leaves this module: each becomes a ModelFault with a closed reason.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

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

Mode = Literal["tool", "json_schema", "text"]

# pydantic-ai splits reasoning tags off in quadratic time; `repair` does it in linear time.
_NO_TAGS = ("\0think", "\0/think")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said: the arguments of its calls, as text or parsed, and its text without a call."""

    calls: list[str | dict[str, Any]]
    text: str
    input_tokens: int
    output_tokens: int


def build_model(entry: ModelEntry) -> Model:
    """Raises ValueError with a line for the operator where the entry cannot be used."""
    kind, _, model = entry.model.partition(":")
    api_key = entry.api_key.get_secret_value() if entry.api_key else None
    given = {key: value for key, value in (("base_url", entry.base_url), ("api_key", api_key)) if value}
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
                model, provider=OpenAIProvider(base_url=entry.base_url, api_key=api_key), profile=profile
            )
        return infer_model(entry.model, provider_factory=lambda _: provider(**given))
    except UserError:
        raise ValueError(f"entry {entry.name}: provider {kind} needs an api_key") from None
    except (TypeError, ValueError):
        raise ValueError(
            f"entry {entry.name}: provider {kind} does not take what is given of base_url and api_key"
        ) from None


async def ask(model: Model, mode: Mode, tool: Tool, texts: tuple[str, str], timeout_s: float) -> Reply:
    """One request with (system, user) texts, without retries. Raises ModelFault."""
    system, user = texts
    request = ModelRequest(parts=[SystemPromptPart(system), UserPromptPart(user)])
    with _told_apart():
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
    if response.finish_reason == "content_filter" and not calls:
        raise ModelFault("rejected", "content_filter")
    return Reply(calls, text, response.usage.input_tokens or 0, response.usage.output_tokens or 0)


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
    except ModelConnectionError as error:
        if _never_connected(error):
            raise ModelFault("down", "refused") from None
        if isinstance(error, ModelTimeoutError):
            raise ModelFault("timeout", "timed_out") from None
        raise ModelFault("server", "dropped") from None
    except UserError:
        # The library itself says that this model does not take this way of asking.
        raise ModelFault("rejected", "mode") from None
    except ModelAPIError:
        raise ModelFault("unreadable", "not_json") from None
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError):
        # A 200 whose body is no chat completion: pydantic-ai's UnexpectedModelBehavior, or whatever its reading stumbled over.
        raise ModelFault("unreadable", "not_a_completion") from None


def _never_connected(error: BaseException) -> bool:
    """Refused, DNS, no route or TLS: the request was not sent."""
    cause: BaseException | None = error
    while cause is not None:
        if "ConnectError" in type(cause).__name__ or "ConnectTimeout" in type(cause).__name__:
            return True
        cause = cause.__cause__ or cause.__context__
    return getattr(error, "phase", None) == "connect"

"""The operator's model entries: `KEEPSAKE_MODELS`, or the short form `KEEPSAKE_MODEL` with `_BASE_URL` and `_API_KEY`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from shared.settings import KeepsakeSettings

DEFAULT_ENTRY = "default"
Output = Literal["auto", "tool", "json_schema", "text"]
ProviderModel = Annotated[str, Field(pattern=r"^[a-z0-9-]+:.+$")]
BaseUrl = Annotated[str, Field(pattern=r"^https?://[^/]+")]


class ModelEntry(BaseModel):
    """One model under a name of the operator's choice. `model` is `provider:model`; `openai:` is any OpenAI-compatible server."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, Field(min_length=1, max_length=100)]
    model: ProviderModel
    base_url: BaseUrl | None = None
    api_key: SecretStr | None = None
    output: Output = "auto"
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    # The prompt, its schema and the reply take some 2,600; a chat as long as chats are shown, some 1,000.
    context_tokens: Annotated[int, Field(ge=4096)] = 128_000


class ModelSettings(KeepsakeSettings):
    models: list[ModelEntry] = Field(
        [],
        description="JSON list of `{name, model, base_url, api_key, output, timeout_s, context_tokens}`; the first is the default. "
        "`timeout_s` (120) bounds each request, `context_tokens` (128000, from 4096 on) its size: a window that does not fit is read in "
        "parts. None: the offline extractor serves.",
    )
    model: ProviderModel | None = Field(None, description="Short form of one entry: `provider:model`.")
    model_base_url: BaseUrl | None = Field(None, description="Its base URL, including `/v1`.")
    model_api_key: SecretStr | None = Field(None, description="Its key.")

    @field_validator("models")
    @classmethod
    def _own_names(cls, models: list[ModelEntry]) -> list[ModelEntry]:
        if len({entry.name for entry in models}) != len(models):
            raise ValueError("two entries have one name")
        return models

    @model_validator(mode="after")
    def _one_form(self) -> "ModelSettings":
        if self.models and self.model:
            raise ValueError("give KEEPSAKE_MODELS or KEEPSAKE_MODEL, not both")
        return self

    def entries(self) -> list[ModelEntry]:
        if not self.model:
            return list(self.models)
        return [
            ModelEntry(name=DEFAULT_ENTRY, model=self.model, base_url=self.model_base_url, api_key=self.model_api_key)
        ]

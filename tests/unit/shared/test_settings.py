import pytest
from pydantic import Field, SecretStr

from shared.settings import CommaSeparated, ServiceSettings, load


class Example(ServiceSettings):
    port: int = Field(8009, ge=1, le=65535, description="Port to listen on.")
    names: CommaSeparated = Field(("a", "b"), description="Names.")
    models: list[dict[str, str]] = Field([], description="Entries.")
    token: SecretStr = Field(description="A secret.")


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSAKE_TOKEN", "hush-hush")


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        load(Example, "services.example", [])
    assert caught.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_lists_are_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSAKE_NAMES", "x, y,,z ")
    assert load(Example, "services.example", []).names == ("x", "y", "z")


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSAKE_PORT", "")
    assert load(Example, "services.example", []).port == 8009


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KEEPSAKE_PORT", "eighty"),
        ("KEEPSAKE_PORT", "70000"),
        ("KEEPSAKE_LOG_FORMAT", "xml"),
        ("KEEPSAKE_MODELS", "{no json"),
    ],
)
def test_a_wrong_setting_is_named_and_its_value_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    line = refusal(capsys)
    assert name in line
    assert value not in line
    assert "hush" not in line


def test_a_missing_setting_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("KEEPSAKE_TOKEN")
    assert "KEEPSAKE_TOKEN is missing" in refusal(capsys)


def test_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load(Example, "services.example", ["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(f"KEEPSAKE_{name.upper()}" in text for name in Example.model_fields)

"""Model entries from the environment, and what a wrong one says."""

import time

import pytest

from services.extraction.app import build_models
from services.extraction.models.entries import ModelEntry
from services.extraction.settings import ExtractionSettings
from services.extraction.worker.worker import new_run_id
from shared.settings import load

TWO = '[{"name": "a", "model": "openai:x"}, {"name": "b", "model": "openai:y", "base_url": "http://h/v1", "output": "text"}]'


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSAKE_SERVICE_KEY", "k")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_no_model_is_configured_by_default() -> None:
    assert ExtractionSettings().entries() == []


def test_the_short_form_makes_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSAKE_MODEL", "openai:gpt-x")
    monkeypatch.setenv("KEEPSAKE_MODEL_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("KEEPSAKE_MODEL_API_KEY", "sk-1")
    (entry,) = ExtractionSettings().entries()
    assert (entry.name, entry.model, entry.base_url) == ("default", "openai:gpt-x", "http://127.0.0.1:1/v1")
    assert "sk-1" not in repr(entry)


def test_the_list_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSAKE_MODELS", TWO)
    assert [(entry.name, entry.output, entry.timeout_s) for entry in ExtractionSettings().entries()] == [
        ("a", "auto", 120.0),
        ("b", "text", 120.0),
    ]


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"KEEPSAKE_MODEL": "gpt-x"}, "KEEPSAKE_MODEL is wrong"),
        ({"KEEPSAKE_MODEL": "openai:x", "KEEPSAKE_MODEL_BASE_URL": "nowhere"}, "KEEPSAKE_MODEL_BASE_URL is wrong"),
        ({"KEEPSAKE_MODELS": "[{"}, "KEEPSAKE_MODELS is wrong: not valid JSON"),
        ({"KEEPSAKE_MODELS": '[{"name": "a"}]'}, "KEEPSAKE_MODELS[0][model] is missing"),
        ({"KEEPSAKE_MODELS": TWO.replace('"b"', '"a"')}, "two entries have one name"),
        ({"KEEPSAKE_MODELS": TWO.replace("output", "outputs")}, "KEEPSAKE_MODELS[1][outputs] is wrong"),
        ({"KEEPSAKE_MODELS": TWO, "KEEPSAKE_MODEL": "openai:x"}, "KEEPSAKE_MODELS or KEEPSAKE_MODEL, not both"),
        ({"KEEPSAKE_ROLES": "stager,cook"}, "KEEPSAKE_ROLES is wrong"),
    ],
)
def test_a_wrong_setting_ends_the_start_with_one_line(
    variables: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as stopped:
        load(ExtractionSettings, "services.extraction", [])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (ModelEntry(name="a", model="openai:x"), "provider openai needs an api_key"),
        (ModelEntry(name="a", model="nobody:x"), "nobody is no provider that is known"),
        (ModelEntry(name="a", model="groq:x"), "install pydantic-ai-slim[groq]"),
    ],
)
def test_an_entry_that_cannot_be_used_ends_the_start_too(
    entry: ModelEntry, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        build_models([entry], probe_s=1)
    assert stopped.value.code == 2
    assert line in capsys.readouterr().err


def test_run_ids_are_uuid7_in_the_order_of_their_making() -> None:
    first = new_run_id()
    until = time.time() + 0.002
    while time.time() < until:
        pass
    second = new_run_id()
    assert (first.version, first.variant) == (7, "specified in RFC 4122")
    assert first < second
    assert abs((first.int >> 80) / 1000 - time.time()) < 5

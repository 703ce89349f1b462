"""A model's folder: `model.onnx`, `ranker.json` and, unless the graph takes strings, `tokenizer.json`.

Everything here blocks; `worker.Encoder` keeps it off the event loop.
"""

import ctypes
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tokenizers import Tokenizer

from shared.encoder.tokens import estimate_tokens

Vector = npt.NDArray[np.float32]

# Characters of a text that are read. Tokenizing is linear but slow: 1 MB takes 1.4 s, and in a graph more memory than there is.
MAX_TEXT = 1000
_ORT_ERRORS: tuple[type[Exception], ...] = (
    ort_errors.EPFail,
    ort_errors.EngineError,
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.ModelLoaded,
    ort_errors.NoModel,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    RuntimeError,
    ValueError,
)


class ModelUnavailableError(Exception):
    """A model that is missing, broken or fails. The text names the file or the step and holds nothing that was encoded."""


class RankerFile(BaseModel):
    """`ranker.json`. `pooling` none: the graph's first output is [texts, width] already. `languages` are ISO 639-1 codes. `floor` is the
    least score of the best fact that is worth injecting. `token_splits` names an output of a string graph that holds where each
    text's tokens begin and end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["bi"]
    pooling: Literal["none", "mean", "cls"]
    query_prefix: str = ""
    passage_prefix: str = ""
    languages: Annotated[list[str], Field(min_length=1)]
    floor: Annotated[float, Field(ge=-1, le=2)]
    token_splits: str | None = None


class Model:
    """One loaded bi-encoder. `name` identifies its vectors: folder name and a hash of all that shapes a passage's vector."""

    def __init__(
        self, name: str, ranker: RankerFile, session: ort.InferenceSession, tokenizer: Tokenizer | None
    ) -> None:
        self.name = name
        self.ranker = ranker
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = [node.name for node in session.get_inputs()]
        self._output = session.get_outputs()[0].name
        self._tokens_only = ort.RunOptions()
        self._tokens_only.only_execute_path_to_fetches = True

    def encode_query(self, text: str) -> Vector:
        return self._encode([self.ranker.query_prefix + text[:MAX_TEXT]])[0]

    def encode_passages(self, texts: Sequence[str]) -> list[Vector]:
        return self._encode([self.ranker.passage_prefix + text[:MAX_TEXT] for text in texts])

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text without the marks of beginning and end; an upper estimate where the graph hides its tokenizer."""
        texts = [text[:MAX_TEXT] for text in texts]
        if self._tokenizer is not None:
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
            return [len(e.ids) + sum(len(more.ids) for more in e.overflowing) for e in encodings]
        if self.ranker.token_splits is None:
            return [estimate_tokens(text) for text in texts]
        # An empty text shows how many marks each gets. Its place is the last: the splits are n + 1 positions.
        splits = self._run([self.ranker.token_splits], [*texts, ""], self._tokens_only)
        sizes = np.diff(splits)
        return [int(size - sizes[-1]) for size in sizes[:-1]]

    def _encode(self, texts: list[str]) -> list[Vector]:
        """Strings go in one batch: twenty facts take 8 ms, one by one 20. (An int8 model scales by its batch: cosine 0.997 or more
        between a vector made alone and the same made in company.) Tokens go one by one: padding would cost what a batch saves."""
        if self._tokenizer is None:
            return [_normalised(row) for row in self._run([self._output], texts)]
        return [_normalised(self._pool(self._run_tokens(text)[0])) for text in texts]

    def _run_tokens(self, text: str) -> npt.NDArray[Any]:
        assert self._tokenizer is not None  # noqa: S101
        encoding = self._tokenizer.encode(text)
        columns = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        feeds = {name: np.array([columns[name]], dtype=np.int64) for name in self._inputs}
        return self._run_feeds([self._output], feeds)

    def _pool(self, states: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # No padding in a batch of one, so that every position counts.
        if self.ranker.pooling == "mean":
            return np.asarray(states.mean(axis=0))
        return np.asarray(states[0]) if self.ranker.pooling == "cls" else states

    def _run(self, outputs: list[str], texts: list[str], options: ort.RunOptions | None = None) -> npt.NDArray[Any]:
        return self._run_feeds(outputs, {self._inputs[0]: np.array(texts, dtype=object)}, options)

    def _run_feeds(
        self, outputs: list[str], feeds: dict[str, npt.NDArray[Any]], options: ort.RunOptions | None = None
    ) -> npt.NDArray[Any]:
        try:
            return np.asarray(self._session.run(outputs, feeds, options)[0])
        except _ORT_ERRORS as error:
            raise ModelUnavailableError(f"the model failed: {type(error).__name__}") from None


def _normalised(row: npt.NDArray[Any]) -> Vector:
    norm = float(np.linalg.norm(row)) if row.ndim == 1 else 0.0
    if not (np.isfinite(norm) and norm > 0):
        raise ModelUnavailableError("the model's output is no vector: see pooling in ranker.json")
    return np.asarray(row / norm, dtype=np.float32)


def load_model(folder: Path) -> Model:
    """Loads the model in `folder` (0.3 to 0.5 s; use-multilingual-v3 adds about 110 MB resident) and encodes one word as a proof.

    Raises ModelUnavailableError.
    """
    ranker = _read_ranker(folder / "ranker.json")
    path, tokenizer_path = folder / "model.onnx", folder / "tokenizer.json"
    tokenizer = _read_tokenizer(tokenizer_path) if tokenizer_path.is_file() else None
    try:
        name = f"{folder.name}-{_fingerprint(ranker, path, tokenizer_path)}"
        session = _session(path, takes_strings=tokenizer is None)
    except OSError as error:
        raise ModelUnavailableError(f"{path} cannot be read: {type(error).__name__}") from None
    except _ORT_ERRORS as error:
        raise ModelUnavailableError(f"{path} is no model that onnxruntime can run: {type(error).__name__}") from None
    model = Model(name, ranker, session, tokenizer)
    try:
        model.encode_query("warm")
        model.count_tokens(["warm"])
    except KeyError as error:
        raise ModelUnavailableError(f"{path} wants an input that is not known: {error.args[0]}") from None
    _return_freed_memory()
    return model


def _read_ranker(path: Path) -> RankerFile:
    try:
        return RankerFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ModelUnavailableError(f"{path} cannot be read: {type(error).__name__}") from None
    except ValidationError as error:
        fields = ", ".join(sorted({str(e["loc"][0]) if e["loc"] else "JSON" for e in error.errors()}))
        raise ModelUnavailableError(f"{path} is not valid: {fields}") from None


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  the library raises bare Exception
        raise ModelUnavailableError(f"{path} is no tokenizer: {type(error).__name__}") from None
    tokenizer.no_padding()
    if tokenizer.truncation is None:
        tokenizer.enable_truncation(max_length=256)
    return tokenizer


def _session(path: Path, *, takes_strings: bool) -> ort.InferenceSession:
    options = ort.SessionOptions()
    # One thread: a sentence is too little work to share, and the cores belong to other processes too.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if takes_strings:
        from onnxruntime_extensions import get_library_path  # noqa: PLC0415  only such models need its 15 MB

        options.register_custom_ops_library(get_library_path())
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _fingerprint(ranker: RankerFile, *files: Path) -> str:
    digest = hashlib.sha256(f"{ranker.pooling}\n{ranker.passage_prefix}\n".encode())
    for path in files:
        if path.is_file():
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
    return digest.hexdigest()[:12]


def _return_freed_memory() -> None:
    """Gives back what parsing the model took: 35 of 190 MB resident with use-multilingual-v3. Only glibc has it; elsewhere nothing."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return

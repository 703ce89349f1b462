"""What a cross-encoder of MiniLM's size would cost each turn: the message read together with each of twenty facts."""

import time

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

from deploy.local.paths import DEFAULT_DATA_DIR
from deploy.models import fetch
from tests.bench.facts import FACT_TEXTS


class CrossEncoder:
    """Pairs in one batch through a bi-encoder's graph: the same work as a cross-encoder's of the same layers, whose head costs nothing."""

    def __init__(self) -> None:
        folder = fetch("minilm-l6-v2", DEFAULT_DATA_DIR)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_padding()
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # as our encoder
        self._session = ort.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        self._names = [node.name for node in self._session.get_inputs()]
        self.ms("warm")

    def ms(self, text: str) -> float:
        started = time.perf_counter()
        encodings = self._tokenizer.encode_batch([(text, fact) for fact in FACT_TEXTS])
        columns = {
            "input_ids": [e.ids for e in encodings],
            "attention_mask": [e.attention_mask for e in encodings],
            "token_type_ids": [e.type_ids for e in encodings],
        }
        self._session.run(None, {name: np.array(columns[name], dtype=np.int64) for name in self._names})
        return (time.perf_counter() - started) * 1000

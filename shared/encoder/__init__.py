"""Texts to vectors with a local ONNX model: `load_model` reads its folder, `Encoder` runs it off the event loop."""

from shared.encoder.model import MAX_TEXT, Model, ModelUnavailableError, Vector, load_model
from shared.encoder.tokens import estimate_tokens
from shared.encoder.worker import Encoder, EncoderBusyError

__all__ = [
    "MAX_TEXT",
    "Encoder",
    "EncoderBusyError",
    "Model",
    "ModelUnavailableError",
    "Vector",
    "estimate_tokens",
    "load_model",
]

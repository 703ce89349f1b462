"""How a vector travels in RPC messages: base64 of little-endian float32."""

import binascii

import numpy as np

from shared.encoder.model import Vector


def pack(vector: Vector) -> str:
    return binascii.b2a_base64(vector.astype("<f4").tobytes(), newline=False).decode("ascii")


def unpack(packed: str) -> Vector:
    """Raises ValueError where `packed` is no such vector."""
    return np.frombuffer(binascii.a2b_base64(packed, strict_mode=True), dtype="<f4").astype(np.float32, copy=False)

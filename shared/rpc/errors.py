"""Errors of the Connect protocol (connectrpc.com/docs/protocol), unary JSON."""

from typing import Literal, get_args

Code = Literal[
    "canceled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
]

HTTP_STATUS: dict[Code, int] = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}
CODES: frozenset[str] = frozenset(get_args(Code))

# What a status means when no Connect error came with it, as from a proxy (the protocol's own table).
FROM_STATUS: dict[int, Code] = {
    400: "internal",
    401: "unauthenticated",
    403: "permission_denied",
    404: "unimplemented",
    413: "resource_exhausted",
    429: "unavailable",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}


class RpcError(Exception):
    """A failed call. `message` is for operators: it names rules and fields, never values."""

    def __init__(self, code: Code, message: str = "") -> None:
        super().__init__(code)
        self.code: Code = code
        self.message = message

"""Errors of the HTTP interfaces: RFC 9457 problem+json with a stable `code`, never holding what was sent."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from shared.rpc.errors import RpcError

log = structlog.get_logger()

STATUS_OF: dict[str, int] = {
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "timeout": 408,
    "limit_reached": 409,
    "duplicate": 409,
    "forgotten": 409,
    "not_global": 409,
    "not_active": 409,
    "not_pending": 409,
    "not_dead": 409,
    "version_conflict": 412,
    "too_large": 413,
    "unsupported_encoding": 415,
    "invalid": 422,
    "secret": 422,
    "markup": 422,
    "contact_data": 422,
    "unknown_model": 422,
    "internal": 500,
    "unavailable": 503,
}


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": {
            "application/problem+json": {
                "schema": {
                    "type": "object",
                    "required": ["type", "title", "status", "code"],
                    "properties": {
                        "type": {"type": "string"},
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "code": {"type": "string", "enum": codes},
                        "detail": {"type": "string"},
                    },
                }
            }
        },
    }
    for status, description, codes in (
        ("4XX", "The request cannot be carried out", [code for code, status in STATUS_OF.items() if status < 500]),
        ("503", "Not now; Retry-After says when", ["unavailable"]),
    )
}
"""What every route may answer beside its own, for the OpenAPI documents."""


class Problem(Exception):
    """An answer that is an error. `code` is one of STATUS_OF; `extra` are further members of the body."""

    def __init__(
        self, code: str, detail: str = "", *, headers: Mapping[str, str] | None = None, **extra: object
    ) -> None:
        super().__init__(code)
        self.status = STATUS_OF[code]
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = extra

    def response(self) -> Response:
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
        }
        if self.detail:
            body["detail"] = self.detail
        return JSONResponse(
            body | self.extra,
            status_code=self.status,
            media_type="application/problem+json",
            headers={"Cache-Control": "no-store", **self.headers},
        )


def unauthenticated() -> Problem:
    return Problem("unauthenticated", "a valid API key or user token is needed", headers={"WWW-Authenticate": "Bearer"})


def unavailable(detail: str = "try again later", **extra: object) -> Problem:
    return Problem("unavailable", detail, headers={"Retry-After": "1"}, **extra)


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 (registered for this type)
    return error.response()


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    errors = [{"field": place_of(issue), "code": issue["type"]} for issue in error.errors()[:20]]
    # A path that is no id names nothing that exists.
    if any(issue["loc"][:1] == ("path",) for issue in error.errors()):
        return Problem("not_found").response()
    return Problem("invalid", "the request does not fit the contract", errors=errors).response()


def place_of(issue: Mapping[str, Any]) -> str:
    """Where in the contract one of pydantic's issues lies, as `chats.0.user`; the name of an unknown field is the sender's text."""
    parts = issue["loc"][:-1] if issue["type"] == "extra_forbidden" else issue["loc"]
    return ".".join(str(part) for part in parts if part != "body")


_HTTP_CODES = {401: "unauthenticated", 403: "forbidden", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    code = _HTTP_CODES.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    return Problem(code, headers=error.headers).response()


async def _rpc(_: Request, error: Exception) -> Response:
    assert isinstance(error, RpcError)  # noqa: S101
    if error.code in ("unavailable", "deadline_exceeded"):
        return unavailable("memory-store does not answer").response()
    log.error("rpc_failed", code=error.code)
    return Problem("internal").response()


async def _unexpected(_: Request, error: Exception) -> Response:
    log.error("request_failed", exc_info=error)
    return Problem("internal", "the error was logged").response()


def install(app: FastAPI) -> None:
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RpcError, _rpc)
    app.add_exception_handler(Exception, _unexpected)

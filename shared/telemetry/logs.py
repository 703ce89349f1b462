"""Logs: one event per line, console or JSON, with run and trace ids; an exception is its type and places, never its text."""

import logging
import sys
import traceback
from typing import Literal

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["console", "json"]

# What these say at INFO is noise, and their DEBUG holds records, URLs and statements.
_QUIET = (
    "asyncio",
    "faststream",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "openai",
    "uvicorn",
    "opentelemetry",
    "urllib3",
)
# It repeats at ERROR, many times a second, what the service says once: the broker is away.
_MUTED = ("aiokafka",)


def _trace_ids(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = f"{context.trace_id:032x}"
    return event


def _exception_places(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """`str()` of asyncpg's, pydantic's and httpx's errors holds arguments, input and URLs: keep the type and where it was raised."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)[-5:]
        event["exception"] = type(error).__name__
        event["at"] = [f"{frame.filename.rsplit('site-packages/', 1)[-1]}:{frame.lineno}" for frame in frames]
    return event


def configure_logs(service: str, *, level: str, log_format: LogFormat) -> None:
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _trace_ids,
        _exception_places,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            foreign_pre_chain=[_only_library_event, *shared],
            pass_foreign_args=True,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
    for name in _MUTED:
        logging.getLogger(name).setLevel(logging.WARNING if level == "DEBUG" else logging.CRITICAL)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)


def _only_library_event(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A library's message may hold what it was given: keep its template and who spoke, drop the arguments."""
    record: logging.LogRecord | None = event.get("_record")
    if record is not None:
        event["event"] = f"library: {record.msg}" if event.pop("positional_args", None) else "library: message"
        event["logger"] = record.name
        event["at"] = f"{record.module}:{record.lineno}"
    return event

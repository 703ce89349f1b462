"""W3C traces through OpenTelemetry. Spans are exported where OTEL_EXPORTER_OTLP_ENDPOINT is set, else nothing is recorded.

Spans hold route templates, method names and ids of runs; never text.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_TRACER = trace.get_tracer("keepsake")
_PROPAGATOR = TraceContextTextMapPropagator()


def configure_tracing(service: str) -> None:
    if not (os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return
    provider = TracerProvider(resource=Resource.create({"service.name": service, "service.namespace": "keepsake"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


@contextmanager
def span(
    name: str, *, context: Context | None = None, kind: SpanKind = SpanKind.INTERNAL, links: Sequence[Link] = ()
) -> Iterator[Span]:
    """The current span of a block. Of an error it keeps the type alone: OpenTelemetry itself would record its text and traceback."""
    with _TRACER.start_as_current_span(
        name, context=context, kind=kind, links=links, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            current.set_status(StatusCode.ERROR)
            current.set_attribute("error.type", type(error).__name__)
            raise


def outgoing_headers() -> dict[str, str]:
    """`traceparent` of the current span, or nothing."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers)
    return {"traceparent": headers["traceparent"]} if "traceparent" in headers else {}


def current_traceparent() -> str | None:
    return outgoing_headers().get("traceparent")


def incoming_context(traceparent: str | None) -> Context | None:
    """The caller's context, for a span that is its child."""
    return _PROPAGATOR.extract({"traceparent": traceparent}) if traceparent else None


def link_to(traceparent: str | None) -> list[Link]:
    """A link, not a parent: one poll or run serves chats of many traces."""
    context = trace.get_current_span(incoming_context(traceparent)).get_span_context() if traceparent else None
    return [Link(context)] if context is not None and context.is_valid else []

"""A receiver of traces as a collector is one: OTLP over HTTP, protobuf.

with running_receiver() as receiver:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)   # before the services start
    …
    receiver.spans
"""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """Ids in hex; `links` are (trace, span). `everything` is the whole span as text, to look for what must not be in it."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, str]
    events: int
    everything: str


class Receiver:
    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.raw = b""
        self.url = ""

    def take(self, body: bytes) -> None:
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for each in scope.spans:
                    self.spans.append(
                        ReceivedSpan(
                            service=about.get("service.name", ""),
                            name=each.name,
                            trace=each.trace_id.hex(),
                            span=each.span_id.hex(),
                            parent=each.parent_span_id.hex(),
                            links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in each.links),
                            attributes={
                                attribute.key: attribute.value.string_value or str(attribute.value.int_value)
                                for attribute in each.attributes
                            },
                            events=len(each.events),
                            everything=str(each),
                        )
                    )

    def named(self, name: str, service: str | None = None) -> list[ReceivedSpan]:
        return [each for each in list(self.spans) if each.name == name and service in (None, each.service)]


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, name="otlp-receiver")
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()

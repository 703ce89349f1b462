"""Every metric of every service, so that one read shows them all and no two differ in name.

Labels are closed sets: never a user, workspace, thread, fact, event or raw path. A service exports only what it can move: a gauge that
stands at 0 where nobody moves it would tell lies.
"""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.metrics import MetricWrapperBase

Metric = TypeVar("Metric", bound=MetricWrapperBase)

REGISTRY = CollectorRegistry()
"""All of them, of whichever service."""

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
_SLOW = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_INGEST, _EXTRACTION, _STORE, _INJECTION = _SERVICES = ("chat-ingest", "extraction", "memory-store", "injection")

# A series more for each counter and histogram, which nobody asked for.
disable_created_metrics()  # type: ignore[no-untyped-call]


class _Of:
    """Makes the metrics of some services."""

    def __init__(self, *services: str) -> None:
        self._registries = [REGISTRY, *(_exported[service] for service in services)]

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return self._register(Counter(f"keepsake_{name}", text, labels, registry=None))

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return self._register(Gauge(f"keepsake_{name}", text, labels, registry=None))

    def histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _FAST) -> Histogram:
        return self._register(Histogram(f"keepsake_{name}", text, labels, registry=None, buckets=buckets))

    def _register(self, metric: Metric) -> Metric:
        for registry in self._registries:
            registry.register(metric)
        return metric


_exported = {service: CollectorRegistry() for service in _SERVICES}
_all, _ingest, _extraction = _Of(*_SERVICES), _Of(_INGEST), _Of(_EXTRACTION)
_store, _injection, _runs = _Of(_STORE), _Of(_INJECTION), _Of(_EXTRACTION, _STORE)

# HTTP and ingest
HTTP_REQUESTS = _all.counter("http_requests_total", "requests by route template", "route", "method", "code")
HTTP_SECONDS = _all.histogram("http_request_seconds", "time to answer", "route")
AUTH_FAILURES = _all.counter("auth_failures_total", "refused credentials", "reason")
INGEST_CHATS = _ingest.counter("ingest_chats_total", "chats posted over HTTP", "outcome")
INGEST_PUBLISH_SECONDS = _ingest.histogram("ingest_publish_seconds", "time until Kafka has a request's chats")

# Stager
STAGER_RECORDS = _extraction.counter("stager_records_total", "records of chat.events", "outcome")
DEAD_LETTERS = _extraction.counter("dead_letters_total", "records that went to the dead-letter topic", "reason")
STAGER_LAG = _extraction.gauge("stager_lag_records", "records between the committed offset and the end", "partition")
STAGER_LAG_RATIO = _extraction.gauge(
    "stager_lag_ratio",
    "share of what Kafka keeps that is not staged; 0 until retention has taken a record",
    "partition",
)
TOPIC_RETENTION = _extraction.gauge(
    "topic_retention_seconds", "how long Kafka keeps a topic; below 0 for ever", "topic"
)
STAGER_LAST_COMMIT = _extraction.gauge("stager_last_commit_timestamp_seconds", "when offsets were last committed")
STAGER_PARTITIONS = _extraction.gauge("stager_assigned_partitions", "partitions this replica reads")
STAGER_RETRY_WAIT = _extraction.counter("stager_retry_wait_seconds", "time waited for memory-store")
STAGER_COMMITS_REFUSED = _extraction.counter(
    "stager_commits_refused_total", "commits refused after a rebalance; the records come again"
)
UNKNOWN_FIELDS = _extraction.counter("unknown_fields_total", "unknown fields in chat events")

# Batches and runs
BATCHES = _store.gauge("batches", "due, running (each up to 10,000) and sleeping (an estimate beyond that)", "state")
OLDEST_DUE_AGE = _store.gauge("oldest_due_age_seconds", "how long the oldest due batch waits for a worker")
OLDEST_PENDING_AGE = _store.gauge("oldest_pending_age_seconds", "age of the oldest pending chat")
LEASES_LOST = _store.counter("lease_lost_total", "runs whose lease ran out")
STALE_FENCES = _store.counter("stale_fence_total", "calls refused because another run holds the batch")
RUNS = _store.counter("runs_total", "ended runs", "outcome", "extractor")
RUN_SECONDS = _store.histogram("run_seconds", "from claim to end", buckets=_SLOW)
CANDIDATES = _runs.counter("candidates_total", "what became of candidates", "decision", "reason")
SECRETS_REDACTED = _store.counter("secrets_redacted_total", "secrets replaced at staging", "kind")

# Model
MODEL_REQUESTS = _extraction.counter("model_requests_total", "calls to a model", "phase", "outcome")
MODEL_SECONDS = _extraction.histogram("model_seconds", "time of one call", "phase", buckets=_SLOW)
MODEL_TOKENS = _extraction.counter("model_tokens_total", "tokens as the provider counts them", "phase", "direction")
BREAKER_STATE = _extraction.gauge(
    "provider_breaker_state", "0 closed, 1 open; one per entry of KEEPSAKE_MODELS", "model"
)

# Assembling
ASSEMBLE_SECONDS = _injection.histogram("assemble_seconds", "time to assemble a prompt")
ASSEMBLED = _injection.counter("assemble_total", "assembled prompts", "ranking", "degraded")
RANK_SECONDS = _injection.histogram("rank_seconds", "time to rank")
RANK_QUEUE = _injection.gauge("rank_queue_depth", "encodings that wait")
RANK_DROPPED = _injection.counter(
    "rank_dropped_total", "requests answered newest-first because the ranker was full or late"
)

# Store
DB_POOL_IN_USE = _store.gauge("db_pool_in_use", "connections in use", "pool")
DB_POOL_WAIT_SECONDS = _store.histogram("db_pool_wait_seconds", "time waited for a connection", "pool")
OUTBOX_OLDEST_AGE = _store.gauge("outbox_oldest_age_seconds", "age of the oldest change that is not on Kafka yet")
SCHEMA_VERSION = _store.gauge("schema_version", "number of the newest migration that is applied")

# Privacy
RETENTION_LAST_SUCCESS = _store.gauge(
    "retention_last_success_timestamp_seconds", "when a whole sweep was last done, by any replica"
)
RETENTION_ROWS = _store.counter("retention_rows_total", "rows whose text, or which themselves, left with time", "kind")

# Loops and build
LOOP_LAST_PROGRESS = _all.gauge("loop_last_progress_timestamp_seconds", "when a loop last moved", "loop")
BUILD_INFO = _all.gauge("build_info", "always 1", "version", "python")


def begin(service: str) -> None:
    """Says which service this process is, and of which release."""
    global _service
    _service = service
    try:
        release = version("keepsake-memory")
    except PackageNotFoundError:
        release = "source"
    BUILD_INFO.labels(release, platform.python_version()).set(1)


_service: str | None = None


def exported(service: str) -> CollectorRegistry:
    return _exported[service]


def exposition() -> bytes:
    """What Prometheus reads: the metrics of this process's service, in the text format."""
    return generate_latest(exported(_service) if _service else REGISTRY)

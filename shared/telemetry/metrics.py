"""Every metric of every service, so that one read shows them all and no two differ in name.

Labels are closed sets: never a user, workspace, thread, fact, event or raw path. A service exports only what it moved.
"""

import platform
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
_SLOW = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"keepsake_{name}", text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"keepsake_{name}", text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _FAST) -> Histogram:
    return Histogram(f"keepsake_{name}", text, labels, registry=REGISTRY, buckets=buckets)


# HTTP and ingest
HTTP_REQUESTS = _counter("http_requests_total", "requests by route template", "route", "method", "code")
HTTP_SECONDS = _histogram("http_request_seconds", "time to answer", "route")
AUTH_FAILURES = _counter("auth_failures_total", "refused credentials", "reason")
INGEST_CHATS = _counter("ingest_chats_total", "chats posted over HTTP", "outcome")
INGEST_PUBLISH_SECONDS = _histogram("ingest_publish_seconds", "time until Kafka has a request's chats")

# Stager
STAGER_RECORDS = _counter("stager_records_total", "records of chat.events", "outcome")
DEAD_LETTERS = _counter("dead_letters_total", "records that went to the dead-letter topic", "reason")
STAGER_LAG = _gauge("stager_lag_records", "records between the committed offset and the end", "partition")
STAGER_LAST_COMMIT = _gauge("stager_last_commit_timestamp_seconds", "when offsets were last committed")
STAGER_PARTITIONS = _gauge("stager_assigned_partitions", "partitions this replica reads")
STAGER_RETRY_WAIT = _counter("stager_retry_wait_seconds", "time waited for memory-store")
STAGER_COMMITS_REFUSED = _counter(
    "stager_commits_refused_total", "commits refused after a rebalance; the records come again"
)
UNKNOWN_FIELDS = _counter("unknown_fields_total", "unknown fields in chat events")

# Batches and runs
BATCHES = _gauge("batches", "due, running (each up to 10,000) and sleeping (an estimate beyond that)", "state")
OLDEST_DUE_AGE = _gauge("oldest_due_age_seconds", "how long the oldest due batch waits for a worker")
OLDEST_PENDING_AGE = _gauge("oldest_pending_age_seconds", "age of the oldest pending chat")
LEASES_LOST = _counter("lease_lost_total", "runs whose lease ran out")
STALE_FENCES = _counter("stale_fence_total", "calls refused because another run holds the batch")
RUNS = _counter("runs_total", "ended runs", "outcome", "extractor")
RUN_SECONDS = _histogram("run_seconds", "from claim to end", buckets=_SLOW)
CANDIDATES = _counter("candidates_total", "what became of candidates", "decision", "reason")
SECRETS_REDACTED = _counter("secrets_redacted_total", "secrets replaced at staging", "kind")

# Model
MODEL_REQUESTS = _counter("model_requests_total", "calls to a model", "phase", "outcome")
MODEL_SECONDS = _histogram("model_seconds", "time of one call", "phase", buckets=_SLOW)
MODEL_TOKENS = _counter("model_tokens_total", "tokens as the provider counts them", "phase", "direction")
BREAKER_STATE = _gauge("provider_breaker_state", "0 closed, 1 open; one per entry of KEEPSAKE_MODELS", "model")

# Assembling
ASSEMBLE_SECONDS = _histogram("assemble_seconds", "time to assemble a prompt")
ASSEMBLED = _counter("assemble_total", "assembled prompts", "ranking", "degraded")
RANK_SECONDS = _histogram("rank_seconds", "time to rank")
RANK_QUEUE = _gauge("rank_queue_depth", "encodings that wait")
RANK_DROPPED = _counter("rank_dropped_total", "requests answered newest-first because the ranker was full or late")

# Store
DB_POOL_IN_USE = _gauge("db_pool_in_use", "connections in use", "pool")
DB_POOL_WAIT_SECONDS = _histogram("db_pool_wait_seconds", "time waited for a connection", "pool")
OUTBOX_OLDEST_AGE = _gauge("outbox_oldest_age_seconds", "age of the oldest change that is not on Kafka yet")
SCHEMA_VERSION = _gauge("schema_version", "number of the newest migration that is applied")

# Privacy
RETENTION_LAST_SUCCESS = _gauge(
    "retention_last_success_timestamp_seconds", "when a whole sweep was last done, by any replica"
)
RETENTION_ROWS = _counter("retention_rows_total", "rows whose text, or which themselves, left with time", "kind")

# Loops and build
LOOP_LAST_PROGRESS = _gauge("loop_last_progress_timestamp_seconds", "when a loop last moved", "loop")
BUILD_INFO = _gauge("build_info", "always 1", "version", "python")


def set_build_info() -> None:
    try:
        release = version("keepsake-memory")
    except PackageNotFoundError:
        release = "source"
    BUILD_INFO.labels(release, platform.python_version()).set(1)

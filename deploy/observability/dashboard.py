"""The Grafana dashboard "what is stuck, and why" as code: `python -m deploy.observability.dashboard` writes dashboard.json beside it.

Rows follow a chat on its way. A panel is its title, unit and queries; the rest is the same for all.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("dashboard.json")
_WIDTH, _HEIGHT, _PER_ROW = 8, 7, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """`queries` by legend, in which `{{label}}` stands for a label. `unit` is Grafana's name of it."""

    title: str
    unit: str
    queries: dict[str, str]
    help: str = ""


@dataclass(frozen=True)
class Row:
    title: str
    panels: list[Panel] = field(default_factory=list)


def _rate(metric: str, by: str = "") -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))" if by else f"sum(rate({metric}[$__rate_interval]))"


def _quantiles(histogram: str, by: str = "") -> dict[str, str]:
    legend = f" {{{{{by}}}}}" if by else ""
    labels = f"le, {by}" if by else "le"
    return {
        f"p{int(q * 100)}{legend}": f"histogram_quantile({q}, sum by ({labels}) (rate({histogram}_bucket[$__rate_interval])))"
        for q in (0.5, 0.99)
    }


ROWS = [
    Row(
        "1. Chats come in",
        [
            Panel("Posted chats", "ops", {"{{outcome}}": _rate("keepsake_ingest_chats_total", "outcome")}),
            Panel("Until Kafka has them", "s", _quantiles("keepsake_ingest_publish_seconds")),
            Panel(
                "HTTP errors",
                "ops",
                {"{{route}} {{code}}": _rate('keepsake_http_requests_total{code=~"5.."}', "route, code")},
            ),
        ],
    ),
    Row(
        "2. Kafka to staging",
        [
            Panel("Lag by partition", "short", {"{{partition}}": "max by (partition) (keepsake_stager_lag_records)"}),
            Panel(
                "Lag as a share of what Kafka keeps",
                "percentunit",
                {"{{partition}}": "max by (partition) (keepsake_stager_lag_ratio)"},
                "At 1 retention takes chats that nobody has read.",
            ),
            Panel(
                "Since the last commit",
                "s",
                {"{{instance}}": "time() - (keepsake_stager_last_commit_timestamp_seconds > 0)"},
                "Grows also where nothing comes in.",
            ),
            Panel("Records by outcome", "ops", {"{{outcome}}": _rate("keepsake_stager_records_total", "outcome")}),
            Panel(
                "Dead letters by reason",
                "short",
                {"{{reason}}": "sum by (reason) (increase(keepsake_dead_letters_total[$__rate_interval]))"},
            ),
            Panel(
                "Partitions, waits, refused commits",
                "short",
                {
                    "partitions {{instance}}": "keepsake_stager_assigned_partitions",
                    "seconds waited for the store, per second": _rate("keepsake_stager_retry_wait_seconds_total"),
                    "commits refused after a rebalance": _rate("keepsake_stager_commits_refused_total"),
                    "unknown fields": _rate("keepsake_unknown_fields_total"),
                },
            ),
        ],
    ),
    Row(
        "3. Batches and runs",
        [
            Panel("Batches", "short", {"{{state}}": "max by (state) (keepsake_batches)"}),
            Panel(
                "The oldest that waits",
                "s",
                {
                    "due batch": "max(keepsake_oldest_due_age_seconds)",
                    "pending chat": "max(keepsake_oldest_pending_age_seconds)",
                },
            ),
            Panel(
                "Runs by outcome",
                "ops",
                {"{{outcome}} {{extractor}}": _rate("keepsake_runs_total", "outcome, extractor")},
            ),
            Panel("Time of a run", "s", _quantiles("keepsake_run_seconds")),
            Panel(
                "Candidates", "ops", {"{{decision}} {{reason}}": _rate("keepsake_candidates_total", "decision, reason")}
            ),
            Panel(
                "Leases and secrets",
                "ops",
                {
                    "leases lost": _rate("keepsake_lease_lost_total"),
                    "stale fences": _rate("keepsake_stale_fence_total"),
                    "secret: {{kind}}": _rate("keepsake_secrets_redacted_total", "kind"),
                },
            ),
        ],
    ),
    Row(
        "4. Models",
        [
            Panel(
                "Breakers",
                "short",
                {"{{model}} {{instance}}": "keepsake_provider_breaker_state"},
                "1: out of service; its batches wait and burn no attempts.",
            ),
            Panel(
                "Requests", "ops", {"{{phase}} {{outcome}}": _rate("keepsake_model_requests_total", "phase, outcome")}
            ),
            Panel(
                "Tokens", "ops", {"{{phase}} {{direction}}": _rate("keepsake_model_tokens_total", "phase, direction")}
            ),
            Panel("Time of one call", "s", _quantiles("keepsake_model_seconds", "phase")),
        ],
    ),
    Row(
        "5. Prompts",
        [
            Panel("Time to assemble", "s", _quantiles("keepsake_assemble_seconds")),
            Panel(
                "Prompts", "ops", {"{{ranking}} {{degraded}}": _rate("keepsake_assemble_total", "ranking, degraded")}
            ),
            Panel(
                "Ranker",
                "short",
                {
                    "waiting {{instance}}": "keepsake_rank_queue_depth",
                    "answered newest-first, per second": _rate("keepsake_rank_dropped_total"),
                },
            ),
            Panel("Time to rank", "s", _quantiles("keepsake_rank_seconds")),
        ],
    ),
    Row(
        "6. Store and Kafka",
        [
            Panel("Connections in use", "short", {"{{pool}} {{instance}}": "keepsake_db_pool_in_use"}),
            Panel("Wait for a connection", "s", _quantiles("keepsake_db_pool_wait_seconds", "pool")),
            Panel("Oldest change not on Kafka", "s", {"outbox": "max(keepsake_outbox_oldest_age_seconds)"}),
            Panel(
                "Since the last whole sweep",
                "s",
                {"retention": "time() - max(keepsake_retention_last_success_timestamp_seconds)"},
            ),
            Panel("What retention took", "ops", {"{{kind}}": _rate("keepsake_retention_rows_total", "kind")}),
            Panel("Kafka keeps", "s", {"{{topic}}": "max by (topic) (keepsake_topic_retention_seconds)"}),
        ],
    ),
    Row(
        "7. Processes",
        [
            Panel(
                "Since a loop last moved",
                "s",
                {"{{loop}} {{instance}}": "time() - keepsake_loop_last_progress_timestamp_seconds"},
                "Liveness fails at twice the loop's bound.",
            ),
            Panel("Time to answer, by route", "s", _quantiles("keepsake_http_request_seconds", "route")),
            Panel("Refused credentials", "ops", {"{{reason}}": _rate("keepsake_auth_failures_total", "reason")}),
            Panel(
                "Releases and schema",
                "short",
                {
                    "{{version}} (Python {{python}})": "count by (version, python) (keepsake_build_info)",
                    "schema {{instance}}": "keepsake_schema_version",
                },
            ),
        ],
    ),
]


def dashboard() -> Json:
    panels: list[Json] = []
    y = 0
    for row in ROWS:
        place = {"h": 1, "w": _WIDTH * _PER_ROW, "x": 0, "y": y}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row.title, "collapsed": False, "gridPos": place})
        y += 1
        for number, panel in enumerate(row.panels):
            x, line = number % _PER_ROW * _WIDTH, number // _PER_ROW * _HEIGHT
            place = {"h": _HEIGHT, "w": _WIDTH, "x": x, "y": y + line}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
        y += -(-len(row.panels) // _PER_ROW) * _HEIGHT
    return {
        "uid": "keepsake",
        "title": "Keepsake: what is stuck, and why",
        "tags": ["keepsake"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": panels,
    }


def _panel(panel: Panel) -> Json:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for number, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")

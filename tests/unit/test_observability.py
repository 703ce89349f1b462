"""Rules and dashboard say nothing of a metric or label that is not there, and every alert is explained."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase

from deploy.observability import dashboard
from shared.telemetry import metrics

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/observability/rules.yaml"
# Prometheus adds these to whatever it reads.
EVERYWHERE = {"instance", "job"}
# A replacement for what Grafana fills in.
INTERVAL = ("$__rate_interval", "5m")

ALERTS = {
    "StagerStalled": "page",
    "StagerWithoutPartitions": "page",
    "StagerLagNearRetention": "page",
    "DueBatchesWait": "page",
    "ProviderDown": "page",
    "AssembleSlow": "page",
    "AssembleErrors": "page",
    "IngestUnavailable": "page",
    "OutboxStuck": "page",
    "DeadLetters": "ticket",
    "NewDeadLetterReason": "ticket",
    "LeaseChurn": "ticket",
    "UnreadableReplies": "ticket",
    "DegradedAssembles": "ticket",
    "PoolWaits": "ticket",
    "RetentionLate": "ticket",
    "TopicRetentionDrift": "ticket",
    "AuthFailureBurst": "ticket",
}


def series() -> dict[str, set[str]]:
    """The labels of every series that the services can export, by name."""
    names: dict[str, set[str]] = {}
    for metric in vars(metrics).values():
        if not isinstance(metric, MetricWrapperBase):
            continue
        labels = {*metric._labelnames, *EVERYWHERE}
        if isinstance(metric, Histogram):
            names |= {f"{metric._name}_{part}": labels for part in ("sum", "count")}
            names[f"{metric._name}_bucket"] = {*labels, "le"}
        else:
            names[f"{metric._name}_total" if isinstance(metric, Counter) else metric._name] = labels
    return names


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """Raises ValueError where Prometheus would refuse the expression."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)
        elif isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def grouped_by(expression: str) -> set[str]:
    lists = re.findall(r"\b(?:by|on|ignoring|without|group_left|group_right) ?\(([^)]*)\)", expression)
    return {label.strip() for each in lists for label in each.split(",") if label.strip()}


def problems(expression: str) -> list[str]:
    known = series()
    wrong: list[str] = []
    labels: set[str] = set()
    try:
        found = selectors(expression)
    except ValueError as error:
        return [f"{expression}: {error}"]
    for selector in found:
        if selector.name not in known:
            wrong.append(f"no metric {selector.name}")
            continue
        labels |= known[selector.name]
        wrong += [
            f"{selector.name} has no label {matcher.name}"
            for matcher in selector.matchers.matchers
            if matcher.name not in known[selector.name]
        ]
    if not found:
        wrong.append(f"{expression} looks at nothing")
    return wrong + [f"no label {label} in {expression}" for label in grouped_by(expression) - labels]


def alerts() -> dict[str, Any]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def panel_queries() -> Iterator[tuple[str, str, str]]:
    """Title, legend and expression."""
    for panel in dashboard.dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["legendFormat"], target["expr"].replace(*INTERVAL)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum(rate(keepsake_runs_total[5m]))", None),
        ("sum(rate(keepsake_runs_total[5m])", "unclosed left parenthesis"),
        ("rate(keepsake_runs_total)", "expected type"),
        ("keepsake_runs", "no metric keepsake_runs"),
        ("keepsake_run_seconds_bucket", None),
        ('keepsake_runs_total{user="ada"}', "no label user"),
        ("sum by (user) (keepsake_runs_total)", "no label user"),
        ("vector(1)", "looks at nothing"),
    ],
)
def test_the_check_finds_what_is_wrong(expression: str, problem: str | None) -> None:
    found = "\n".join(problems(expression))
    assert problem in found if problem else not found


def test_rules_name_metrics_and_labels_that_are_there() -> None:
    assert [problem for rule in alerts().values() for problem in problems(rule["expr"])] == []


def test_the_dashboard_names_metrics_and_labels_that_are_there() -> None:
    for title, legend, expression in panel_queries():
        assert problems(expression) == [], title
        for label in re.findall(r"{{(\w+)}}", legend):
            aggregated = expression.startswith(("sum", "max", "count", "histogram_quantile"))
            assert label in (grouped_by(expression) if aggregated else series_labels(expression)), title


def series_labels(expression: str) -> set[str]:
    known = series()
    return {label for selector in selectors(expression) for label in known[selector.name or ""]}


def test_every_metric_is_looked_at() -> None:
    looked_at = {selector.name for _, _, expression in panel_queries() for selector in selectors(expression)}
    looked_at |= {selector.name for rule in alerts().values() for selector in selectors(rule["expr"])}
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in looked_at if name}
    declared = {re.sub(r"_(bucket|sum|count)$", "", name) for name in series()}
    assert declared - names == set()


def test_every_alert_is_there_and_explained() -> None:
    found = alerts()
    assert {name: rule["labels"]["severity"] for name, rule in found.items()} == ALERTS
    explained = re.findall(r"^### (\w+)$", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE)
    assert explained == list(ALERTS)
    for name, rule in found.items():
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{name.lower()}"


def test_the_committed_dashboard_is_the_codes() -> None:
    assert dashboard.FILE.read_text("utf-8") == dashboard.text(), "run `python -m deploy.observability.dashboard`"


def test_promtool_agrees_where_it_is_installed() -> None:
    if shutil.which("promtool") is None:  # a second opinion: the parser above has judged every expression
        return
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

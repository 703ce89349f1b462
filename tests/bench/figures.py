"""Figures, what is asked of them, and how they are shown and written."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.services import SERVICES, deployed_name

KEYS = (
    "stage_chats_per_s",
    "stage_over_bare_sql",
    "ingest_over_echo",
    "assemble_p50_over_floor",
    "pairs20_over_assemble_p50",
    "claim_p50_ms_1e3",
    "claim_p50_ms_1e6",
    "assemble_p95_ms_50rps",
    "lag_s",
    *(f"rss_mb.{deployed_name(service)}" for service in SERVICES),
)


class NotMeasured(Exception):
    """What came back is not what was to be measured, as an answer without ranking. The text says what."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A gate is a ratio of two figures of the same run: missing it fails the run. Other goals depend on the machine and are only shown."""

    bound: float
    at_least: bool
    gate: bool

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `beside` says what it was measured beside and how far it spread. `key` is one of KEYS, or only shown."""

    key: str
    value: float
    beside: str
    goal: Goal | None = None

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        if self.goal.met(self.value):
            return "pass" if self.goal.gate else "met"
        return "FAIL" if self.goal.gate else "missed"

    @property
    def failed(self) -> bool:
        return self.verdict == "FAIL"


def at_least(bound: float, *, gate: bool = True) -> Goal:
    return Goal(bound, at_least=True, gate=gate)


def at_most(bound: float, *, gate: bool = True) -> Goal:
    return Goal(bound, at_least=False, gate=gate)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def spread(values: Sequence[float], digits: int = 2) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def table(figures: Sequence[Figure]) -> str:
    rows = [("figure", "value", "goal", "", "beside")]
    rows += [(f.key, shown(f.value), str(f.goal or ""), f.verdict, f.beside) for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {goal:<{widths[2]}}  {verdict:<{widths[3]}}  {beside}".rstrip()
        for name, value, goal, verdict, beside in rows
    )


def write(path: Path, figures: Sequence[Figure]) -> None:
    """All KEYS, those of `rss_mb` in an object of their own; null for what could not be measured."""
    values = {figure.key: round(figure.value, 4) for figure in figures}
    document: dict[str, Any] = {}
    for key in KEYS:
        group, _, member = key.partition(".")
        if member:
            document.setdefault(group, {})[member] = values.get(key)
        else:
            document[key] = values.get(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")

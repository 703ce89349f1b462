"""What Prometheus would read of a running service."""

from typing import NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families


class Series(NamedTuple):
    name: str
    labels: frozenset[tuple[str, str]]


class Scrape(dict[Series, float]):
    """Every series with its value."""

    def total(self, name: str, **labels: str) -> float:
        """The sum of the series of this name (with its suffix, without `keepsake_`) that have these labels among theirs; 0 of none."""
        wanted = labels.items()
        return sum(
            value for series, value in self.items() if series.name == f"keepsake_{name}" and wanted <= series.labels
        )


def scrape(url: str) -> Scrape:
    """`url` is the service's base. Raises httpx.HTTPError where it does not answer."""
    text = httpx.get(f"{url}/metrics", timeout=10, trust_env=False, verify=False).raise_for_status().text
    return Scrape(
        (Series(sample.name, frozenset(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    )

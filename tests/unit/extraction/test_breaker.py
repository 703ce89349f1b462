"""The breaker as a table: events with their second, then the state."""

import pytest

from services.extraction.models.breaker import Breaker
from services.extraction.models.faults import status_fault

A, B, C = (("t", user, "w") for user in "abc")
PROBE_S = 10.0


def fail(kind: str, batch: tuple[str, str, str] = A, *, probe: bool = False) -> tuple[object, ...]:
    return ("fail", kind, batch, probe)


CASES = [
    ("new", [], "closed"),
    ("a refusal of one request", [(0, fail("rejected"))], "closed"),
    ("an unreadable reply", [(0, fail("unreadable"))] * 5, "closed"),
    ("down at once", [(0, fail("down"))], "open"),
    ("unsupported at once", [(0, fail("unsupported"))], "open"),
    ("two batches", [(0, fail("server", A)), (1, fail("timeout", B))], "closed"),
    ("one batch thrice", [(0, fail("server", A))] * 3, "closed"),
    ("three batches", [(0, fail("server", A)), (1, fail("timeout", B)), (2, fail("server", C))], "open"),
    (
        "an answer between",
        [(0, fail("server", A)), (1, fail("server", B)), (2, "ok"), (3, fail("server", C))],
        "closed",
    ),
    (
        "a rejection between is an answer",
        [(0, fail("server", A)), (1, fail("server", B)), (2, fail("rejected", C)), (3, fail("server", C))],
        "closed",
    ),
    ("a late answer does not close it", [(0, fail("down")), (1, "ok")], "open"),
    ("a probe on its way", [(0, fail("down")), (10, "probe")], "probing"),
    ("a late failure does not end the probe", [(0, fail("down")), (10, "probe"), (11, fail("server", B))], "probing"),
    ("a late answer does not end the probe", [(0, fail("down")), (10, "probe"), (11, "ok")], "probing"),
    ("the probe is answered", [(0, fail("down")), (10, "probe"), (11, "probe ok"), (11.5, "look")], "settling"),
    ("a second later", [(0, fail("down")), (10, "probe"), (11, "probe ok"), (12, "look")], "closed"),
    (
        "the probe is refused as a request",
        [(0, fail("down")), (10, "probe"), (11, fail("rejected", A, probe=True))],
        "settling",
    ),
    ("the probe fails", [(0, fail("down")), (10, "probe"), (11, fail("server", A, probe=True))], "open"),
    (
        "out again while settling",
        [(0, fail("down")), (10, "probe"), (11, "probe ok"), (11.2, fail("down", A, probe=True))],
        "open",
    ),
    ("nothing to probe with", [(0, fail("down")), (10, "probe"), (11, "no probe")], "open"),
    (
        "an old row is forgotten",
        [
            (0, fail("server", A)),
            (1, fail("server", B)),
            (2, fail("down", C)),
            (12, "probe"),
            (13, "probe ok"),
            (15, "look"),
            (16, fail("server", A)),
        ],
        "closed",
    ),
]


@pytest.mark.parametrize(("events", "state"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_states(events: list[tuple[float, object]], state: str) -> None:
    breaker = Breaker(PROBE_S)
    for now, event in events:
        if isinstance(event, tuple):
            _, kind, batch, probe = event
            breaker.failed(kind, "why", batch, now, probe=probe)
        elif event == "ok":
            breaker.answered(now)
        elif event == "probe ok":
            breaker.answered(now, probe=True)
        elif event == "probe":
            assert breaker.probe_due(now)
            breaker.start_probe(now)
        elif event == "no probe":
            breaker.no_probe(now)
        else:
            breaker.admits(now)
    assert breaker.state == state
    assert breaker.admits(events[-1][0] if events else 0) == (state == "closed")


def test_one_probe_each_pause() -> None:
    breaker = Breaker(PROBE_S)
    breaker.failed("down", "refused", A, 0.0)
    assert [second for second in range(0, 25) if breaker.probe_due(second) and _probe(breaker, second)] == [10, 20]


def _probe(breaker: Breaker, now: float) -> bool:
    breaker.start_probe(now)
    assert not breaker.probe_due(now + PROBE_S)
    breaker.no_probe(now)
    return True


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "rejected"),
        (401, "down"),
        (402, "down"),
        (403, "down"),
        (404, "rejected"),
        (408, "timeout"),
        (413, "rejected"),
        (422, "rejected"),
        (429, "down"),
        (500, "server"),
        (503, "server"),
        (504, "timeout"),
        (529, "server"),
    ],
)
def test_what_a_status_means(status: int, kind: str) -> None:
    assert status_fault(status).kind == kind

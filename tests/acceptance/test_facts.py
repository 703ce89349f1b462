"""F: facts over HTTP, as people and applications meet them (acceptance list, personal memory)."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.conftest import SystemFactory
from tests.support.system import System

ADA = {"user": "ada", "workspace": "work"}


@pytest.fixture
def running(system: SystemFactory) -> System:
    return system().start("memory_store")


@pytest.fixture
def http(running: System) -> Iterator[httpx.Client]:
    with running.client("memory_store") as client:
        yield client


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def remember(http: httpx.Client, content: str, **wanted: Any) -> dict[str, Any]:
    answer = http.post("/v1/facts", json={**ADA, "content": content, **wanted})
    assert answer.status_code == 201, answer.text
    fact: dict[str, Any] = answer.json()
    return fact


def contents(http: httpx.Client, **query: Any) -> list[str]:
    found = http.get("/v1/facts", params={**ADA, **query}).json()
    return [fact["content"] for fact in found["global"] + found["workspace"]]


class Watch:
    """Reads another user's facts over and over, in a thread of its own, and keeps how long each took: first undisturbed, then within."""

    QUIET_READS = 30

    def __init__(self, running: System) -> None:
        self.quiet: list[float] = []
        self.seconds: list[float] = []
        self._running = running
        self._reading, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> "Watch":
        self._thread.start()
        self._reading.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _read(self) -> None:
        with self._running.client("memory_store") as http:
            self.quiet = [self._once(http) for _ in range(self.QUIET_READS)]
            self._reading.set()
            while not self._done.is_set():
                self.seconds.append(self._once(http))

    def _once(self, http: httpx.Client) -> float:
        started = time.perf_counter()
        assert http.get("/v1/facts", params={"user": "bob"}).status_code == 200
        return time.perf_counter() - started


async def create_at_once(running: System, count: int, *urls: str, **wanted: Any) -> Counter[tuple[int, str | None]]:
    """Over bare sockets: what an HTTP client computes would be counted as the service's time."""

    async def one(n: int) -> tuple[int, str | None]:
        url = httpx.URL(urls[n % len(urls)])
        body = json.dumps({**ADA, "content": f"burst {n}", **wanted})
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(
            f"POST /v1/facts HTTP/1.1\r\nHost: {url.host}\r\nConnection: close\r\nAuthorization: Bearer {running.admin_key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), json.loads(answer).get("code")

    return Counter(await asyncio.gather(*(one(n) for n in range(count))))


@pytest.mark.parametrize(("scope", "cap"), [("workspace", 20), ("global", 5)])
async def test_f1_200_concurrent_creates_fill_the_last_slot_once(running: System, scope: str, cap: int) -> None:
    with running.client("memory_store") as http:
        for n in range(cap - 1):
            remember(http, f"fact {n}", scope=scope)
        with Watch(running) as watch:
            answers = await create_at_once(running, 200, running.url("memory_store"), scope=scope)
        assert answers == {(201, None): 1, (409, "limit_reached"): 199}
        limits = http.get("/v1/facts", params=ADA).json()["limits"]
    assert limits[scope] == {"used": cap, "max": cap, "waiting": 0}
    assert len(watch.seconds) >= 5
    # Where other work holds the machine, ten undisturbed reads may take longer than 200 ms.
    assert max(watch.seconds) < max(0.2, 10 * max(watch.quiet))


async def test_f1_two_replicas_fill_the_last_slot_once(running: System) -> None:
    other = running.replica("memory_store")
    with running.client("memory_store") as http:
        for n in range(4):
            remember(http, f"fact {n}", scope="global")
        answers = await create_at_once(running, 100, running.url("memory_store"), other.url, scope="global")
        assert answers == {(201, None): 1, (409, "limit_reached"): 99}
        assert len(http.get("/v1/facts", params={"user": "ada"}).json()["global"]) == 5


def test_f1_caps_hold_on_promote_demote_and_restore(http: httpx.Client) -> None:
    in_work = [remember(http, f"work {n}") for n in range(20)]
    worldwide = [remember(http, f"world {n}", scope="global") for n in range(5)]
    path = f"/v1/facts/{in_work[0]['id']}"
    assert problem(http.post("/v1/facts", json={**ADA, "content": "x"})) == (409, "limit_reached")
    assert problem(http.post(f"{path}/promote")) == (409, "limit_reached")
    demote = http.post(f"/v1/facts/{worldwide[0]['id']}/demote", json={"workspace": "work"})
    assert problem(demote) == (409, "limit_reached")
    http.delete(path)
    remember(http, "in its place")
    assert problem(http.post(f"{path}/restore")) == (409, "limit_reached")
    # Another workspace and another user have slots of their own.
    assert http.post(f"/v1/facts/{worldwide[0]['id']}/demote", json={"workspace": "home"}).status_code == 200
    remember(http, "x", user="bob")
    swapped = http.post(f"{path}/restore", json={"replace": in_work[1]["id"]})
    assert (swapped.status_code, swapped.json()["state"]) == (200, "active")


@pytest.mark.parametrize(
    "body",
    [
        {"content": ""},
        {"content": "   "},
        {"content": "\u3000\u00a0"},
        {"content": "a\0b"},
        {"content": "a\nb"},
        {"content": "a\u2028b"},
        {"content": "a\u202eb"},
        {"content": "a\U000e0041"},
        {"content": "x" * 501},
        {"content": 5},
        {"content": None},
        {"content": ["x"]},
        {},
        {"content": "x", "scope": "everywhere"},
        {"content": "x", "scope": None},
        {"content": "x", "colour": "red"},
        {"content": "x", "origin": "extraction"},
        {"content": "x", "user": None},
        {"content": "x", "user": ""},
        {"content": "x", "user": "Guest"},
        {"content": "x", "user": "u" * 201},
        {"content": "x", "user": "\0"},
        {"content": "x", "workspace": ""},
        {"content": "x", "evidence": [{"event_id": "e", "quote": "q" * 301}]},
    ],
    ids=lambda body: ascii(body)[:40],
)
def test_f2_what_is_no_fact_is_refused_with_a_code(http: httpx.Client, body: dict[str, Any]) -> None:
    assert problem(http.post("/v1/facts", json={**ADA, **body})) == (422, "invalid")
    assert contents(http) == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"user":"ada","content":"\xff"}',
        b'{"user":"ada","content":"\\ud800"}',
        b'{"user":"ada","content":"x","replace":' + b"9" * 5000 + b"}",
        b'{"user":"ada","content":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"user":"ada","content":NaN}',
    ],
    ids=lambda raw: ascii(raw[:30]),
)
def test_f2_bodies_that_are_no_request(http: httpx.Client, raw: bytes) -> None:
    answer = http.post("/v1/facts", content=raw, headers={"Content-Type": "application/json"})
    assert problem(answer) == (422, "invalid")


def test_f2_content_is_trimmed_and_said_once(http: httpx.Client) -> None:
    first = remember(http, "  User  likes   tea. ")
    assert first["content"] == "User  likes   tea."
    for again in ("user likes tea", "USER LIKES TEA!", "User likes\u3000tea", "Ｕser likes tea"):
        answer = http.post("/v1/facts", json={**ADA, "content": again})
        assert problem(answer) == (409, "duplicate"), again
        assert answer.json()["existing"] == first["id"]
    remember(http, "user likes tea", workspace="home")
    remember(http, "user likes tea", user="bob")
    remember(http, "x" * 500)


def test_f2_500_characters_are_counted_after_nfc_and_trimming(http: httpx.Client) -> None:
    assert remember(http, "  " + "e\u0301" * 500 + "\n")["content"] == "\u00e9" * 500
    assert len(remember(http, "\U0001f600" * 500)["content"]) == 500


def test_f3_a_move_to_where_it_is_changes_nothing(http: httpx.Client) -> None:
    worldwide, in_work = remember(http, "world", scope="global"), remember(http, "work")
    assert http.post(f"/v1/facts/{worldwide['id']}/promote").json() == worldwide
    same = http.post(f"/v1/facts/{in_work['id']}/demote", json={"workspace": "work"})
    assert (same.status_code, same.json()) == (200, in_work)
    other = http.post(f"/v1/facts/{in_work['id']}/demote", json={"workspace": "home"})
    assert problem(other) == (409, "not_global")
    assert http.get(f"/v1/facts/{in_work['id']}").json() == in_work


def test_f4_anothers_a_malformed_and_a_missing_id_are_the_same_404(http: httpx.Client, running: System) -> None:
    bobs = remember(http, "bob's", user="bob")["id"]
    token = http.post("/v1/tokens", json={"user": "ada"}).json()["token"]
    ids = [bobs, str(uuid4()), "x", "1", "%00", "%F0%9F%98%80", "a" * 5000, "..%2f", bobs[:-1]]
    with running.client("memory_store", token) as ada:
        for method, tail, body in (
            ("GET", "", None),
            ("GET", "/history", None),
            ("PATCH", "", {"content": "mine now"}),
            ("DELETE", "", None),
            ("POST", "/promote", {}),
            ("POST", "/demote", {"workspace": "work"}),
            ("POST", "/restore", {}),
            ("POST", "/approve", {}),
            ("POST", "/reject", None),
        ):
            answers = [ada.request(method, f"/v1/facts/{each}{tail}", json=body) for each in ids]
            assert {problem(answer) for answer in answers} == {(404, "not_found")}, (method, tail)
            assert len({answer.text for answer in answers}) == 1
    assert http.get(f"/v1/facts/{bobs}").json()["content"] == "bob's"


def test_f6_delete_and_restore_keep_the_id_and_the_history(http: httpx.Client) -> None:
    fact = remember(http, "likes tea")
    path = f"/v1/facts/{fact['id']}"
    http.patch(path, json={"content": "likes green tea"})
    before = http.get(f"{path}/history").json()["items"]
    assert http.delete(path).status_code == 204
    assert contents(http) == []
    restored = http.post(f"{path}/restore").json()
    assert (restored["id"], restored["content"], restored["state"]) == (fact["id"], "likes green tea", "active")
    assert contents(http) == ["likes green tea"]
    after = http.get(f"{path}/history").json()["items"]
    assert [(each["version"], each["content"], each["state"]) for each in after] == [
        (1, "likes tea", "active"),
        (2, "likes green tea", "active"),
        (3, "likes green tea", "deleted"),
        (4, "likes green tea", "active"),
    ]
    assert [each["known_from"] for each in after[:2]] == [each["known_from"] for each in before]


def test_f6_as_of_shows_the_text_of_then_and_a_version_can_be_restored(http: httpx.Client) -> None:
    fact = remember(http, "one")
    path = f"/v1/facts/{fact['id']}"
    between = [http.patch(path, json={"content": content}).json()["updated_at"] for content in ("two", "three")]
    assert contents(http, as_of=fact["created_at"]) == ["one"]
    assert contents(http, as_of=between[0]) == ["two"]
    assert contents(http, as_of=between[1]) == contents(http) == ["three"]
    assert http.post(f"{path}/restore", json={"version": 1}).json()["content"] == "one"
    assert contents(http) == ["one"]
    assert contents(http, as_of=between[0]) == ["two"]


def test_f11_an_old_version_in_if_match_is_told(http: httpx.Client) -> None:
    fact = remember(http, "one")
    path = f"/v1/facts/{fact['id']}"
    etag = http.get(path).headers["ETag"]
    assert etag == '"1"'
    assert http.patch(path, json={"content": "two"}, headers={"If-Match": etag}).headers["ETag"] == '"2"'
    assert problem(http.patch(path, json={"content": "three"}, headers={"If-Match": etag})) == (412, "version_conflict")
    assert problem(http.delete(path, headers={"If-Match": etag})) == (412, "version_conflict")
    assert contents(http) == ["two"]
    assert http.patch(path, json={"content": "four"}).status_code == 200  # without it the last write wins


async def test_f11_of_two_concurrent_edits_one_wins_and_one_is_told(running: System) -> None:
    with running.client("memory_store") as http:
        path = f"/v1/facts/{remember(http, 'one')['id']}"
        bearer = {"Authorization": f"Bearer {running.admin_key}", "If-Match": '"1"'}
        async with httpx.AsyncClient(base_url=running.url("memory_store"), headers=bearer, trust_env=False) as client:
            edits = await asyncio.gather(*(client.patch(path, json={"content": f"edit {n}"}) for n in range(20)))
        statuses = Counter(edit.status_code for edit in edits)
        assert statuses == {200: 1, 412: 19}
        winner = next(edit.json()["content"] for edit in edits if edit.status_code == 200)
        assert contents(http) == [winner]

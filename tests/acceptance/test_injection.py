"""I: injection, seen from outside."""

import asyncio
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.local.paths import DEFAULT_DATA_DIR
from deploy.local.services import ranker_folder
from tests.conftest import SystemFactory
from tests.support.system import System
from tests.support.waiting import until

PROMPT = "You are a helpful assistant.\r\n  Keep it short. "
HEADING = "## Things I Remember About You"
FACTS = (
    "User is vegetarian and allergic to peanuts.",
    "User works as a nurse at Santa Maria hospital.",
    "User has two children, aged 4 and 7.",
    "User plays the violin in an amateur orchestra.",
    "User is learning Portuguese.",
    "User drives an old Volvo.",
    "User has a dog named Rex.",
    "User prefers short answers in bullet points.",
    "User programs in Python at the weekend.",
    "User dislikes phone calls.",
    "User collects vintage stamps.",
    "User hikes in the mountains in summer.",
    "User reads science fiction novels.",
    "User has a bad knee and cannot run.",
    "User is travelling to Norway in January.",
    "User volunteers at an animal shelter.",
    "User was born in May 1990.",
    "User has a Linux laptop.",
    "User saves money to buy a house.",
    "User lives in Lisbon.",
)
ABOUT = {
    "Does the user eat meat or nuts?": FACTS[0],
    "Where does the user work?": FACTS[1],
    "Which instrument does the user play?": FACTS[3],
    "What car does the user drive?": FACTS[5],
    "Which books does the user like to read?": FACTS[12],
    "When is the user going on a trip?": FACTS[14],
}


@pytest.fixture
def running(system: SystemFactory) -> System:
    started = system().start("memory_store", "injection")
    # On a busy machine the first call may be late, and deadlines are no subject of most tests.
    until(lambda: ask(started, user="nobody", message="Hello")["degraded"] is None)
    return started


def remember(system: System, user: str, contents: Iterable[str], **scope: Any) -> list[str]:
    """Facts as a person types them, one after the other; their ids."""
    with system.client("memory_store") as client:
        ids = []
        for content in contents:
            made = client.post("/v1/facts", json={"user": user, "content": content} | (scope or {"workspace": "w"}))
            assert made.status_code == 201, made.text
            ids.append(made.json()["id"])
        return ids


def assemble(url: str, key: str, **ask: Any) -> dict[str, Any]:
    answer = httpx.post(
        f"{url}/v1/assemble",
        json={"workspace": "w", "system_prompt": PROMPT} | ask,
        headers={"Authorization": f"Bearer {key}"},
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    reply: dict[str, Any] = answer.json()
    return reply


def ask(system: System, **request: Any) -> dict[str, Any]:
    return assemble(system.url("injection"), system.admin_key, **request)


def contents(reply: dict[str, Any]) -> list[str]:
    return [fact["content"] for fact in reply["facts"]]


def assert_unchanged(reply: dict[str, Any]) -> None:
    assert (reply["system_prompt"], reply["block"], reply["facts"], reply["ranking"]) == (PROMPT, "", [], "none")


NEWEST = list(FACTS[-5:])


def test_i1_no_facts_few_facts_and_the_five_that_matter(running: System) -> None:
    nothing = ask(running, user="ada", message="Where do I work?")
    assert_unchanged(nothing)
    assert nothing["reason"] == "no_facts"

    remember(running, "ada", FACTS[:5])
    few = ask(running, user="ada", message="weather")
    assert contents(few) == list(FACTS[:5])
    assert (few["ranking"], few["degraded"]) == ("all", None)
    assert few["block"] == "\n".join([HEADING, *(f"- {content}" for content in FACTS[:5])])
    assert few["system_prompt"] == f"{PROMPT}\n\n{few['block']}"

    remember(running, "ada", FACTS[5:])
    remember(running, "ada", ["User's name is Ada."], scope="global")
    for message, fact in ABOUT.items():
        best = ask(running, user="ada", message=message)
        assert len(best["facts"]) == 6
        assert contents(best)[0] == "User's name is Ada."
        assert best["ranking"] == "reranked"
        assert max(best["facts"][1:], key=lambda one: one["score"])["content"] == fact, message
        assert best["block"].splitlines()[1:] == [f"- {content}" for content in contents(best)]


def test_i2_nothing_said_gives_the_newest(running: System) -> None:
    remember(running, "ada", FACTS)
    silent: list[dict[str, Any]] = [
        {},
        {"message": ""},
        {"history": []},
        {"history": [{"role": "assistant", "content": "Hi"}]},
    ]
    for nothing in silent:
        reply = ask(running, user="ada", **nothing)
        assert contents(reply) == NEWEST
        assert (reply["ranking"], reply["degraded"]) == ("newest", None)


def test_i2_ranker_missing_broken_or_late_gives_the_newest_in_time(running: System, tmp_path: Path) -> None:
    remember(running, "ada", FACTS)
    broken = tmp_path / "broken"
    shutil.copytree(ranker_folder(DEFAULT_DATA_DIR), broken)
    with (broken / "model.onnx").open("r+b") as model:
        model.truncate(1_000_000)
    unusable: list[tuple[dict[str, object], str]] = [
        ({"ranker_model": tmp_path / "missing"}, "ranker_unavailable"),
        ({"ranker_model": broken}, "ranker_unavailable"),
        ({"rank_deadline_ms": 1}, "ranker_timeout"),
    ]
    for settings, degraded in unusable:
        injection = running.replica("injection", **settings)
        for turn in range(2):
            started = time.monotonic()
            # A thousand characters of one token each take longer than a millisecond.
            reply = assemble(injection.url, running.admin_key, user="ada", message=f"{turn} work " + "$#" * 500)
            assert time.monotonic() - started < 0.6
            assert contents(reply) == NEWEST
            assert (reply["ranking"], reply["degraded"]) == ("newest", degraded)
        assert injection.log.read_text().count('"event": "ranker_unavailable"') == (degraded == "ranker_unavailable")


async def test_i2_small_message_is_ranked_beside_fifty_of_a_megabyte(running: System) -> None:
    await asyncio.to_thread(remember, running, "ada", FACTS)
    url, bearer = f"{running.url('injection')}/v1/assemble", {"Authorization": f"Bearer {running.admin_key}"}
    large = {"user": "ada", "workspace": "w", "message": "where is it? $# " * 65_536}
    small = large | {"message": "Where does the user work?"}
    limits = httpx.Limits(max_connections=60)
    async with httpx.AsyncClient(headers=bearer, timeout=30, trust_env=False, limits=limits) as client:
        assert (await client.post(url, json=small)).json()["ranking"] == "reranked"
        flood = [asyncio.create_task(client.post(url, json=large)) for _ in range(50)]
        meanwhile = []
        while not all(task.done() for task in flood):
            meanwhile.append((await client.post(url, json=small)).json())
        answers = [(await task) for task in flood]
    assert {answer.status_code for answer in answers} == {200}
    assert meanwhile
    assert {reply["ranking"] for reply in meanwhile} == {"reranked"}
    assert all(FACTS[1] in contents(reply) for reply in meanwhile)


def test_i3_nobody_gets_nobodys_facts(running: System) -> None:
    remember(running, "ada", FACTS[:3])
    for user in (None, "", " ", "null", "undefined", "Guest", "ANONYMOUS", "[object Object]"):
        reply = ask(running, user=user, message="Where do I work?")
        assert_unchanged(reply)
        assert reply["reason"] == "anonymous"
    for user in ("Ada", "ada ", "ad", "a" * 200, "a/b&c=d:%20 e"):
        reply = ask(running, user=user, message="Where do I work?")
        assert_unchanged(reply)
        assert reply["reason"] == "no_facts"
    with running.client("injection") as client:
        wrongs: list[object] = ["a" * 201, "ada\0", "\ue000", 7, ["ada"], {}]
        for wrong in wrongs:
            refused = client.post("/v1/assemble", json={"user": wrong})
            assert refused.status_code == 422
            assert refused.json()["code"] == "invalid"
        assert client.post("/v1/assemble", json={"message": "Where do I work?"}).status_code == 422


def test_i3_threads_of_one_name_share_nothing(running: System) -> None:
    remember(running, "ada", FACTS)
    remember(running, "bob", [content.replace("User", "The user") for content in FACTS])
    said = {"thread": "main", "message": "Where does the user work?"}
    ada, bob = ask(running, user="ada", **said), ask(running, user="bob", **said)
    assert not {fact["id"] for fact in ada["facts"]} & {fact["id"] for fact in bob["facts"]}
    assert set(contents(ada)) <= set(FACTS)
    # What ada's thread had holds nothing in place for bob, also when he sends her ids.
    other = {"thread": "main", "message": "What car does the user drive?"}
    ids = [fact["id"] for fact in ada["facts"]]
    assert all(content.startswith("The user") for content in contents(ask(running, user="bob", previous=ids, **other)))


def test_i6_memory_store_away_leaves_the_prompt_unchanged(running: System) -> None:
    remember(running, "ada", FACTS)
    known = {"user": "ada", "message": "Where does the user work?"}
    assert ask(running, **known)["ranking"] == "reranked"
    running.kill("memory_store")
    fresh = running.replica("injection")
    for url in (running.url("injection"), fresh.url):
        for _ in range(3):
            started = time.monotonic()
            reply = assemble(url, running.admin_key, **known)
            assert time.monotonic() - started < 0.4
            assert_unchanged(reply)
            assert reply["degraded"] == "store_unavailable"
    with running.client("injection") as client:
        away = client.post("/v1/facts/search", json={"user": "ada", "workspace": "w", "query": "work"})
        assert (away.status_code, away.json()["code"]) == (503, "unavailable")
        assert client.get("/readyz").status_code == 200
    running.start("memory_store")
    assert ask(running, **known)["ranking"] == "reranked"


def test_i7_use_is_counted_and_does_not_make_a_fact_new(running: System) -> None:
    remember(running, "ada", FACTS[:6])
    for _ in range(7):
        assert FACTS[0] in contents(ask(running, user="ada", limit=1, message="Does the user eat meat or nuts?"))
    with running.client("memory_store") as client:

        def oldest() -> dict[str, Any]:
            listed = client.get("/v1/facts", params={"user": "ada", "workspace": "w"}).json()["workspace"]
            assert [fact["content"] for fact in listed] == list(reversed(FACTS[:6]))
            return dict(listed[-1])

        until(lambda: oldest()["use_count"] == 7)
        assert oldest()["last_used_at"] is not None
    assert contents(ask(running, user="ada")) == list(FACTS[1:6])

"""What an assemble answers, whatever the store and the ranker do."""

import asyncio
import threading
import time
from typing import Any

import pytest

from services.injection.assembling.schemas import AssembleReply
from services.injection.authenticating import NOBODY
from shared.auth import Principal
from shared.encoder import ModelUnavailableError
from shared.problems import Problem
from shared.rpc.errors import Code, RpcError
from tests.support.waiting import until_async
from tests.unit.injection.conftest import Service, StoreInMemory, WordModel
from tests.unit.injection.facts import fact

TOPICS = ("tea", "job", "dog", "car", "music", "city", "food", "code")
PROMPT = "You help.\r\n "


@pytest.fixture(autouse=True)
def facts(store: StoreInMemory) -> None:
    """Eight facts, one per topic, oldest first."""
    store.facts["ada"] = [fact(number, f"User has {topic}.") for number, topic in enumerate(TOPICS, start=1)]


def chosen(reply: AssembleReply) -> list[str]:
    return [one.content.split()[-1].rstrip(".") for one in reply.facts]


NEWEST = ["car", "music", "city", "food", "code"]


async def test_best_facts_for_the_message_in_order_of_creation(service: Service) -> None:
    reply = await service.assemble(system_prompt=PROMPT, message="code and tea", limit=2)
    assert chosen(reply) == ["tea", "code"]
    assert (reply.ranking, reply.reason, reply.degraded) == ("reranked", None, None)
    assert [one.score for one in reply.facts] == pytest.approx([0.7071, 0.7071], abs=1e-3)
    assert reply.block == "## Things I Remember About You\n- User has tea.\n- User has code."
    assert reply.system_prompt == f"{PROMPT}\n\n{reply.block}"


async def test_up_to_the_limit_all_are_there_unranked(service: Service, store: StoreInMemory) -> None:
    store.facts["ada"] = store.facts["ada"][:5]
    reply = await service.assemble(message="weather")
    assert chosen(reply) == list(TOPICS[:5])
    assert (reply.ranking, reply.reason) == ("all", None)
    assert {one.score for one in reply.facts} == {None}


@pytest.mark.parametrize(
    "nothing_said",
    [{}, {"message": " "}, {"history": []}, {"history": [{"role": "assistant", "content": "Tea?"}]}],
)
async def test_nothing_said_gives_the_newest(service: Service, nothing_said: dict[str, Any]) -> None:
    reply = await service.assemble(**nothing_said)
    assert (chosen(reply), reply.ranking, reply.degraded) == (NEWEST, "newest", None)


@pytest.mark.parametrize("withheld", ["personalization_off", "opted_out"])
async def test_withheld_facts_leave_the_prompt_as_it_was(service: Service, store: StoreInMemory, withheld: str) -> None:
    store.withheld = withheld
    reply = await service.assemble(system_prompt=PROMPT, message="tea")
    assert (reply.system_prompt, reply.block, reply.ranking, reply.reason) == (PROMPT, "", "none", withheld)


async def test_no_facts(service: Service) -> None:
    reply = await service.assemble(user="bob", system_prompt=PROMPT, message="tea")
    assert (reply.system_prompt, reply.facts, reply.ranking, reply.reason) == (PROMPT, [], "none", "no_facts")


@pytest.mark.parametrize("user", [None, "", "  ", "null", "Guest", "UNDEFINED", "[object Object]"])
async def test_nobody_signed_in_gets_nothing_and_the_store_is_not_asked(
    service: Service, store: StoreInMemory, user: str | None
) -> None:
    store.facts[user or ""] = store.facts["ada"]
    reply = await service.assemble(user=user, system_prompt=PROMPT, message="tea")
    assert (reply.system_prompt, reply.facts, reply.reason) == (PROMPT, [], "anonymous")
    assert store.listed == []


async def test_stand_ins_are_the_operators_choice(make: Any, model: WordModel) -> None:
    service = make(model, anonymous_users=("Ada",))
    assert (await service.assemble(message="tea")).reason == "anonymous"


async def test_below_the_floor_only_globals_stay(service: Service, store: StoreInMemory) -> None:
    store.facts["ada"].append(fact(9, "User is Ada.", scope="global"))
    reply = await service.assemble(message="weather")
    assert (chosen(reply), reply.ranking, reply.reason) == (["Ada"], "reranked", "below_floor")


async def test_floor_is_a_setting(make: Any, model: WordModel) -> None:
    reply = await make(model, min_relevance=-1).assemble(message="weather")
    assert (len(reply.facts), reply.reason) == (5, None)
    assert (await make(model, min_relevance=0.9).assemble(message="tea and job")).reason == "below_floor"


async def test_models_own_floor_is_for_english_alone(make: Any) -> None:
    reply = await make(WordModel(languages=("en", "es"))).assemble(message="¿Qué tiempo hace en mi ciudad?")
    assert (len(reply.facts), reply.ranking, reply.reason) == (5, "reranked", None)
    strict = make(WordModel(languages=("en", "es")), min_relevance=0.1)
    assert (await strict.assemble(message="¿Qué tiempo hace en mi ciudad?")).reason == "below_floor"


async def test_globals_come_first_and_do_not_count(service: Service, store: StoreInMemory) -> None:
    store.facts["ada"] += [fact(9 + n, f"User is global{n}.", scope="global") for n in range(3)]
    reply = await service.assemble(message="tea", limit=1)
    assert chosen(reply) == ["global0", "global1", "global2", "tea"]
    assert chosen(await service.assemble(message="tea", limit=0)) == ["global0", "global1", "global2"]


async def test_vague_message_is_read_by_the_turns_before_it(service: Service) -> None:
    history = [{"role": "user", "content": "my car is broken"}, {"role": "assistant", "content": "Oh, tea?"}]
    assert chosen(await service.assemble(message="tell me more", history=history, limit=1)) == ["car"]


async def test_a_turn_costs_one_encoding(service: Service, model: WordModel) -> None:
    await service.assemble(message="car")
    model.encoded.clear()
    await service.assemble(message="music", history=[{"role": "user", "content": "car"}])
    assert model.encoded == ["music"]


async def test_thread_keeps_a_fact_that_is_nearly_as_good(make: Any, model: WordModel) -> None:
    service = make(model, sticky_margin=0.2)
    near = "tea tea tea dog dog dog dog"
    assert chosen(await service.assemble(message=near, limit=1)) == ["dog"]
    assert chosen(await service.assemble(message="tea", limit=1, thread="t")) == ["tea"]
    assert chosen(await service.assemble(message=near, limit=1, thread="t")) == ["tea"]
    assert chosen(await service.assemble(message="dog", limit=1, thread="t")) == ["dog"]


async def test_thread_remembers_over_a_turn_that_got_nothing(make: Any, model: WordModel) -> None:
    service = make(model, sticky_margin=0.2)
    await service.assemble(message="tea", limit=1, thread="t")
    assert (await service.assemble(message="thanks", limit=1, thread="t")).reason == "below_floor"
    near = "tea tea tea dog dog dog dog"
    assert chosen(await service.assemble(message=near, limit=1, thread="t")) == ["tea"]


async def test_previous_wins_over_the_memory_of_the_thread(make: Any, model: WordModel) -> None:
    service = make(model, sticky_margin=0.2)
    near = "tea tea tea dog dog dog dog"
    tea = (await service.assemble(message="tea", limit=1, thread="t")).facts[0]
    assert chosen(await service.assemble(message=near, limit=1, thread="t", previous=[])) == ["dog"]
    assert chosen(await service.assemble(message=near, limit=1, previous=[str(tea.id), "no id", ""])) == ["tea"]


async def test_thread_of_another_user_is_not_known(make: Any, model: WordModel, store: StoreInMemory) -> None:
    service = make(model, sticky_margin=0.2)
    store.facts["bob"] = store.facts["ada"]
    await service.assemble(message="tea", limit=1, thread="t")
    near = "tea tea tea dog dog dog dog"
    assert chosen(await service.assemble(user="bob", message=near, limit=1, thread="t")) == ["dog"]


async def test_same_facts_same_block_whatever_the_message(service: Service) -> None:
    first = await service.assemble(message="tea then code", limit=2)
    assert (await service.assemble(message="code then tea, tea", limit=2)).block == first.block


async def test_max_tokens_drops_the_lowest_scored_first(service: Service, store: StoreInMemory) -> None:
    store.facts["ada"].append(fact(9, "User is Ada.", scope="global"))
    # The stand-in counts words: the heading has 6, each bullet 4.
    ask: dict[str, Any] = {"message": "tea tea tea tea job job job dog dog city", "limit": 4}
    assert chosen(await service.assemble(**ask, max_tokens=26)) == ["Ada", "tea", "job", "dog", "city"]
    assert chosen(await service.assemble(**ask, max_tokens=25)) == ["Ada", "tea", "job", "dog"]
    assert chosen(await service.assemble(**ask, max_tokens=14)) == ["Ada", "tea"]
    assert chosen(await service.assemble(**ask, max_tokens=10)) == ["Ada"]
    assert chosen(await service.assemble(**ask, max_tokens=9)) == []


async def test_max_tokens_ranks_also_where_all_would_be_there(service: Service, store: StoreInMemory) -> None:
    store.facts["ada"] = store.facts["ada"][:3]
    reply = await service.assemble(message="tea", max_tokens=10)
    assert (chosen(reply), reply.ranking) == (["tea"], "reranked")
    assert (await service.assemble(message="tea", max_tokens=100)).ranking == "all"
    assert chosen(await service.assemble(max_tokens=10)) == ["dog"]
    # What fits the limit has no floor, also where the budget makes it be ranked.
    assert len((await service.assemble(message="weather", max_tokens=14)).facts) == 2


async def test_max_tokens_holds_without_a_ranker(make: Any) -> None:
    reply = await make(None).assemble(message="tea", max_tokens=25)
    assert 0 < len(reply.facts) < 5


async def test_without_a_ranker_the_newest(make: Any) -> None:
    service = make(None)
    reply = await service.assemble(message="tea")
    assert (chosen(reply), reply.ranking, reply.degraded) == (NEWEST, "newest", "ranker_unavailable")
    assert (await service.assemble()).degraded is None


async def test_failing_ranker_gives_the_newest(service: Service, model: WordModel) -> None:
    model.failing = ModelUnavailableError("broken")
    reply = await service.assemble(message="tea")
    assert (chosen(reply), reply.ranking, reply.degraded) == (NEWEST, "newest", "ranker_unavailable")


async def test_late_ranker_gives_the_newest_in_time(make: Any, model: WordModel, store: StoreInMemory) -> None:
    service = make(model, rank_deadline_ms=40)
    slow = model.encode_query

    def encode(text: str) -> Any:
        time.sleep(0.2)
        return slow(text)

    model.encode_query = encode  # type: ignore[method-assign]
    started = time.monotonic()
    reply = await service.assemble(message="tea")
    assert (chosen(reply), reply.ranking, reply.degraded) == (NEWEST, "newest", "ranker_timeout")
    assert time.monotonic() - started < 0.15


async def test_script_that_the_ranker_does_not_read(service: Service, store: StoreInMemory) -> None:
    assert (await service.assemble(message="喝茶")).degraded == "language"
    store.facts["eve"] = [fact(n, "用户喜欢喝茶" + "和" * n) for n in range(101, 108)]
    reply = await service.assemble(user="eve", message="tea")
    assert (reply.ranking, reply.degraded, len(reply.facts)) == ("newest", "language", 5)


@pytest.mark.parametrize("code", ["unavailable", "deadline_exceeded", "internal", "permission_denied"])
async def test_store_away_hands_the_prompt_back(service: Service, store: StoreInMemory, code: Code) -> None:
    store.error = RpcError(code)
    reply = await service.assemble(system_prompt=PROMPT, message="tea")
    assert (reply.system_prompt, reply.facts, reply.ranking) == (PROMPT, [], "none")
    assert reply.degraded == "store_unavailable"


async def test_slow_store_hands_the_prompt_back_in_time(make: Any, model: WordModel, store: StoreInMemory) -> None:
    store.delay_s = 5
    started = time.monotonic()
    reply = await make(model, assemble_deadline_ms=100).assemble(message="tea")
    assert reply.degraded == "store_unavailable"
    assert time.monotonic() - started < 0.1


async def test_unknown_caller_gets_the_prompt_back(service: Service, store: StoreInMemory) -> None:
    reply = await service.assemble(NOBODY, system_prompt=PROMPT, message="tea")
    assert (reply.system_prompt, reply.degraded) == (PROMPT, "store_unavailable")
    assert store.listed == []


async def test_token_acts_for_its_user_and_workspaces_alone(service: Service, store: StoreInMemory) -> None:
    token = Principal("t2", "user:ada", frozenset({"assemble"}), user="ada", workspaces=frozenset({"w"}))
    await service.assemble(token, workspace="w", message="tea")
    assert (store.listed[0].tenant, store.listed[0].user, store.listed[0].workspace) == ("t2", "ada", "w")
    for other in ({"user": "bob", "workspace": "w"}, {"workspace": "v"}, {}):
        with pytest.raises(Problem, match="not_found"):
            await service.assemble(token, message="tea", **other)


async def test_vectors_are_computed_once_kept_and_put(service: Service, model: WordModel, store: StoreInMemory) -> None:
    await service.assemble(message="tea")
    assert len(model.encoded) == 1 + len(TOPICS)
    model.encoded.clear()
    await service.assemble(message="job")
    assert model.encoded == ["job"]
    await service.writes.flush()
    assert [len(put.vectors) for put in store.puts] == [len(TOPICS)]
    assert [request.vectors for request in store.listed] == [False, True, False]


async def test_vectors_that_came_too_late_serve_the_next_request(
    make: Any, model: WordModel, store: StoreInMemory
) -> None:
    service = make(model, rank_deadline_ms=30)
    let_go = threading.Event()
    quick = model.encode_passages

    def encode(texts: list[str]) -> Any:
        assert let_go.wait(10)
        return quick(texts)

    model.encode_passages = encode  # type: ignore[method-assign]
    late = await asyncio.gather(*(service.assemble(message="tea") for _ in range(2)))
    assert {reply.degraded for reply in late} == {"ranker_timeout"}
    let_go.set()
    await until_async(lambda: sum(text.startswith("User has") for text in model.encoded) == len(TOPICS))
    model.encoded.clear()
    assert (await service.assemble(message="job")).ranking == "reranked"
    assert model.encoded == ["job"]
    await service.writes.flush()
    assert [len(put.vectors) for put in store.puts] == [len(TOPICS)]


async def test_stored_vectors_serve_another_process(make: Any, store: StoreInMemory) -> None:
    first = make(WordModel())
    await first.assemble(message="tea")
    await first.writes.flush()
    model = WordModel()
    assert chosen(await make(model).assemble(message="job", limit=1)) == ["job"]
    assert model.encoded == ["job"]


async def test_new_version_of_a_fact_is_encoded_anew(service: Service, model: WordModel, store: StoreInMemory) -> None:
    await service.assemble(message="tea", limit=1)
    store.facts["ada"][2] = fact(3, "User has tea tea tea.", version=2)
    store.facts["ada"][0] = fact(1, "User has a cat.", version=2)
    model.encoded.clear()
    reply = await service.assemble(message="tea", limit=1)
    assert [one.content for one in reply.facts] == ["User has tea tea tea."]
    assert model.encoded == ["User has a cat.", "User has tea tea tea."]


async def test_broken_stored_vector_is_computed_again(service: Service, model: WordModel, store: StoreInMemory) -> None:
    store.vectors[model.name, 1, 1] = "no vector"
    assert chosen(await service.assemble(message="tea", limit=1)) == ["tea"]


async def test_use_is_recorded_after_the_answer(service: Service, store: StoreInMemory) -> None:
    for _ in range(2):
        await service.assemble(message="tea", limit=1)
    assert store.uses == []
    await service.writes.flush()
    assert [(use.user, [one.int for one in use.fact_ids]) for use in store.uses] == [("ada", [1, 1])]


async def test_lost_writes_do_not_stop_later_ones(service: Service, store: StoreInMemory) -> None:
    await service.assemble(message="tea", limit=1)
    store.error = RpcError("unavailable")
    await service.writes.flush()
    store.error = None
    await service.assemble(message="job", limit=1)
    await service.writes.flush()
    assert [[one.int for one in use.fact_ids] for use in store.uses] == [[2]]


async def test_requests_do_not_wait_for_each_other(service: Service, store: StoreInMemory) -> None:
    store.delay_s = 0.05
    started = time.monotonic()
    replies = await asyncio.gather(*(service.assemble(message=f"tea {n}", limit=1) for n in range(20)))
    assert {reply.ranking for reply in replies} == {"reranked"}
    assert time.monotonic() - started < 0.5

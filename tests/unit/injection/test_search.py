import pytest

from services.injection.assembling.schemas import SearchReply, SearchRequest
from services.injection.authenticating import NOBODY
from services.injection.searching import Search
from shared.auth import Principal
from shared.problems import Problem
from shared.rpc.errors import RpcError
from tests.unit.injection.conftest import OPERATOR, Service, StoreInMemory
from tests.unit.injection.facts import fact


@pytest.fixture(autouse=True)
def facts(store: StoreInMemory) -> None:
    store.facts["ada"] = [
        fact(1, "User has tea."),
        fact(2, "User has a car and tea.", scope="global"),
        fact(3, "User has a dog."),
    ]


async def search(service: Service, who: Principal = OPERATOR, user: str = "ada", limit: int = 5) -> SearchReply:
    ask = SearchRequest(user=user, query="tea", limit=limit)
    return await Search(service.store, service.ranker).search(ask, who)


async def test_all_active_facts_best_first_globals_too(service: Service) -> None:
    reply = await search(service)
    assert [one.content for one in reply.items] == ["User has tea.", "User has a car and tea.", "User has a dog."]
    assert [one.score for one in reply.items] == pytest.approx([1.0, 0.7071, 0.0], abs=1e-3)
    assert (reply.degraded, reply.next_cursor) == (None, None)
    assert len((await search(service, limit=1)).items) == 1


async def test_without_a_ranker_newest_first(service: Service) -> None:
    service.ranker = None
    reply = await search(service, limit=2)
    assert [one.content for one in reply.items] == ["User has a dog.", "User has a car and tea."]
    assert ({one.score for one in reply.items}, reply.degraded) == ({None}, "ranker_unavailable")


async def test_nothing_of_whom_nothing_is_known_or_who_opted_out(service: Service, store: StoreInMemory) -> None:
    assert (await search(service, user="bob")).items == []
    store.withheld = "opted_out"
    assert (await search(service)).items == []


async def test_another_user_is_not_found(service: Service) -> None:
    token = Principal("default", "user:bob", frozenset({"facts:read"}), user="bob")
    with pytest.raises(Problem, match="not_found"):
        await search(service, token)


async def test_store_away_is_an_error_here(service: Service, store: StoreInMemory) -> None:
    with pytest.raises(Problem, match="unavailable"):
        await search(service, NOBODY)
    store.error = RpcError("unavailable")
    with pytest.raises(RpcError):
        await search(service)

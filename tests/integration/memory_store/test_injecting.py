"""ListFacts, PutVectors, RecordUse on real Postgres."""

from base64 import b64encode
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from services.memory_store.facts.injecting import Injecting
from shared.rpc.errors import RpcError
from shared.rpc.messages import FactVector, InjectableFact, ListFacts, PutVectors, RecordUse
from tests.integration.memory_store.lab import Lab

CREATE = {"action": "create"}


async def listed(lab: Lab, user: str = "ann", workspace: str = "default") -> list[InjectableFact]:
    ask = ListFacts(tenant="default", user=user, workspace=workspace, encoder="e", vectors=True)
    return (await Injecting(lab.database).list_facts(ask)).facts


async def test_active_facts_of_the_person_and_workspace(lab: Lab) -> None:
    await lab.learn(("User likes tea", {"action": "create", "scope": "global"}), ("User likes milk", CREATE))
    await lab.learn(("User likes beer", CREATE), workspace="other")
    await lab.learn(("Bob likes tea", CREATE), user="bob")
    await lab.learn(("User liked juice", CREATE), ("User wants rum", CREATE))
    await lab.sql("UPDATE fact SET valid_to = '2020' WHERE content = 'User liked juice'")
    await lab.sql("UPDATE fact SET state = 'pending', pending_reason = 'limit' WHERE content = 'User wants rum'")
    facts = await listed(lab)
    assert {(fact.content, fact.scope) for fact in facts} == {
        ("User likes tea", "global"),
        ("User likes milk", "workspace"),
    }
    assert await listed(lab, "nobody") == []


async def test_nothing_is_injected_while_memory_is_off(lab: Lab) -> None:
    await lab.learn(("User likes tea", CREATE))
    ask = ListFacts(tenant="default", user="ann", workspace="default")
    injecting = Injecting(lab.database)
    await lab.sql("INSERT INTO user_setting (tenant, usr, memory) VALUES ('default', 'ann', false)")
    off = await injecting.list_facts(ask)
    assert (off.facts, off.withheld) == ([], "opted_out")
    await lab.sql("UPDATE tenant_setting SET personalization = false, heading = '## Known'")
    off = await injecting.list_facts(ask)
    assert (off.facts, off.withheld, off.heading) == ([], "personalization_off", "## Known")
    with pytest.raises(RpcError) as unknown:
        await injecting.list_facts(ask.model_copy(update={"tenant": "nowhere"}))
    assert unknown.value.code == "not_found"


async def test_vectors_belong_to_a_version_and_a_person(lab: Lab) -> None:
    await lab.learn(("User likes tea", CREATE))
    fact = (await listed(lab))[0]
    injecting = Injecting(lab.database)

    async def put(user: str, *versions: int, fact_id: object = fact.id) -> None:
        vectors = [
            FactVector.model_validate(
                {"fact_id": fact_id, "version": version, "vector": b64encode(b"%d" % version).decode()}
            )
            for version in versions
        ]
        await injecting.put_vectors(PutVectors(tenant="default", user=user, encoder="e", vectors=vectors))

    await put("bob", 1)
    await put("ann", 2, -1, 2**40)
    await put("ann", 1, fact_id=uuid4())
    assert (await listed(lab))[0].vector is None
    await put("ann", 2, 1)
    assert (await listed(lab))[0].vector == b64encode(b"1").decode()
    await lab.learn(("User likes green tea", {"action": "update", "target": str(fact.id)}))
    assert (await listed(lab))[0].vector is None
    with pytest.raises(RpcError) as bad:
        await injecting.put_vectors(
            PutVectors(
                tenant="default",
                user="ann",
                encoder="e",
                vectors=[FactVector(fact_id=fact.id, version=1, vector="no base64")],
            )
        )
    assert bad.value.code == "invalid_argument"


async def test_uses_are_counted(lab: Lab) -> None:
    await lab.learn(("User likes tea", CREATE))
    fact = (await listed(lab))[0]
    injecting = Injecting(lab.database)
    for user in ("ann", "ann", "bob"):
        use = RecordUse(tenant="default", user=user, fact_ids=[fact.id, fact.id, uuid4()], at=datetime.now(UTC))
        await injecting.record_use(use)
    assert (await listed(lab))[0].use_count == 4

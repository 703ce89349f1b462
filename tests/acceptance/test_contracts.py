"""The published contracts: the committed files are what the code says, and no request that fits or misses them ends in a 5xx."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.schemas import OpenApiSchema

from deploy import contracts
from deploy.local.broker import Broker
from tests.support.postgres import PostgresForTests
from tests.support.system import System

SERVICES = ("chat-ingest", "memory-store", "injection")
METHODS = ("get", "post", "put", "patch", "delete")
EXAMPLES = 15


def _document(service: str) -> Any:
    return json.loads((contracts.DOCS / "openapi" / f"{service}.json").read_text("utf-8"))


OPERATIONS = [
    (service, path, method)
    for service in SERVICES
    for path, operations in _document(service)["paths"].items()
    for method in operations
    if method in METHODS
]


def test_the_committed_contracts_are_current() -> None:
    assert contracts.main(["--check"]) == 0, "run `python -m deploy contracts`"


def test_every_reference_of_the_asyncapi_document_resolves() -> None:
    document = contracts.asyncapi()

    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for child in node.values():
                yield from references(child)
        elif isinstance(node, list):
            for child in node:
                yield from references(child)

    found = set(references(document))
    assert {"#/components/messages/ChatCompleted", "#/components/schemas/DeadLetter"} <= found
    for reference in found:
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def test_what_the_asyncapi_document_requires() -> None:
    schemas = contracts.asyncapi()["components"]["schemas"]
    assert set(schemas["ChatCompleted"]["required"]) == {"type", "event_id", "user", "prompt", "response"}
    assert set(schemas["ChatReset"]["required"]) == {"type", "event_id", "user"}
    assert set(schemas["ChatDeleted"]["required"]) == {"type", "event_id", "user", "event_ids"}
    assert "event_id_conflict" in schemas["DeadLetter"]["properties"]["reason"]["enum"]


@pytest.fixture(scope="module")
def running(postgres: PostgresForTests, kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    system = System(postgres.create(), kafka, tmp_path_factory.mktemp("contracts"))
    try:
        system.make_topics()
        yield system.start("memory_store", "chat_ingest", "injection")
    finally:
        system.close()


@pytest.fixture(scope="module")
def schemas() -> dict[str, OpenApiSchema]:
    return {service: schemathesis.openapi.from_dict(_document(service)) for service in SERVICES}


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: str(mode.value))
@pytest.mark.parametrize("route", OPERATIONS, ids=" ".join)
def test_no_request_ends_in_a_5xx(
    running: System, schemas: dict[str, OpenApiSchema], route: tuple[str, str, str], mode: GenerationMode
) -> None:
    service, path, method = route
    url = running.url(service.replace("-", "_"))
    operation = schemas[service][path][method]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def answers(case: Case[Any]) -> None:
        response = case.call(base_url=url, headers={"Authorization": f"Bearer {running.admin_key}"}, timeout=30)
        assert response.status_code < 500, (response.status_code, response.text[:300])
        if response.status_code >= 400:
            assert response.headers["content-type"] == ["application/problem+json"]
            assert response.json()["code"]

    answers()

from fastapi import FastAPI

from services.memory_store.rest import ROUTERS

# Who may call what. A route that is not here, or that asks for something else or for nothing, fails.
SCOPES = {
    "GET /v1/facts": {"facts:read"},
    "POST /v1/facts": {"facts:write"},
    "GET /v1/facts/{fact_id}": {"facts:read"},
    "PATCH /v1/facts/{fact_id}": {"facts:write"},
    "DELETE /v1/facts/{fact_id}": {"facts:write"},
    "POST /v1/facts/{fact_id}/promote": {"facts:write"},
    "POST /v1/facts/{fact_id}/demote": {"facts:write"},
    "POST /v1/facts/{fact_id}/restore": {"facts:write"},
    "POST /v1/facts/{fact_id}/approve": {"facts:write"},
    "POST /v1/facts/{fact_id}/reject": {"facts:write"},
    "GET /v1/facts/{fact_id}/history": {"facts:read"},
    "GET /v1/pending": {"facts:read"},
    "POST /v1/runs": {"facts:write"},
    "GET /v1/runs": {"admin", "own"},
    "GET /v1/runs/{run_id}": {"admin", "own"},
    "POST /v1/runs/{run_id}/retry": {"admin", "own"},
    "GET /v1/dead-letters": {"admin", "own"},
    "GET /v1/settings": {"admin"},
    "PATCH /v1/settings": {"admin"},
    "GET /v1/settings/effective": {"any"},
    "GET /v1/workspaces/settings": {"admin"},
    "PATCH /v1/workspaces/settings": {"admin"},
    "GET /v1/users/settings": {"admin", "own"},
    "PATCH /v1/users/settings": {"admin", "own"},
    "GET /v1/keys": {"admin"},
    "POST /v1/keys": {"admin"},
    "DELETE /v1/keys/{key_id}": {"admin"},
    "POST /v1/tokens": {"tokens:mint"},
    "GET /v1/tenants": {"operator"},
    "POST /v1/tenants": {"operator"},
}


def test_every_route_says_who_may_call_it() -> None:
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    found = {
        f"{method.upper()} {path}": {
            scope for each in operation.get("security", ()) for scope in next(iter(each.values()))
        }
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
    }
    assert found == SCOPES

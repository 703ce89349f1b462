"""Isolation in the database itself, as the service's role: what a forgotten filter or a reused connection would show. And the schema's
own rules: every column that can hold text is registered, every key begins with whose row it is, nothing is owned by who serves."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from services.memory_store.database import Database
from services.memory_store.facts import ledger
from services.memory_store.facts.ledger import Author
from tests.integration.memory_store.lab import Lab, candidate, chat

# Every table with a user; the last two columns of some stand elsewhere.
PERSONAL = (
    "audit",
    "batch",
    "chat",
    "evidence",
    "fact",
    "fact_use",
    "fact_vector",
    "fact_version",
    "run",
    "user_setting",
)
TENANTS = ("default", "other")
USERS = ("ann", "bob")

Raw = asyncpg.Connection


@pytest.fixture
async def full(lab: Lab) -> Lab:
    """Two users of the same ids in two tenants, with a row in every table."""
    await lab.add_tenant("other")
    for tenant in TENANTS:
        for user in USERS:
            await lab.stage(chat("a", user, tenant=tenant, prompt="I like tea"), chat("b", user, tenant=tenant))
            await lab.sql("UPDATE batch SET claimable_at = NULL WHERE NOT (tenant = $1 AND usr = $2)", tenant, user)
            await lab.complete(
                await lab.claimed(), (candidate(f"{user} of {tenant}", "a", "I like tea"), {"action": "create"})
            )
    for statement in (
        "INSERT INTO user_setting (tenant, usr) SELECT tenant, usr FROM fact",
        "INSERT INTO fact_use SELECT tenant, usr, id, now(), 1 FROM fact",
        "INSERT INTO fact_vector SELECT tenant, usr, id, 'e', 1, 'v' FROM fact",
        "INSERT INTO user_token (tenant, usr, sha256, minted_by, scopes, expires_at)"
        " SELECT tenant, usr, sha256('x'), 'k', '{}', now() + interval '1 hour' FROM fact",
        "UPDATE chat SET state = 'dead' WHERE event_id = 'b'",
    ):
        await lab.sql(statement)
    return lab


@pytest.fixture
async def raw(lab: Lab) -> AsyncIterator[Raw]:
    connection = await asyncpg.connect(lab.local.app_url)
    yield connection
    await connection.close()


async def seen(raw: Raw, tables: tuple[str, ...] = PERSONAL) -> dict[str, set[tuple[str, str]]]:
    found = {}
    for table in tables:
        found[table] = {(row["tenant"], row["usr"]) for row in await raw.fetch(f"SELECT tenant, usr FROM {table}")}
    return found


async def as_person(raw: Raw, tenant: str | None, user: str | None, scope: str | None = None) -> None:
    for name, value in (("tenant", tenant), ("user", user), ("scope", scope)):
        if value is not None:
            await raw.execute("SELECT set_config($1, $2, true)", f"keepsake.{name}", value)


async def as_ann(raw: Raw, statement: str, *values: str) -> None:
    async with raw.transaction():
        await as_person(raw, "default", "ann")
        await raw.execute(statement, *values)


NOBODY = [
    (None, None),
    ("", ""),
    ("default", None),
    ("default", ""),
    (None, "ann"),
    ("", "ann"),
    ("default", "ann'; --"),
    ("default", "ANN"),
    ("default", " ann"),
    ("default", "%"),
    ("*", "*"),
    ("default/ann", ""),
    ("nowhere", "ann"),
]


async def test_no_rows_without_a_person(full: Lab, raw: Raw) -> None:
    for tenant, user in NOBODY:
        async with raw.transaction():
            await as_person(raw, tenant, user)
            assert await seen(raw) == {table: set() for table in PERSONAL}, (tenant, user)
            assert await raw.fetchval("SELECT count(*) FROM user_token") == 0


async def test_a_person_sees_and_changes_their_own_rows_alone(full: Lab, raw: Raw) -> None:
    async with raw.transaction():
        await as_person(raw, "default", "ann")
        assert await seen(raw) == {table: {("default", "ann")} for table in PERSONAL}
        assert await raw.execute("UPDATE fact SET content = 'mine'") == "UPDATE 1"
        assert await raw.execute("UPDATE chat SET thread = 'mine'") == "UPDATE 2"
    for table, row in (
        ("fact", "(tenant, usr, content, same_key, state, origin) VALUES ($1, $2, 'x', 'k', 'active', 'person')"),
        ("batch", "(tenant, usr, workspace, pending, last_staged_at) VALUES ($1, $2, 'w', 1, now())"),
        ("outbox", "(tenant, usr, type) VALUES ($1, $2, 'fact.created')"),
        ("audit", "(tenant, usr, actor, action) VALUES ($1, $2, 'a', 'b')"),
    ):
        for whose in (("default", "bob"), ("other", "ann")):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await as_ann(raw, f"INSERT INTO {table} {row}", *whose)


async def test_nothing_is_left_on_a_connection(full: Lab) -> None:
    one = Database(full.local.app_url, size=1)
    await one.open()
    async with one.person("default", "ann") as connection:
        assert await connection.fetchval("SELECT count(*) FROM fact") == 1
    async with one.statement() as connection:
        assert await connection.fetchval("SELECT current_setting('keepsake.user', true)") == ""
        assert await connection.fetchval("SELECT count(*) FROM fact") == 0
    async with one.anonymous() as connection:
        assert await connection.fetchval("SELECT count(*) FROM fact") == 0
    with pytest.raises(ValueError, match="broken"):
        async with one.person("default", "ann"):
            raise ValueError("broken")
    async with one.statement() as connection:
        assert await connection.fetch("SELECT * FROM injectable_facts('default', 'ann', 'default', NULL, false)")
        assert await connection.fetchval("SELECT count(*) FROM fact") == 0
    await one.close()


async def test_an_administrators_lists_across_users(full: Lab, raw: Raw) -> None:
    """Runs, dead letters and the audit log; nothing else, no other tenant, and to read only."""
    async with raw.transaction():
        await as_person(raw, "default", None, "tenant")
        found = await seen(raw)
        everybody = {("default", user) for user in USERS}
        assert {table for table, rows in found.items() if rows} == {"audit", "chat", "run"}
        assert found["run"] == found["audit"] == found["chat"] == everybody
        assert {row["state"] for row in await raw.fetch("SELECT state FROM chat")} == {"dead"}
        assert await raw.execute("UPDATE run SET reason = 'x'") == "UPDATE 0"
        assert await raw.execute("DELETE FROM chat") == "DELETE 0"


FORBIDDEN = (
    "UPDATE audit SET code = 'x'",
    "DELETE FROM audit",
    "SELECT * FROM barrier",
    "DELETE FROM outbox",
    "SELECT * FROM outbox",
    "UPDATE tenant SET hash_key = 'x'",
    "ALTER TABLE fact DISABLE ROW LEVEL SECURITY",
    "SET ROLE keepsake_queue",
    "SET ROLE keepsake_owner",
    "CREATE TABLE own (id int)",
    "TRUNCATE fact",
)


async def test_what_the_service_may_not(full: Lab, raw: Raw) -> None:
    for statement in FORBIDDEN:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await as_ann(raw, statement)


async def test_the_queue_cannot_read_facts(full: Lab) -> None:
    for column in ("content", "state", "workspace", "valid_from"):
        allowed = await full.value("SELECT has_column_privilege('keepsake_queue', 'fact', $1, 'SELECT')", column)
        assert allowed is False
    for table in ("fact", "fact_version", "evidence", "fact_vector"):
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE"):
            assert await full.value("SELECT has_table_privilege('keepsake_queue', $1, $2)", table, right) is False


async def test_roles_and_owners(lab: Lab) -> None:
    rows = await lab.sql(
        """
        SELECT rolname, rolcanlogin, rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb AS mighty FROM pg_roles
        WHERE rolname IN ('keepsake_app', 'keepsake_queue') ORDER BY 1
        """
    )
    assert [tuple(row) for row in rows] == [("keepsake_app", True, False), ("keepsake_queue", False, False)]
    owned = await lab.sql(
        "SELECT relname FROM pg_class WHERE relowner IN ('keepsake_app'::regrole, 'keepsake_queue'::regrole)"
    )
    assert owned == []
    definer = await lab.sql(
        "SELECT proname, proowner::regrole::text AS owner, proconfig FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace"
    )
    assert {row["owner"] for row in definer} == {"keepsake_queue"}
    assert all(any(each.startswith("search_path=") for each in row["proconfig"]) for row in definer)


async def test_every_table_with_a_user_has_row_level_security(lab: Lab) -> None:
    bare = await lab.sql(
        """
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attname IN ('usr', 'usr_key') AND NOT c.relrowsecurity
        """
    )
    assert bare == []


async def test_unique_keys_of_people_begin_with_the_person(lab: Lab) -> None:
    """Unique and foreign keys are checked past row-level security."""
    rows = await lab.sql(
        """
        SELECT i.indrelid::regclass::text AS name, ARRAY(
          SELECT pg_get_indexdef(i.indexrelid, n, true) FROM generate_series(1, 2) n) AS first
        FROM pg_index i
        WHERE i.indisunique AND EXISTS (
          SELECT FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attname IN ('usr', 'usr_key'))
          AND i.indrelid::regclass::text NOT LIKE 'pg_%'
        """
    )
    assert {row["name"] for row in rows} > set(PERSONAL)
    assert {tuple(row["first"]) for row in rows} == {("tenant", "usr"), ("tenant", "usr_key")}


async def test_every_column_that_can_hold_text_is_registered(lab: Lab) -> None:
    columns = await lab.sql(
        """
        SELECT c.table_name, c.column_name FROM information_schema.columns c
        JOIN information_schema.tables t USING (table_schema, table_name)
        WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.table_name <> 'schema_migrations'
          AND (c.data_type IN ('text', 'character varying', 'character', 'json', 'jsonb', 'bytea', 'ARRAY', 'USER-DEFINED', 'xml')
               OR c.domain_name IS NOT NULL)
        """
    )
    registered = await lab.sql("SELECT table_name, column_name FROM registered_column")
    assert {tuple(row) for row in columns} == {tuple(row) for row in registered}


async def test_a_run_acts_for_its_own_person(full: Lab) -> None:
    """The person's lock is theirs: another's write does not wait for it."""
    async with full.database.person("default", "ann") as one:
        await ledger.lock_person(one)
        async with full.database.person("default", "bob") as other:
            await ledger.lock_person(other)
            fact = await ledger.held(other, await other.fetchval("SELECT id FROM fact"))
            assert fact is not None
            await ledger.change(other, Author("user:bob"), fact, "fact.updated", content="changed")
    assert await full.facts("ann") == [("default", "ann of default"), ("default", "ann of other")]

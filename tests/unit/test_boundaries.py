"""SQL stands in memory-store's repositories and .sql files only; import-linter keeps the rest of the borders."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
STORE = ROOT / "services" / "memory_store"
SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\s+[\w*(]", re.ASCII)
# Every repository; and database.py, which opens transactions and asks for the schema's version.
REPOSITORIES = {*STORE.glob("*/*repository.py"), STORE / "facts" / "ledger.py"}
MAY_HOLD_SQL = REPOSITORIES | {STORE / "database.py"}


def strings(path: Path) -> list[str]:
    """Every string of a module but its docstrings."""
    tree = ast.parse(path.read_text())
    texts = {node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            texts.discard(node.value)
    return [str(node.value) for node in texts]


def test_sql_stands_in_repositories_only() -> None:
    modules = {path for folder in ("services", "shared") for path in (ROOT / folder).rglob("*.py")}
    found = {path for path in modules - MAY_HOLD_SQL if any(SQL.search(text) for text in strings(path))}
    assert not found, f"SQL outside a repository: {sorted(map(str, found))}"


def test_the_import_contracts_name_every_repository() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = config["tool"]["importlinter"]["contracts"]
    [repositories] = [
        c["source_modules"] for c in contracts if c["name"].startswith("inside memory-store repositories")
    ]
    named = {ROOT / f"{name.replace('.', '/')}.py" for name in repositories}
    assert named == REPOSITORIES

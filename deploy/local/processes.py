"""Child processes that cannot outlive their starter: the parts of a local run, and of the tests.

Each child leads a process group of its own. A guard process knows them all, and stops them when this process dies in
a way that runs no clean-up.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from deploy.errors import DeployError

LAST_LINES = 15


class Stopped(Exception):
    """Somebody asked for the end: Ctrl-C, SIGTERM, or a closed terminal."""


class Interruption:
    """Raises Stopped where a signal finds the program, but never between the birth of a child and the note of it."""

    def __init__(self) -> None:
        self._shielded = False
        self._asked = False

    def ask(self) -> None:
        self._asked = True
        if not self._shielded:
            raise Stopped

    @contextmanager
    def shield(self) -> Iterator[None]:
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self._asked:
            raise Stopped


interruption = Interruption()


class Child:
    """A running part. `log` is the file that holds its output."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, stop_signal: signal.Signals) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._stop_signal = stop_signal
        _tell_guard(f"+{self.pid} {int(stop_signal)}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def stop(self, grace_s: float = 10.0) -> int:
        """Asks the child to end, and kills its whole group after `grace_s`. Answers its exit code."""
        if self.running:
            self._process.send_signal(self._stop_signal)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        return self.kill()

    def kill(self) -> int:
        """Kills the child's whole group at once (SIGKILL). Answers its exit code."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        _tell_guard(f"-{self.pid}")
        return code

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def last_lines(self, count: int = LAST_LINES) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()[-count:]

    def wait_until(self, condition: Callable[[], bool], timeout_s: float, what: str = "ready") -> None:
        """Polls until the condition holds.

        Raises DeployError, with the child's last lines, when it ends first or the time is over.
        """
        deadline = time.monotonic() + timeout_s
        while not (condition() and self.running):
            late = time.monotonic() > deadline
            if self.running and not late:
                time.sleep(0.1)
                continue
            problem = f"was not {what} within {timeout_s:g} s" if self.running else f"ended with code {self.exit_code}"
            raise DeployError("\n    ".join([f"{self.name} {problem}", *self.last_lines()]))


class Server(ABC):
    """A part that others connect to. It can be started again after a stop or a kill."""

    name: str
    port: int
    process: Child | None = None
    start_timeout_s = 60.0
    stop_timeout_s = 20.0

    def start(self) -> None:
        """Returns once the server answers. Raises DeployError."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Starts without waiting: for a server that cannot be ready yet."""
        self.process = self._launch()

    def wait_ready(self) -> None:
        """Raises DeployError with the log's end where the server does not get ready; then it runs no more."""
        try:
            self.child.wait_until(self._ready, self.start_timeout_s)
        except DeployError:
            self.kill()
            raise

    @property
    def child(self) -> Child:
        """The process of the last start. Raises DeployError where there was none."""
        if self.process is None:
            raise DeployError(f"{self.name} was never started")
        return self.process

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running

    def stop(self) -> int | None:
        """Asks it to end, kills it where that is not enough. Answers the exit code, None where it never ran."""
        return self.process.stop(self.stop_timeout_s) if self.process is not None else None

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self.process is not None:
            self.process.kill()

    @abstractmethod
    def _launch(self) -> Child: ...

    @abstractmethod
    def _ready(self) -> bool: ...


def start(
    name: str,
    argv: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: str | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
) -> Child:
    """Starts a part whose output is appended to `log`."""
    identity = {"user": user, "group": _group_of(user), "extra_groups": []} if user else {}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output, interruption.shield():
        process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=True,
            **identity,  # type: ignore[call-overload]
        )
        return Child(name, process, log, stop_signal)


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _group_of(user: str) -> int:
    import pwd  # noqa: PLC0415 - not on every platform, and needed as root only

    return pwd.getpwnam(user).pw_gid


_guard: subprocess.Popen[bytes] | None = None


def _tell_guard(line: str) -> None:
    global _guard
    if _guard is None or _guard.poll() is not None:
        _guard = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("guard.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            close_fds=False,  # it holds the lock of its starter's data folder for as long as parts may run
        )
    if _guard.stdin is not None:
        with suppress(BrokenPipeError):
            _guard.stdin.write(line.encode() + b"\n")
            _guard.stdin.flush()

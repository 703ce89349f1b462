"""What a local run prints: its own lines, and each service's under that service's name."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Say = Callable[[str], None]
_NAME_WIDTH = 13
_POLL_S = 0.1


def say(line: str) -> None:
    """One whole line at a time, also from several threads; where nobody reads any more the run goes on to its end."""
    with suppress(OSError):
        print(f"{line}\n", end="", flush=True)


def say_row(name: str, where: str, what: str) -> None:
    say(f"  {name:<{_NAME_WIDTH}} {where:<28} {what}")


class Follower:
    """Prints what is appended to a log, each line after its part's name."""

    def __init__(self, name: str, log: Path) -> None:
        self._prefix = f"{name:<{_NAME_WIDTH}}| "
        self._log = log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"log of {name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Returns once all that was written is printed."""
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        self._log.touch()
        with self._log.open(errors="replace") as file:
            rest = ""
            while True:
                last_look = self._ended.is_set()
                *lines, rest = (rest + file.read()).split("\n")
                for line in lines:
                    say(self._prefix + line)
                if last_look:
                    break
                self._ended.wait(_POLL_S)
            if rest:
                say(self._prefix + rest)


def keep_one_older(log: Path) -> None:
    """Begins a new log and keeps the last one beside it."""
    if log.exists():
        log.replace(log.with_suffix(".log.1"))

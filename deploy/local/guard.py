"""Ends the processes of a starter that died without ending them itself (kill -9, a closed terminal).

Run as a program by `processes`: it reads `+PID SIGNAL` and `-PID` lines from its standard input, whose other end only the
starter holds. When that end closes, what is still listed is stopped, last started first.
"""

import os
import signal
import sys
import time
from contextlib import suppress

import psutil

GRACE_S = 10.0


def main() -> None:
    listed: dict[int, tuple[psutil.Process, int]] = {}
    for line in sys.stdin:
        word, _, stop_signal = line.strip().partition(" ")
        pid = int(word[1:])
        if word[0] == "-":
            listed.pop(pid, None)
            continue
        try:
            listed[pid] = (psutil.Process(pid), int(stop_signal))
        except psutil.NoSuchProcess:
            continue
    for process, stop_signal_number in reversed(listed.values()):
        _end(process, stop_signal_number)


def _end(process: psutil.Process, stop_signal: int) -> None:
    """Stops a process and its group; `psutil.Process` keeps a reused process id from being hit."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(stop_signal)
    deadline = time.monotonic() + GRACE_S
    while not _has_ended(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.is_running():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _has_ended(process: psutil.Process) -> bool:
    """A process that nobody has waited for yet has ended too: some systems let it stand for seconds."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


if __name__ == "__main__":
    # A Ctrl-C goes to the whole terminal, and the guard must outlive it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    main()

"""What happened, in JSON lines: enough to see why a run failed."""

import json
import threading
import time
from pathlib import Path
from typing import Any


class History:
    """`violations` are promises that were seen broken, each named by its kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = time.monotonic()
        self.violations: list[str] = []
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / "history.jsonl").open("w")

    def restart(self) -> None:
        """Time begins anew: what came before was only the start of the parts."""
        self.started = time.monotonic()

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def note(self, what: str, **fields: Any) -> None:
        with self._lock:
            self._file.write(json.dumps({"at": round(self.now(), 3), "what": what} | fields, default=str) + "\n")
            self._file.flush()

    def violation(self, kind: str, **where: Any) -> None:
        self.violations.append(" ".join([kind, *(f"{name}={value}" for name, value in where.items())]))
        self.note("violation", kind=kind, **where)

    def close(self) -> None:
        self._file.close()

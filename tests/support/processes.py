"""Keepsake's own services as processes of a test."""

from collections.abc import Mapping
from pathlib import Path

from deploy.local.processes import Child
from deploy.local.services import is_ready, start_service

READY_TIMEOUT_S = 60.0


class ServiceProcess:
    """One service: it can be stopped, killed and started again; all its starts write one log."""

    def __init__(self, service: str, url: str, settings: Mapping[str, str], log_file: Path) -> None:
        self.service = service
        self.url = url
        self.settings = dict(settings)
        self.log_file = log_file
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        if self._child is None:
            raise RuntimeError(f"{self.service} was never started")
        return self._child

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    def launch(self, **settings: str) -> None:
        """Starts without waiting. `settings` stay for later starts."""
        self.settings |= settings
        self._child = start_service(self.service, self.settings, log=self.log_file)

    def wait_ready(self) -> None:
        """Returns at the first 200 of /readyz. Raises DeployError with the log's end where that does not come."""
        self.child.wait_until(lambda: is_ready(self.url), READY_TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM, and SIGKILL where that is not enough. Answers the exit code."""
        return self.child.stop(grace_s=40.0) if self._child else 0

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._child:
            self._child.kill()

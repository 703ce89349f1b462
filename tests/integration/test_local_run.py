"""`make run`'s supervisor as its user meets it: what it prints, what it leaves, and that it leaves no process behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from deploy.local.paths import ROOT
from deploy.local.processes import port_is_free
from tests.support.ports import free_port

PARTS = ("chat_ingest", "memory_store", "injection", "extraction", "kafka", "kafka_controller", "postgres")
READY_WITHIN_S = 90.0


class LocalRun:
    """`python -m deploy.local run` in a data folder and on ports of its own, on Tansu, which starts at once."""

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.data_dir = folder / "data"
        self.ports = ports
        self.output_file = folder / "output"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("KEEPSAKE_", "MAKE"))},
            "KEEPSAKE_DATA_DIR": str(self.data_dir),
            "KEEPSAKE_LOCAL_BROKER": "tansu",
            "KEEPSAKE_ROLES": "worker",  # joining a group takes Tansu many seconds
            **{f"KEEPSAKE_LOCAL_{part.upper()}_PORT": str(port) for part, port in ports.items()},
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: str = "run", **settings: str) -> "LocalRun":
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.local", command],
                cwd=ROOT,
                env=self.environment | settings,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self

    @property
    def output(self) -> str:
        return self.output_file.read_text(errors="replace")

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def ready(self) -> dict[str, Any]:
        """What run.json tells, once this start has written it."""
        until(lambda: bool(self._told()) or self.running.poll() is not None, READY_WITHIN_S, lambda: self.output)
        assert self._told(), self.output
        return self._told()

    def _told(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = json.loads((self.data_dir / "run.json").read_text())
        except FileNotFoundError:
            return {}
        return told if told["pids"]["supervisor"] == self.running.pid else {}

    def ended(self) -> int:
        return self.running.wait(READY_WITHIN_S)

    def leftovers(self) -> list[str]:
        """Processes whose command, folder or environment names this run's data folder."""
        return [" ".join(process.cmdline()) for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            text = [*process.cmdline(), process.cwd(), process.environ().get("KEEPSAKE_DATA_DIR", "")]
        except psutil.Error:
            return False
        return any(str(self.data_dir) in part for part in text)

    def assert_nothing_left(self) -> None:
        until(lambda: not self.leftovers(), 60, lambda: str(self.leftovers()))
        assert all(port_is_free(port) for port in self.ports.values())
        assert not (self.data_dir / "run.json").exists() or self.running.returncode == -signal.SIGKILL


def until(condition: Callable[[], bool], timeout_s: float, told: Callable[[], str]) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)


@pytest.fixture
def local(data_folder: Path) -> Iterator[LocalRun]:
    run = LocalRun(data_folder, {part: free_port() for part in PARTS})
    yield run
    if run.process is not None and run.process.poll() is None:
        run.process.terminate()
        run.process.wait(60)


def test_a_run_tells_where_everything_is_and_ctrl_c_stops_all(local: LocalRun) -> None:
    told = local.start().ready()
    until(lambda: "Ctrl-C" in local.output, 10, lambda: local.output)
    assert set(told) == {"urls", "kafka", "database_url", "owner_database_url", "admin_key", "pids"}
    assert told["urls"] == {part.replace("_", "-"): f"http://127.0.0.1:{local.ports[part]}" for part in PARTS[:4]}
    for shown in (*told["urls"].values(), told["kafka"], told["database_url"], told["admin_key"]):
        assert shown in local.output
    for url in told["urls"].values():
        assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    for private in ("run.json", "secrets.json"):
        assert (local.data_dir / private).stat().st_mode & 0o777 == 0o600

    facts = f"{told['urls']['memory-store']}/v1/facts"
    headers = {"Authorization": f"Bearer {told['admin_key']}"}
    fact = {"user": "ann", "content": "User keeps bees"}
    assert httpx.post(facts, json=fact, headers=headers, trust_env=False).status_code == 201
    local.running.send_signal(signal.SIGINT)
    assert local.ended() == 0
    assert local.output.rstrip().endswith("All stopped.")
    local.assert_nothing_left()

    again = local.start().ready()
    assert again["admin_key"] == told["admin_key"]
    kept = httpx.get(facts, params={"user": "ann"}, headers=headers, trust_env=False).json()
    assert [item["content"] for item in kept["global"]] == ["User keeps bees"]


def test_a_port_in_use_is_named_and_nothing_half_started_stays(local: LocalRun) -> None:
    with socket.create_server(("127.0.0.1", local.ports["injection"])):
        assert local.start().ended() == 2
    assert f"port {local.ports['injection']} of injection is in use" in local.output
    assert "postgres" not in local.output
    local.assert_nothing_left()


def test_a_service_that_cannot_start_ends_the_run_with_its_reason(local: LocalRun) -> None:
    assert local.start(KEEPSAKE_LOG_LEVEL="LOUD").ended() == 1
    assert "KEEPSAKE_LOG_LEVEL is wrong" in local.output
    local.assert_nothing_left()


def test_sigterm_in_the_middle_of_the_start_stops_all(local: LocalRun) -> None:
    local.start()
    until(lambda: "postgres " in local.output, 60, lambda: local.output)
    local.running.send_signal(signal.SIGTERM)
    assert local.ended() == 0
    local.assert_nothing_left()


def test_one_run_per_folder_and_kill_9_leaves_nothing_that_hinders_the_next(local: LocalRun) -> None:
    pid = local.start().ready()["pids"]["supervisor"]
    second = LocalRun(local.folder / "second", {part: free_port() for part in PARTS})
    assert second.start(KEEPSAKE_DATA_DIR=str(local.data_dir)).ended() == 2
    assert f"another run (process {pid}) already uses {local.data_dir}" in second.output
    local.ready()

    local.running.kill()
    local.ended()
    local.start().ready()
    local.running.kill()
    local.ended()
    local.assert_nothing_left()


def test_a_part_that_dies_stops_the_run_with_its_last_lines(local: LocalRun) -> None:
    pids = local.start().ready()["pids"]
    os.kill(pids["extraction"], signal.SIGKILL)
    assert local.ended() == 1
    assert "extraction ended by itself with code -9" in local.output
    local.assert_nothing_left()


def test_a_part_that_dies_is_started_again_where_that_is_wished(local: LocalRun) -> None:
    before = local.start(KEEPSAKE_LOCAL_ON_EXIT="restart").ready()
    for part in ("chat-ingest", "tansu", "postgres"):
        os.kill(before["pids"][part], signal.SIGKILL)
    until(lambda: _all_new(before, local.ready(), ("chat-ingest", "tansu", "postgres")), 60, lambda: local.output)
    after = local.ready()
    assert local.output.count("starting it again") == 3
    for url in after["urls"].values():
        until(partial(_is_ready, url), 60, lambda: local.output)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def _all_new(before: dict[str, Any], after: dict[str, Any], parts: tuple[str, ...]) -> bool:
    return all(before["pids"][part] != after["pids"][part] for part in parts)


def test_a_wrong_setting_of_the_run_is_one_line(local: LocalRun) -> None:
    assert local.start(KEEPSAKE_LOCAL_ON_EXIT="panic").ended() == 2
    assert local.output.count("\n") == 1
    assert "KEEPSAKE_LOCAL_ON_EXIT" in local.output


def test_the_demo_tells_its_story_and_tells_it_again(local: LocalRun) -> None:
    for _ in range(2):
        assert local.start("demo", KEEPSAKE_ROLES="stager,worker").ended() == 0, local.output
        lines = local.output.splitlines()
        assert len(lines) < 60
        assert any(re.search(r'User lives in Lisbon\. +<- "I live in Lisbon\."', line) for line in lines)
        cooking, homework = (local.output.split("## Things I Remember About You")[part] for part in (1, 2))
        assert "recipes without meat" in cooking
        assert "Portuguese" in homework.split("\n\n")[0]
        assert lines[-1].startswith("All stopped again")
    local.assert_nothing_left()

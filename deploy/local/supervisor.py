"""Keepsake as a whole on this machine: starts its parts in order, watches them, and stops them in the opposite order."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, MappingProxyType

from deploy import topics
from deploy.errors import DeployError
from deploy.local import brokers, database
from deploy.local.data_dir import keep_secrets, locked, write_private
from deploy.local.output import Follower, keep_one_older, say, say_row
from deploy.local.postgres import Postgres
from deploy.local.processes import Server, Stopped, interruption, port_is_free
from deploy.local.services import SERVICES, Service, Wiring, deployed_name, ranker_folder
from deploy.local.settings import LocalSettings
from shared.backoff import Backoff
from shared.kafka import KafkaSettings

_WATCH_S = 0.2
DATABASE = "keepsake"
# Which servers the local run has is its own business; a stray setting of another place must not reach it.
_OUR_OWN = ("KEEPSAKE_LOCAL_", "KEEPSAKE_KAFKA_", "KEEPSAKE_PORT", "KEEPSAKE_ADMIN_KEY", "KEEPSAKE_DATABASE_URL",
            "KEEPSAKE_MIGRATION_DATABASE_URL", "KEEPSAKE_SERVICE_KEY", "KEEPSAKE_MEMORY_STORE_URL")  # fmt: skip


class LocalSystem:
    """Postgres, a broker and the four services. `echo` prints the services' logs as they come, and how each part stops."""

    def __init__(self, settings: LocalSettings, *, echo: bool, forced: Mapping[str, str]) -> None:
        self.settings = settings
        self.data_dir = settings.data_dir
        self._echo = echo
        self._forced = forced
        self._followers: list[Follower] = []
        self._parts: list[Server] = []
        self._begun = time.monotonic()
        self._secrets = keep_secrets(self.data_dir)
        self.admin_key = os.environ.get("KEEPSAKE_ADMIN_KEY") or self._secrets.admin_key
        self.postgres = Postgres(
            self.data_dir / "postgres", settings.port("postgres"), self._secrets.superuser_password
        )
        self.broker = brokers.make(
            brokers.choose(settings.local_broker, self.data_dir),
            self.data_dir,
            settings.port("kafka"),
            settings.port("kafka_controller"),
        )
        self.database = database.at(self.postgres, DATABASE, **self._passwords)
        self.wiring = Wiring(
            ports={service: settings.port(service) for service in SERVICES},
            bootstrap=self.broker.bootstrap,
            database_url=self.database.app_url,
            admin_key=self.admin_key,
            service_keys=self._secrets.service_keys,
        )

    @property
    def _passwords(self) -> dict[str, str]:
        return {"owner_password": self._secrets.owner_password, "app_password": self._secrets.app_password}

    @property
    def kafka_settings(self) -> KafkaSettings:
        return KafkaSettings(kafka_bootstrap_servers=(self.broker.bootstrap,), kafka_security_protocol="PLAINTEXT")

    def up(self) -> None:
        """Starts everything, each part once the one before it is ready. Raises DeployError."""
        (self.data_dir / "run.json").unlink(missing_ok=True)
        self._refuse_ports_in_use()
        for name in ("postgres", self.broker.name, *map(deployed_name, SERVICES)):
            keep_one_older(self.data_dir / "logs" / f"{name}.log")
        self._start(self.postgres, f"127.0.0.1:{self.postgres.port}")
        self._start(self.broker, self.broker.bootstrap, "" if self.broker.keeps_topics else ", topics in memory only")
        self._prepare_topics()
        begun = time.monotonic()
        _, applied = database.prepare(self.postgres, DATABASE, **self._passwords)
        say_row("schema", DATABASE, f"ready in {time.monotonic() - begun:.1f} s, {len(applied)} new migrations")
        store, *others = (self._service(service) for service in SERVICES)
        self._start(store, store.url)
        self._parts += others
        for service in others:
            service.launch()
        for service in others:
            begun = time.monotonic()
            service.wait_ready()
            say_row(service.name, service.url, f"ready {time.monotonic() - begun:.1f} s later")
        self._tell_others()
        say(f"Ready in {time.monotonic() - self._begun:.1f} s.")

    def watch(self) -> None:
        """Returns never: raises DeployError when a part ends by itself, unless it is to be started again."""
        restarts = {part.name: (Backoff(0.5, 30.0), 0.0) for part in self._parts}
        parent = os.getppid()
        while True:
            time.sleep(_WATCH_S)
            if os.environ.get("MAKELEVEL") and os.getppid() != parent:
                raise Stopped  # the make that we belong to has gone
            for part in self._parts:
                if part.running:
                    continue
                if self.settings.local_on_exit == "stop":
                    raise DeployError(
                        f"{part.name} ended by itself with code {part.child.exit_code}; its last lines:\n    "
                        + "\n    ".join(part.child.last_lines())
                    )
                pauses, not_before = restarts[part.name]
                if time.monotonic() >= not_before:
                    restarts[part.name] = (pauses, time.monotonic() + pauses.next_pause())
                    self._restart(part)

    def down(self) -> None:
        """Stops what runs, services first, and leaves nothing behind."""
        (self.data_dir / "run.json").unlink(missing_ok=True)
        for part in reversed(self._parts):
            begun = time.monotonic()
            was_running = part.running
            code = part.stop()
            if was_running and self._echo:
                how = "killed, since it did not stop" if code == -signal.SIGKILL else "stopped"
                say_row(part.name, "", f"{how} in {time.monotonic() - begun:.1f} s")
        for follower in self._followers:
            follower.end()

    def _refuse_ports_in_use(self) -> None:
        names = ["postgres", "kafka", *(["kafka_controller"] if self.broker.name == "kafka" else []), *SERVICES]
        for name in names:
            port = self.settings.port(name)
            if not port_is_free(port):
                raise DeployError(
                    f"port {port} of {deployed_name(name)} is in use: free it, move it with "
                    f"KEEPSAKE_LOCAL_{name.upper()}_PORT, or move all ports with KEEPSAKE_LOCAL_PORT_OFFSET",
                    exit_code=2,
                )

    def _start(self, part: Server, where: str, more: str = "") -> None:
        begun = time.monotonic()
        self._parts.append(part)
        part.start()
        say_row(part.name, where, f"ready in {time.monotonic() - begun:.1f} s{more}")

    def _restart(self, part: Server) -> None:
        say(f"{part.name} ended by itself with code {part.child.exit_code}: starting it again")
        try:
            if isinstance(part, Service):
                part.launch()  # it may wait for another part, which is then the next to be started again
            else:
                part.start()
            if part is self.broker and not self.broker.keeps_topics:
                self._prepare_topics()
        except DeployError as error:
            say(str(error))
        self._tell_others()

    def _prepare_topics(self) -> None:
        begun = time.monotonic()
        ensured = asyncio.run(topics.ensure(self.kafka_settings))
        say_row("topics", f"{len(ensured)} topics", f"ready in {time.monotonic() - begun:.1f} s")

    def _service(self, service: str) -> Service:
        given = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("KEEPSAKE_") and not name.startswith(_OUR_OWN)
        }
        defaults = {
            "KEEPSAKE_PERSONALIZATION": "true",
            "KEEPSAKE_RANKER_MODEL": str(ranker_folder(self.data_dir)),
            # A known member rejoins its group at once. Tansu has no such members.
            **({"KEEPSAKE_INSTANCE_ID": "local"} if self.broker.keeps_topics else {}),
        }
        log = self.data_dir / "logs" / f"{deployed_name(service)}.log"
        if self._echo:
            self._followers.append(Follower(deployed_name(service), log))
        return Service(service, defaults | self.wiring.environment(service) | given | dict(self._forced), log)

    def _tell_others(self) -> None:
        write_private(
            self.data_dir / "run.json",
            {
                "urls": self.wiring.urls,
                "kafka": self.broker.bootstrap,
                "database_url": self.database.app_url,
                "owner_database_url": self.database.owner_url,
                "admin_key": self.admin_key,
                "pids": {"supervisor": os.getpid()} | {part.name: part.child.pid for part in self._parts},
            },
        )


@contextmanager
def running(
    settings: LocalSettings, *, echo: bool, forced: Mapping[str, str] = MappingProxyType({})
) -> Iterator[LocalSystem]:
    """The whole system, started; all of it is stopped at the end, whatever the end is.

    Raises DeployError, and Stopped at a signal. `forced` are settings of the services, whatever the environment says.
    """
    with _signals_as_exceptions(), locked(settings.data_dir, say):
        system = LocalSystem(settings, echo=echo, forced=forced)
        try:
            system.up()
            yield system
        finally:
            _ignore_signals()
            system.down()


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    _ignore_signals()
    interruption.ask()


def _ignore_signals() -> None:
    """Stopping goes on to its end, which is bounded."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    handlers: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    for number in _SIGNALS:
        handlers[number] = signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)

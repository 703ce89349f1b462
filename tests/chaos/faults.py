"""Carries out the plan's faults, one at a time for each part, and puts everything right again."""

import asyncio
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress

import httpx

from deploy.errors import DeployError
from tests.chaos.history import History
from tests.chaos.plan import Fault
from tests.chaos.world import World, send_signal
from tests.support.links import State, Trap

# Where a word passes, if not on the way to the store.
_ENDS = {"COMMIT": "postgres", "decide": "model"}
# How long an aimed signal waits for its moment, and then comes anyway.
_PATIENCE_S = 6.0
_START_S = 15.0
_SLOW_S = 0.3
_LINK_STATES: dict[str, State] = {"refusing": "refusing", "stalled": "stalled", "deaf": "deaf"}


class Faults:
    """`kills` by target and way; `ends` says of each fault when its part was put right again, in seconds since the start."""

    def __init__(self, world: World, history: History) -> None:
        self.kills: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self.ends: list[tuple[str, float]] = []
        self._world = world
        self._history = history
        # A session's end is its server's: one after the other.
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def befall(self, faults: Sequence[Fault]) -> None:
        """Returns once all have happened and everything runs again."""
        watch = asyncio.create_task(self._watch())
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._one(fault))
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    async def _one(self, fault: Fault) -> None:
        await asyncio.sleep(max(0.0, fault.at - self._history.now()))
        async with self._locks["postgres" if fault.target == "backend" else fault.target]:
            began = self._history.now()
            if fault.kind == "kill":
                await self._kill(fault)
            elif fault.kind == "stop":
                await self._stop(fault)
            elif fault.kind == "link":
                await self._link(fault)
            else:
                await self._fail_model(fault)
            ended = self._history.now()
        self.ends.append((f"{fault.kind} {fault.target}", ended))
        self._history.note("fault", kind=fault.kind, target=fault.target, how=fault.how, began=began, ended=ended)

    async def _kill(self, fault: Fault) -> None:
        aim = fault.how if await self._aim(fault, signal.SIGKILL) else ""
        await self._strike(fault.target)
        self.kills[" ".join(filter(None, (fault.target, aim)))] += 1
        await asyncio.sleep(fault.seconds)
        if fault.target != "backend":
            await self._start(fault.target)

    async def _strike(self, target: str) -> None:
        """Also waits for the end of what was killed already."""
        if target != "backend":
            await asyncio.to_thread(self._world.parts[target].kill)
            return
        # Right after a crash there is none for a moment.
        while not send_signal(self._world.pid(target), signal.SIGKILL):  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.05)

    async def _aim(self, fault: Fault, number: signal.Signals) -> bool:
        """Sends the signal in the very moment, from the thread that sees it; False where the moment did not come in time."""
        if not fault.how or not await self._is_ready(fault.target):
            return False
        pid, sprung = self._world.pid(fault.target), threading.Event()

        def act() -> None:
            send_signal(pid, number)
            sprung.set()

        link = self._world.links[f"{fault.target} {_ENDS.get(fault.how.split()[0], 'store')}"]
        trap = Trap.at(fault.how, act)
        link.once(trap)
        await asyncio.to_thread(sprung.wait, _PATIENCE_S)
        link.disarm(trap)
        return sprung.is_set()

    async def _is_ready(self, name: str) -> bool:
        """Waits for a service that has just been started: at work it has moments worth a kill."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_S), httpx.AsyncClient(trust_env=False, timeout=2) as client:
                while True:
                    with suppress(httpx.TransportError):
                        if (await client.get(f"{self._world.services[name].url}/readyz")).status_code == httpx.codes.OK:
                            return True
                    await asyncio.sleep(0.1)
        return False

    async def _start(self, target: str) -> None:
        """Services start whatever is away; Kafka and Postgres are waited for. On a machine that is busy a start may need another."""
        part = self._world.parts[target]
        if target not in ("kafka", "postgres"):
            part.launch()
            return
        for last in (False, False, True):
            try:
                await asyncio.to_thread(part.start)
            except DeployError as error:
                self._history.note("start_failed", target=target, error=str(error)[-500:])
                if last:
                    raise
            else:
                return

    async def _stop(self, fault: Fault) -> None:
        pid = self._world.pid(fault.target)
        aim = fault.how if await self._aim(fault, signal.SIGSTOP) else ""
        send_signal(pid, signal.SIGSTOP)
        self.others[" ".join(filter(None, ("stop", fault.target, aim)))] += 1
        await asyncio.sleep(fault.seconds)
        send_signal(pid, signal.SIGCONT)

    async def _link(self, fault: Fault) -> None:
        link = self._world.links[fault.target]
        self.others[f"link {fault.how}"] += 1
        if fault.how == "cut":
            link.cut()
            return
        link.become(_LINK_STATES.get(fault.how, "open"), delay_s=_SLOW_S if fault.how == "slow" else 0.0)
        await asyncio.sleep(fault.seconds)
        link.become("open")

    async def _fail_model(self, fault: Fault) -> None:
        model = self._world.model
        self.others[f"model {fault.how}"] += 1
        if fault.how == "refuse":
            ways = [link for name, link in self._world.links.items() if name.endswith(" model")]
            for link in ways:
                link.become("refusing")
            await asyncio.sleep(fault.seconds)
            for link in ways:
                link.become("open")
            return
        model.outage = fault.how
        await asyncio.sleep(fault.seconds)
        model.outage = None

    async def _watch(self) -> None:
        """A part that ends by itself is a broken promise; it is started again as whoever runs it would."""
        while True:
            for name, part in self._world.parts.items():
                lock = self._locks[name]
                if lock.locked() or part.running:
                    continue
                async with lock:
                    lines = "; ".join(part.child.last_lines(3))
                    self._history.violation("ended by itself", part=name, code=part.child.exit_code, lines=lines[-300:])
                    await self._start(name)
            await asyncio.sleep(0.5)

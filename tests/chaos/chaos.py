"""One run: start the system, publish and break it, let it come to rest, check."""

import asyncio
import dataclasses
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from deploy.local.paths import DEFAULT_DATA_DIR
from tests.chaos import truth
from tests.chaos.checker import Checker, read_store
from tests.chaos.faults import Faults
from tests.chaos.history import History
from tests.chaos.model import content_of, statements
from tests.chaos.plan import Send, plan_faults, plan_sends
from tests.chaos.progress import Progress, read_state
from tests.chaos.publishing import Applications
from tests.chaos.world import World, running_world

SAY_EVERY_S = 10.0
# From the last fault and the last chat on.
DRAIN_S = 180.0


@dataclass(frozen=True)
class Settings:
    seed: int
    minutes: float
    kills: int
    chats: int

    @property
    def folder(self) -> Path:
        return DEFAULT_DATA_DIR / "chaos" / str(self.seed)


@dataclass
class Report:
    settings: Settings
    kills: Counter[str]
    others: Counter[str]
    ends: Counter[str]
    lost: int
    doubled: int
    recoveries: Sequence[tuple[float, str]]
    drained_s: float
    violations: Sequence[str]

    def text(self, seconds: float) -> str:
        lines = [
            f"seed {self.settings.seed}: {self.kills.total()} kills and {self.others.total()} other faults in {seconds:.0f} s"
        ]
        lines += [f"  {count:>4}  {name}" for name, count in sorted((self.kills + self.others).items())]
        lines.append("chats: " + ", ".join(f"{count} {state}" for state, count in sorted(self.ends.items())))
        if self.recoveries:
            times = [seconds for seconds, _ in self.recoveries]
            lines.append(
                f"time to recover: median {times[len(times) // 2]:.1f} s, 95 % {times[len(times) * 95 // 100]:.1f} s, "
                f"longest {times[-1]:.1f} s ({self.recoveries[-1][1]}); drained in {self.drained_s:.0f} s"
            )
        lines.append(f"lost: {self.lost}  doubled: {self.doubled}  violations: {len(self.violations)}")
        lines += [f"  {violation}" for violation in self.violations[:40]]
        lines.append(f"history and logs: {self.settings.folder}")
        return "\n".join(lines)


async def run(settings: Settings) -> Report:
    shutil.rmtree(settings.folder, ignore_errors=True)
    history = History(settings.folder)
    history.note("settings", **dataclasses.asdict(settings))
    print(
        f"seed {settings.seed}: {settings.kills} kills and {settings.chats} chats in {settings.minutes:g} minutes",
        flush=True,
    )
    context = running_world(settings.seed, settings.folder)
    world = await asyncio.to_thread(context.__enter__)
    try:
        return await _run(settings, world, history)
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
        history.close()


async def _run(settings: Settings, world: World, history: History) -> Report:
    seconds = settings.minutes * 60
    sends = plan_sends(settings.seed, settings.chats, seconds)
    system = world.system
    applications = Applications(system.kafka_settings, system.url("chat_ingest"), system.admin_key, history)
    faults = Faults(world, history)
    progress = Progress(system.database.superuser_url, history)
    history.restart()
    watching = [
        asyncio.create_task(progress.watch()),
        asyncio.create_task(_say(history, applications, sends, faults, progress)),
        asyncio.create_task(_ask_for_prompts(world, sends, history)),
    ]
    try:
        await asyncio.gather(
            applications.publish(sends), faults.befall(plan_faults(settings.seed, settings.kills, seconds))
        )
        calm = history.now()
        await _drain(world, history)
        drained_s = history.now() - calm
    finally:
        for task in watching:
            task.cancel()
        ended = await asyncio.gather(*watching, return_exceptions=True)
    for error in ended:
        if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
            raise error
    checker = await _check(world, history, sends, applications)
    return Report(
        settings,
        faults.kills,
        faults.others,
        checker.ends,
        checker.lost,
        checker.doubled,
        progress.recoveries(faults.ends, seconds),
        drained_s,
        history.violations,
    )


async def _drain(world: World, history: History) -> None:
    """Until everything is committed, and after that everything read and relayed, or DRAIN_S are over."""
    system = world.system
    group = system.services["extraction"].settings["KEEPSAKE_GROUP_ID"]
    deadline = history.now() + DRAIN_S
    while True:
        left = await truth.uncommitted(system.kafka_settings, group)
        state = await read_state(system.database.superuser_url)
        if not (left or state.pending or state.leased or state.outbox):
            return
        if history.now() > deadline:
            history.violation("not drained", seconds=DRAIN_S, uncommitted=left, state=state)
            return
        await asyncio.sleep(1.0)


async def _check(world: World, history: History, sends: Sequence[Send], applications: Applications) -> Checker:
    kafka = world.system.kafka_settings
    store = await read_store(world.system.database.superuser_url)
    checker = Checker(store, await truth.read_published(kafka), history)
    checker.check_all(world.model, sends, applications.accepted)
    checker.check_changes(await truth.read_changes(kafka))
    checker.check_dead_letters(await truth.read_dead_letters(kafka))
    await _check_health(world, history)
    return checker


async def _check_health(world: World, history: History) -> None:
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        for name, service in world.services.items():
            for probe in ("healthz", "readyz"):
                answer = await client.get(f"{service.url}/{probe}")
                if answer.status_code != httpx.codes.OK:
                    history.violation("not well after all", part=name, probe=probe, status=answer.status_code)


async def _say(
    history: History, applications: Applications, sends: Sequence[Send], faults: Faults, progress: Progress
) -> None:
    while True:
        await asyncio.sleep(SAY_EVERY_S)
        state = progress.state
        if state is not None:
            print(
                f"{history.now():>6.0f} s  accepted {len(applications.accepted)}/{len(sends)} sends, staged {state.staged}, pending "
                f"{state.pending}, applied {state.applied} runs, dead {state.dead}, kills {faults.kills.total()}, "
                f"violations {len(history.violations)}",
                flush=True,
            )
            history.note(
                "progress", accepted=len(applications.accepted), kills=faults.kills.total(), **dataclasses.asdict(state)
            )


async def _ask_for_prompts(world: World, sends: Sequence[Send], history: History) -> None:
    """A chat application that asks for prompts all the time: whatever is away, an answer is a prompt and holds nobody else's facts."""
    known: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    for send in sends:
        for record in send.records:
            known[record.group[:2]].update(content_of(said) for said in statements(record.statement or ""))
    people = sorted(known)
    headers = {"Authorization": f"Bearer {world.system.admin_key}"}
    number = 0
    async with httpx.AsyncClient(
        base_url=world.system.url("injection"), headers=headers, timeout=5, trust_env=False
    ) as client:
        while people:
            number += 1
            tenant, user = people[number % len(people)]
            asked = {"user": user, "workspace": "default", "system_prompt": "Be kind.", "message": "What do I like?"}
            with suppress(httpx.TransportError):
                answer = await client.post("/v1/assemble", json=asked, headers={"Keepsake-Tenant": tenant})
                if answer.status_code != httpx.codes.OK:
                    history.violation("no prompt", status=answer.status_code)
                elif not answer.json()["system_prompt"].startswith("Be kind."):
                    history.violation("prompt not kept", tenant=tenant)
                elif not {fact["content"] for fact in answer.json()["facts"]} <= known[tenant, user]:
                    history.violation("another's fact in a prompt", tenant=tenant, user=user)
            await asyncio.sleep(0.3)

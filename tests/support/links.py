"""TCP links between parts, to be cut, slowed down or made deaf, and to see the moment in which a word passes.

    with running_links() as links:
        link = links.make("store", port_of_memory_store)     # clients connect to link.port
        link.cut()

A link with several targets spreads connections over those that answer, as a load balancer does.
"""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, Self, cast, get_args

from tests.support.ports import free_port

# open: as it should be. refusing: nobody listens. stalled: nothing moves. deaf: questions pass, answers are lost.
State = Literal["open", "refusing", "stalled", "deaf"]

When = Literal["asking", "asked", "answered"]


@dataclass(frozen=True)
class Trap:
    """Springs once: when `word` comes from the client, and then it is lost (asking); as soon as it was handed on (asked); or when its
    answer is about to be handed back (answered)."""

    word: bytes
    when: When
    act: Callable[[], None]

    @classmethod
    def at(cls, moment: str, act: Callable[[], None]) -> Self:
        """A moment is written `StageChats answered`."""
        word, when = moment.split()
        if when not in get_args(When):
            raise ValueError(moment)
        return cls(word.encode(), cast(When, when), act)


class Link:
    """Made by `Links`. All methods may be called from any thread."""

    def __init__(self, name: str, targets: tuple[int, ...], loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.port = free_port()
        self.targets = targets
        self._loop = loop
        self._state: State = "open"
        self._delay_s = 0.0
        self._moves = asyncio.Event()
        self._moves.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._traps: list[Trap] = []
        self._server: asyncio.Server | None = None
        self._listening: asyncio.Future[None] | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=256)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._moves.set()
        self._abort_all()

    def cut(self) -> None:
        """Ends every connection."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def become(self, state: State, *, delay_s: float = 0.0) -> None:
        """Opened again after it was deaf, old connections are ended: bytes are missing from them."""

        def change() -> None:
            if self._state == "deaf":
                self._abort_all()
            if state == "refusing":
                self.close()
            elif self._state == "refusing":
                self._listening = asyncio.ensure_future(self.listen())
            self._state, self._delay_s = state, delay_s
            if state == "stalled":
                self._moves.clear()
            else:
                self._moves.set()

        self._loop.call_soon_threadsafe(change)

    def once(self, trap: Trap) -> None:
        self._loop.call_soon_threadsafe(self._traps.append, trap)

    def disarm(self, trap: Trap) -> None:
        def remove() -> None:
            with suppress(ValueError):
                self._traps.remove(trap)

        self._loop.call_soon_threadsafe(remove)

    def _abort_all(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._counted(writer):
            if (server := await self._connect()) is None:
                return
            back, forth = server
            with self._counted(forth):
                due: list[Trap] = []
                pumps = [
                    asyncio.create_task(self._ask(reader, forth, due)),
                    asyncio.create_task(self._answer(back, writer, due)),
                ]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    @contextmanager
    def _counted(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._open.add(writer)
        try:
            yield
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for target in random.sample(self.targets, len(self.targets)):
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(2.0):
                    return await asyncio.open_connection("127.0.0.1", target)
        return None

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, due: list[Trap]) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._hold()
                sprung = [trap for trap in self._traps if trap.word in data]
                for trap in sprung:
                    self._traps.remove(trap)
                    if trap.when == "asking":
                        trap.act()
                        return
                writer.write(data)
                await writer.drain()
                for trap in sprung:
                    if trap.when == "asked":
                        trap.act()
                    elif trap.when == "answered":
                        due.append(trap)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, due: list[Trap]) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                while due:
                    due.pop().act()
                await self._hold()
                if self._state != "deaf":
                    writer.write(data)
                    await writer.drain()

    async def _hold(self) -> None:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        await self._moves.wait()


class Links:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._made: list[Link] = []

    def make(self, name: str, *targets: int) -> Link:
        """A link that listens on a port of its own. A target need not be there yet."""
        link = Link(name, targets, self._loop)
        asyncio.run_coroutine_threadsafe(link.listen(), self._loop).result(10)
        self._made.append(link)
        return link

    def close(self) -> None:
        for link in self._made:
            self._loop.call_soon_threadsafe(link.close)


@contextmanager
def running_links() -> Iterator[Links]:
    """Links work in a thread of their own, whatever their user waits for."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="links")
    thread.start()
    links = Links(loop)
    try:
        yield links
    finally:
        links.close()
        asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _end_tasks() -> None:
    """Those of connections end by themselves, now that they are closed."""
    if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(tasks, timeout=5)

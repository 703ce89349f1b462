"""When the stager must wait: memory-store away for longer than the poll limit (D11), most records bad (D15)."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from uuid import uuid4

import httpx
from aiokafka.admin import AIOKafkaAdminClient

from deploy import dead_letters
from deploy.dead_letters import Found
from tests.acceptance.test_delivery import Delivery, chat
from tests.conftest import SystemFactory
from tests.support.system import System
from tests.support.waiting import until

MAX_POLL_MS = 4000
AWAY_S = 3 * MAX_POLL_MS / 1000


class Group:
    """The consumer group as the broker knows it."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._name = system.services["extraction"].settings["KEEPSAKE_GROUP_ID"]

    def members(self) -> tuple[str, list[str]]:
        """The group's state and its members' ids."""

        async def ask(admin: AIOKafkaAdminClient) -> Any:
            [reply] = await admin.describe_consumer_groups([self._name])
            [group] = reply.to_object()["groups"]
            return group["state"], sorted(member["member_id"] for member in group["members"])

        found: tuple[str, list[str]] = self._asked(ask)
        return found

    def committed(self) -> int:
        """Records whose offsets are committed, over all partitions."""

        async def ask(admin: AIOKafkaAdminClient) -> Any:
            offsets = await admin.list_consumer_group_offsets(self._name)
            return sum(max(0, found.offset) for found in offsets.values())

        total: int = self._asked(ask)
        return total

    def _asked(self, ask: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            admin = AIOKafkaAdminClient(**self._system.kafka_settings.kafka_client())
            await admin.start()
            try:
                return await ask(admin)
            finally:
                await admin.close()

        return asyncio.run(run())


@contextmanager
def hanging_up(port: int) -> Iterator[list[float]]:
    """Takes each connection to a port and ends it; the times of all connections."""
    times: list[float] = []
    with socket.create_server(("127.0.0.1", port)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    times.append(time.monotonic())
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield times
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_d11_memory_store_away_for_longer_than_the_poll_limit(system: SystemFactory) -> None:
    started = system(max_poll_interval_ms=MAX_POLL_MS, min_chats=1000, roles="stager", stage_batch=50)
    started.start("memory_store", "extraction")
    group = Group(started)
    with closing(Delivery(started)) as delivery:
        delivery.publish(chat("first", "dana"))
        delivery.has_pending("dana", 1)
        until(lambda: group.committed() == 1)
        before = group.members()
        assert before[0] == "Stable"
        assert len(before[1]) == 1
        started.stop("memory_store")
        port = started.wiring.ports["memory_store"]
        with hanging_up(port) as connections, started.client("extraction") as extraction:
            delivery.publish(*(chat(f"e{n:03}", "dana", f"chat {n}") for n in range(300)))
            until(lambda: len(connections) >= 1)
            ends = time.monotonic() + AWAY_S
            while time.monotonic() < ends:
                assert extraction.get("/healthz").status_code == httpx.codes.OK
                time.sleep(0.2)
            # In growing pauses; one that spins makes thousands.
            assert 3 <= len(connections) <= 40
            assert group.committed() == 1
            assert group.members() == before
        started.start("memory_store")
        until(lambda: bool(delivery.pending("dana")["pending"] == 301), 60)
        until(lambda: group.committed() == 301)
        assert group.members() == before
        assert delivery.counted('keepsake_stager_records_total{outcome="staged"}') == 301
        assert delivery.counted('keepsake_stager_records_total{outcome="duplicate"}') == 0
        assert delivery.counted("keepsake_dead_letters_total") == 0


def buried(system: System) -> list[Found]:
    return asyncio.run(dead_letters.read(system.kafka_settings))


def test_d15_most_records_bad_and_the_consumer_pauses(system: SystemFactory) -> None:
    started = system(min_chats=1000, roles="stager", stage_batch=20, dead_letter_max_ratio=0.5)
    started.start("memory_store", "extraction")
    group = Group(started)

    def bad(count: int) -> list[bytes]:
        return [b'{"type":' + str(uuid4()).encode() for _ in range(count)]

    with closing(Delivery(started)) as delivery, started.client("extraction") as extraction:

        def readiness() -> tuple[int, str]:
            answer = extraction.get("/readyz")
            return answer.status_code, answer.text

        # Exactly half of the last 200 is not too much.
        delivery.publish(*(chat(f"a{n}", "dana", f"chat {n}") for n in range(100)), *bad(100))
        until(lambda: group.committed() == 200)
        assert readiness()[0] == httpx.codes.OK
        assert len(buried(started)) == 100
        # One more is.
        delivery.publish(*bad(15), *(chat(f"b{n}", "dana", f"later {n}") for n in range(5)), *bad(300))
        until(lambda: readiness()[0] == httpx.codes.SERVICE_UNAVAILABLE)
        assert "dead_letter_ratio" in readiness()[1]
        assert "dead_letter_ratio" in started.log("extraction")
        stands = group.committed()
        assert stands == 200
        delivery.publish(chat("last", "dana", "the last one"))
        assert group.members()[0] == "Stable"
        ends = time.monotonic() + 3
        while time.monotonic() < ends:
            assert extraction.get("/healthz").status_code == httpx.codes.OK
            assert readiness()[0] == httpx.codes.SERVICE_UNAVAILABLE
            time.sleep(0.2)
        assert group.committed() == stands
        assert len(buried(started)) == 100
        started.stop("extraction")
        started.start("extraction", dead_letter_max_ratio=1)
        until(lambda: bool(delivery.pending("dana")["pending"] == 106), 60)
        until(lambda: group.committed() == 200 + 15 + 5 + 300 + 1)
        until(lambda: len(buried(started)) == 415)
        assert len({found.letter.offset for found in buried(started)}) == 415
        assert readiness()[0] == httpx.codes.OK

"""What every broker here can do, whichever it is and however it runs."""

import socket
import struct
from typing import Protocol

from deploy.local.processes import Server

_API_VERSIONS_KEY = 18
_REQUEST = struct.pack(">hhih", _API_VERSIONS_KEY, 0, 1, -1)


class Broker(Protocol):
    """A real broker on 127.0.0.1. Where `keeps_topics` is true, they survive a stop and a kill."""

    name: str
    port: int
    keeps_topics: bool

    @property
    def bootstrap(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> object: ...
    def kill(self) -> None: ...


class BrokerProcess(Server):
    """A broker that runs as a child process."""

    keeps_topics: bool

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _ready(self) -> bool:
        return answers(self.port)


def answers(port: int) -> bool:
    """Whether a broker answers the one question each of them answers first: which API versions it has."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            head = connection.recv(10)
    except OSError:
        return False
    return len(head) == 10 and struct.unpack(">iih", head)[2] == 0

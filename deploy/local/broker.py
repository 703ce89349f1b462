"""What every local broker can do."""

import socket
import struct

from deploy.local.processes import Server

_API_VERSIONS_KEY = 18
_REQUEST = struct.pack(">hhih", _API_VERSIONS_KEY, 0, 1, -1)


class Broker(Server):
    """A real broker on 127.0.0.1. Where `keeps_topics` is true, they survive a stop and a kill."""

    keeps_topics: bool

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _ready(self) -> bool:
        """Whether it answers the one question every broker answers first: which API versions it has."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
                head = connection.recv(10)
        except OSError:
            return False
        return len(head) == 10 and struct.unpack(">iih", head)[2] == 0

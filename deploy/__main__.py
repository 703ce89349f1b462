"""`python -m deploy COMMAND`: what an operator runs."""

import argparse
import asyncio
import importlib
import logging
import sys
from collections.abc import Sequence

from deploy import dead_letters, topics
from deploy.errors import DeployError
from deploy.migrate import migrate, set_app_password
from deploy.settings import DatabaseSettings
from shared.kafka import KafkaSettings
from shared.settings import describe, load

# Commands that are modules of their own, imported only when they are asked for.
_PROGRAMS = {
    "models": "list and fetch rankers",
    "contracts": "write the published contracts, or check that they are current",
}


def main(argv: Sequence[str]) -> int:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # its errors reach the person as one line of ours
    if argv and argv[0] in _PROGRAMS:
        return int(importlib.import_module(f"deploy.{argv[0]}").main(argv[1:]))
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except DeployError as error:
        print(f"keepsake: {error}", file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, summary: str, settings: str = "") -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=summary,
            description=f"{summary}\n\nSettings are environment variables:\n\n{settings}" if settings else summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(command=run)
        return added

    command("migrate", _migrate, "bring the database to the newest schema", describe(DatabaseSettings))
    command("topics", _topics, "make Kafka's topics, and check those that are there", describe(KafkaSettings))
    dead_letters.add_arguments(
        command("dead-letters", _dead_letters, "look at records that could not be staged, and replay them")
    )
    for name, summary in _PROGRAMS.items():
        commands.add_parser(name, help=summary)
    return parser


def _migrate(_: argparse.Namespace) -> int:
    settings = load(DatabaseSettings, "deploy migrate", [])
    owner_url = settings.migration_database_url.get_secret_value()
    applied = migrate(owner_url)
    print("\n".join(f"applied {name}" for name in applied) if applied else "the schema is current")
    if settings.database_url and asyncio.run(set_app_password(owner_url, settings.database_url.get_secret_value())):
        print("the password of keepsake_app is that of KEEPSAKE_DATABASE_URL")
    return 0


def _topics(_: argparse.Namespace) -> int:
    print("\n".join(asyncio.run(topics.ensure(load(KafkaSettings, "deploy topics", [])))))
    return 0


def _dead_letters(arguments: argparse.Namespace) -> int:
    settings = load(KafkaSettings, "deploy dead-letters", [])
    return asyncio.run(dead_letters.run(settings, arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

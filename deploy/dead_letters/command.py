"""The command line: what is asked for, and how it is answered."""

import argparse
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from aiokafka.errors import KafkaError

from deploy.dead_letters import showing
from deploy.dead_letters.choosing import Wanted, add_filters, page_size, place, wanted
from deploy.dead_letters.replaying import replay
from deploy.dead_letters.topic import Found, fetch, scan
from deploy.errors import DeployError
from shared.kafka import KafkaSettings

Say = Callable[[str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True)
    listing = commands.add_parser("list", help="one line each, without the text of the record")
    add_filters(listing)
    listing.add_argument("--limit", type=page_size, default=50, help="so many at most (50)")
    listing.add_argument(
        "--after", type=place, metavar="PARTITION:OFFSET", help="the next page, as the last one names it"
    )
    show = commands.add_parser("show", help="the record as far as it can be decoded, by shape and ids")
    show.add_argument("ids", nargs="+", type=place, metavar="PARTITION:OFFSET")
    show.add_argument("--text", action="store_true", help="also the record itself: it may hold what a person said")
    again = commands.add_parser("replay", help="publish again, at the place it had; safe to repeat")
    again.add_argument("ids", nargs="*", type=place, default=[], metavar="PARTITION:OFFSET")
    again.add_argument("--all", action="store_true", help="all there are")
    add_filters(again)
    for command in (listing, show, again):
        command.add_argument("--json", action="store_true", help="one JSON object, for programs")


async def run(settings: KafkaSettings, arguments: argparse.Namespace, say: Say = print) -> int:
    """Carries out one command; answers its exit code: 1 where a letter could not be replayed. Raises DeployError."""
    try:
        if arguments.action == "list":
            await _list(settings, arguments, say)
        elif arguments.action == "show":
            await _show(settings, arguments, say)
        else:
            return await _replay(settings, arguments, say)
    except KafkaError as error:
        where = ",".join(settings.kafka_bootstrap_servers)
        raise DeployError(f"Kafka at {where} refused or is away: {type(error).__name__}") from None
    return 0


async def _list(settings: KafkaSettings, arguments: argparse.Namespace, say: Say) -> None:
    """By partition and offset; a page ends at its limit, with the place where the next one begins."""
    page: list[Found] = []
    more = False
    async with aclosing(_matching(scan(settings, after=arguments.after), wanted(arguments))) as letters:
        async for found in letters:
            if more := len(page) == arguments.limit:
                break
            page.append(found)
    after = page[-1].id if more else None
    if arguments.json:
        say(json.dumps({"items": [showing.item(found) for found in page], "next": after}))
        return
    for found in page:
        say(showing.line(found))
    say(f"{len(page)} dead letters" + (f"; more: --after {after}" if after else ""))


async def _show(settings: KafkaSettings, arguments: argparse.Namespace, say: Say) -> None:
    letters = await fetch(settings, arguments.ids)
    if arguments.json:
        items = [
            showing.item(found) | showing.record(found) | ({"text": showing.said(found)} if arguments.text else {})
            for found in letters
        ]
        say(json.dumps({"items": items}))
        return
    for found in letters:
        for line in showing.page(found, text=arguments.text):
            say(line)


async def _replay(settings: KafkaSettings, arguments: argparse.Namespace, say: Say) -> int:
    which = wanted(arguments)
    if sum((bool(arguments.ids), arguments.all, not which.is_everything)) != 1:
        raise DeployError("replay: say which, by PARTITION:OFFSET, by filters such as --reason, or --all", exit_code=2)
    letters = _each(await fetch(settings, arguments.ids)) if arguments.ids else _matching(scan(settings), which)
    items = []
    refused = 0
    async with aclosing(letters), aclosing(replay(settings, letters)) as replayed:
        async for done in replayed:
            refused += done.refused is not None
            if arguments.json:
                items.append({"id": done.id, "replayed": done.refused is None, "why": done.refused})
            else:
                say(done.line)
    if arguments.json:
        say(json.dumps({"items": items}))
    return 1 if refused else 0


async def _matching(letters: AsyncGenerator[Found, None], which: Wanted) -> AsyncGenerator[Found, None]:
    async with aclosing(letters):
        async for found in letters:
            if found in which:
                yield found


async def _each(letters: Iterable[Found]) -> AsyncGenerator[Found, None]:
    for found in letters:
        yield found

"""Which dead letters a command is about."""

import argparse
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import get_args

from deploy.dead_letters.topic import Found, Place
from shared.events import DeadReason

_AGO = re.compile(r"([0-9]{1,4})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Wanted:
    """All of what is not None must hold. Partition and offsets are the record's own, in chat.events; times are the dead letter's."""

    reason: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __contains__(self, found: Found) -> bool:
        letter = found.letter
        return (
            (self.reason is None or letter.reason == self.reason)
            and (self.partition is None or letter.partition == self.partition)
            and (self.offsets is None or self.offsets[0] <= letter.offset <= self.offsets[1])
            and (self.since is None or found.at >= self.since)
            and (self.until is None or found.at < self.until)
        )

    @property
    def is_everything(self) -> bool:
        return self == Wanted()


def add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", choices=get_args(DeadReason), help="why it could not be staged")
    parser.add_argument("--partition", type=int, help="the record's partition in chat.events")
    parser.add_argument("--offset", type=offsets, metavar="N[-M]", help="the record's offset there, or a range")
    parser.add_argument(
        "--since", type=moment, metavar="TIME", help="dead-lettered since: 30m, 2h, 3d ago, or RFC 3339"
    )
    parser.add_argument("--until", type=moment, metavar="TIME", help="dead-lettered before")


def wanted(arguments: argparse.Namespace) -> Wanted:
    return Wanted(arguments.reason, arguments.partition, arguments.offset, arguments.since, arguments.until)


def place(text: str) -> Place:
    """PARTITION:OFFSET of the dead letter itself, as `list` shows it."""
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal() and len(partition) < 10 and len(offset) < 19):
        raise argparse.ArgumentTypeError("a dead letter is named as in the list: PARTITION:OFFSET")
    return int(partition), int(offset)


def offsets(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)):
        raise argparse.ArgumentTypeError("an offset is a number, a range two: 100-200")
    return int(first), int(last or first)


def moment(text: str) -> datetime:
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = datetime.max
    if at.tzinfo is None:
        raise argparse.ArgumentTypeError("a time is 30m, 2h or 3d ago, or RFC 3339 with an offset")
    return at


def page_size(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError("a page has 1 to 1000")
    return int(text)

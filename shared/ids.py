"""Identifiers: what they may hold, who counts as anonymous, how they make a Kafka key.

Ids (tenant, user, workspace, thread, event_id) are opaque: 1–200 code points, compared byte for byte, never trimmed or folded.
"""

import re
from collections.abc import Collection
from typing import Annotated
from urllib.parse import quote

from pydantic import Field, WithJsonSchema

MAX_ID_LENGTH = 200
DEFAULT_TENANT = "default"
DEFAULT_WORKSPACE = "default"
STAND_INS = ("null", "undefined", "none", "nan", "anonymous", "guest", "[object object]")

# Control, surrogate and private-use code points (Cc, Cs, Co): invisible or without agreed meaning, so two ids could look the same.
_REFUSED_CHARACTERS = "\x00-\x1f\x7f-\x9f\ud800-\udfff\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_REFUSED = re.compile(f"[{_REFUSED_CHARACTERS}]")
# The same for pydantic's own matcher, where a str never holds a surrogate: a call of Python for each id of each record costs more.
_PATTERN = f"^[^{_REFUSED_CHARACTERS.replace(chr(0xD800) + '-' + chr(0xDFFF), '')}]*$"
_PLAIN = re.compile(r"[A-Za-z0-9\-._~]*")


def check_id(value: str) -> str:
    """Raises ValueError where `value` is no id."""
    if not 1 <= len(value) <= MAX_ID_LENGTH:
        raise ValueError("an id has 1 to 200 characters")
    if not (value.isascii() and value.isprintable()) and _REFUSED.search(value):
        raise ValueError("an id holds no control, surrogate or private code points")
    return value


Id = Annotated[
    str,
    Field(min_length=1, max_length=MAX_ID_LENGTH, pattern=_PATTERN),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}),
]
IdOrEmpty = Annotated[
    str,
    Field(max_length=MAX_ID_LENGTH, pattern=_PATTERN),
    WithJsonSchema({"type": "string", "maxLength": MAX_ID_LENGTH}),
]


def is_anonymous(user: str | None, stand_ins: Collection[str] = STAND_INS) -> bool:
    """True for what applications send when nobody is signed in: null, "" and the `stand_ins` (lower case), in any case."""
    return user is None or user.strip() == "" or user.strip().casefold() in stand_ins


def partition_key(tenant: str, user: str | None, workspace: str) -> bytes:
    """`tenant/user/workspace`, each percent-encoded but for `A–Z a–z 0–9 - . _ ~`; an anonymous user is empty."""
    return f"{_quoted(tenant)}/{_quoted(user or '')}/{_quoted(workspace)}".encode()


def _quoted(part: str) -> str:
    # Most ids need no quoting, and to see that costs a third of it.
    return part if _PLAIN.fullmatch(part) else quote(part, safe="")


def change_key(tenant: str, user: str) -> bytes:
    """The key of `memory.changes`: `tenant/user`."""
    return f"{_quoted(tenant)}/{_quoted(user)}".encode()

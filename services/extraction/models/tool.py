"""What a phase asks of a model: the tool's name, its schema, and the list it must fill."""

from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["observer", "reflector"]


@dataclass(frozen=True, slots=True)
class Tool:
    """`key` holds the list in the arguments; an item is told by having one of `marks`."""

    phase: Phase
    name: str
    description: str
    schema: dict[str, Any]
    key: str
    marks: frozenset[str]

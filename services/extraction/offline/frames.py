"""The frames: what kinds of facts there are. Which clauses say them, and how each is worded about the user, stands in frames.txt.

To teach another kind, add a `Frame` here, its patterns in frames.txt and a row to tests/unit/offline/test_frames.py.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from services.extraction.offline import words as w
from shared.rpc.messages import Category, Scope

# What may follow a value without changing it; an open phrase ends less easily, for "abstract and modern art" is one thing.
_CLAUSE = "but|so|because|since|which|while|although|'cause"
TAIL = rf"(?: (?:{w.LISTS['adverbs']}))*(?:(?:,? (?:and|where|{_CLAUSE})\b|,|\().*)?"
_OPEN_TAIL = (
    rf"(?: (?:{w.LISTS['adverbs']}))*(?:(?:,? (?:{_CLAUSE})\b|(?:,|,? and) "
    r"(?:I|my|it|it's|they|we|this|that|he|she|you|plus|especially|have|am|would|will|can)\b|\().*|, [A-Z]\w+)?"
)
_PHRASE = r"[\w'+#&/.-]+(?: [\w'+#&/.-]+){0,5}?"
_KINDS = w.LISTS | {
    "now": r"(?:(?:also|now|currently|still|actually|already|just|recently|finally|always|really|usually|mostly|mainly) )*",
    "phrase": _PHRASE,
    "capital": w.CAPITAL,
    "name": w.NAME,
    "place": w.PLACE,
    "org": w.ORG,
    "role": w.ROLE,
    "role in place": rf"{w.ROLE}(?: in {w.PLACE})?",
    "languages": w.LANGUAGES,
    "foods": w.FOODS,
    "tool": w.TOOL,
    "kind of diet": f"{w.LISTS['diet']}|keto|ketogenic|paleo|plant-based|low-carb|gluten-free|Mediterranean|dairy-free",
    "words": r"[\w'-]+(?: [\w'-]+){0,3}?",
    "years": r"(?:(?:over|more than|about|around|almost|nearly) )?(?:\d{1,2}|[a-z]+) years",
    "zone": r"[A-Z][\w/+:-]+(?: [A-Z]\w+)?",
    "habit": rf"(?:{w.LISTS['habits']})(?: [\w'-]+){{1,7}}?",
    "long": r"(?: for (?:(?:over|about|almost|nearly|more than) )?(?:\d{1,2}|[a-z]+) (?:years?|months?|weeks?)(?: now)?)?",
    "work": rf"(?:my|an?|the) (?:[\w-]+ ){{0,3}}?(?:{w.LISTS['things']})(?: (?:on|about|for|in|called) {_PHRASE})?",
    "level": "an expert (?:in|on|at)|(?:proficient|experienced|skilled) (?:in|with|at)|new to|a beginner (?:in|at|with)",
    "degree": r"(?:PhD|Ph\.D\.|master's|master's degree|bachelor's|bachelor's degree|degree|background)",
    "business": rf"(?:my own|an?) (?:[\w-]+ ){{0,3}}?(?:{w.LISTS['businesses']})",
    "pet": r"an? (?:[a-z]+ )?(?:dog|cat|puppy|kitten|parrot|rabbit|horse|hamster)",
}


def _anything(_: str) -> bool:
    return True


@dataclass(frozen=True)
class Frame:
    """Of a `single` frame one value holds, another takes its place; where patterns have a slot, one per slot.

    `dated` frames keep the date a clause states; of the others a clause with a date tells of one occasion, and is no fact.
    """

    name: str
    category: Category
    scope: Scope = "workspace"
    single: bool = False
    sensitive: bool = False
    dated: bool = False
    accept: Callable[[str], bool] = _anything


FRAMES: tuple[Frame, ...] = (
    Frame("name", "identity", scope="global", single=True, accept=w.is_name),
    Frame("role", "identity", scope="global", dated=True, accept=w.is_role),
    Frame("employer", "work", single=True, dated=True),
    Frame("home", "identity", scope="global", single=True, dated=True, accept=w.is_place),
    Frame("origin", "identity"),
    Frame("languages", "skill", scope="global"),
    Frame("diet", "constraint", scope="global", single=True, dated=True),
    Frame("does not eat", "constraint", scope="global"),
    Frame("allergy", "constraint", sensitive=True, accept=w.is_plain),
    Frame("health", "constraint", sensitive=True, dated=True, accept=lambda value: w.is_thing(value, 5)),
    Frame("belief", "other", sensitive=True),
    Frame("time zone", "constraint", scope="global", single=True),
    Frame("limits", "constraint"),
    Frame(
        "experience",
        "skill",
        accept=lambda value: w.is_thing(re.split(r" (?:in|on|at|with|to|as|using) ", value)[-1], 6),
    ),
    Frame("learning", "skill", dated=True, accept=lambda value: w.is_plain(re.sub(r"^(?:how )?to ", "", value), 5)),
    Frame("project", "work", dated=True, accept=lambda value: w.is_thing(value, 10)),
    Frame("business", "work", dated=True),
    Frame("goal", "work", accept=lambda value: w.is_thing(value.removeprefix("to "), 12)),
    Frame("volunteering", "other", dated=True, accept=lambda value: w.is_thing(value, 8)),
    Frame("class", "skill", accept=lambda value: w.is_thing(value, 4)),
    Frame("plays", "skill", dated=True),
    Frame("passion", "preference", accept=lambda value: w.is_plain(value, 6)),
    Frame("uses", "preference", dated=True, accept=lambda value: w.is_plain(value, 9)),
    Frame(
        "preference",
        "preference",
        accept=lambda value: w.is_thing(re.split(r" (?:over|to|rather|instead) ", value.removeprefix("to "))[0], 8),
    ),
    Frame("favorite", "preference", single=True, accept=lambda value: w.is_thing(value, 5)),
    Frame("taste", "preference", single=True),
    Frame("habit", "preference", accept=lambda value: w.is_plain(value, 9)),
    Frame("pet", "other", dated=True),
)


def _said() -> dict[str, list[tuple[str, str]]]:
    """The patterns and wordings of frames.txt by frame."""
    text = (Path(__file__).parent / "frames.txt").read_text(encoding="utf-8")
    said: dict[str, list[tuple[str, str]]] = {}
    for line in filter(None, text.splitlines()):
        if line.startswith(" "):
            clause, _, wording = line.strip().rpartition("  ->  ")
            said[next(reversed(said))].append((clause, wording))
        elif not line.startswith("#"):
            said[line] = []
    return said


SAID = _said()


def pattern(said: str) -> re.Pattern[str]:
    """A pattern of the table, its kinds filled in, for a whole clause."""
    named = re.sub(r"<([vk]):([a-z ]+)>", lambda found: f"(?P<{found[1]}>{_KINDS[found[2]]})", said)
    tail = _OPEN_TAIL if re.search("[<:](?:phrase|habit|work)>", said) else TAIL
    return re.compile(re.sub(r"(?<!\?P)<([a-z ]+)>", lambda found: f"(?:{_KINDS[found[1]]})", named) + tail)

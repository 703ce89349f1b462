"""Reading clauses and facts in terms of the table of frames.

Known facts are read with the same patterns, turned back into the first person, so that a wording of a model or a person is understood too.
"""

import re
from dataclasses import dataclass

from services.extraction.offline import words as w
from services.extraction.offline.frames import FRAMES, SAID, TAIL, Frame, pattern


@dataclass(frozen=True)
class Reading:
    """One statement. `value` is what is compared; of an ended one it is what no longer holds, "" for any."""

    frame: Frame
    slot: str
    value: str
    content: str
    ended: bool = False


# "Hi, I'm Dana" gives a name, "I'm Canadian" does not.
_GREETED_AS = re.compile(rf"^I am (?!{w.NOT_A_NAME})(?={w.NAME}(?: from .*)?{TAIL}$)")
_COMPILED = tuple((frame, tuple((pattern(said), wording) for said, wording in SAID[frame.name])) for frame in FRAMES)
_BY_NAME = {frame.name: frame for frame in FRAMES}
_LEFT = pattern(
    r"I (?:have )?<now>(?:left|quit|resigned from|(?:was|got|have been) (?:laid off|fired) (?:from|by)|moved (?:out of|away from)) "
    r"(?:my (?:old )?(?:job|position|role) (?:at|with) )?<v:org>"
)
_LOST = pattern(r"I (?:have )?<now>lost my (?:job|position) (?:at|with) <v:org>")
_JOBLESS = pattern(r"I (?:have )?<now>(?:left|quit|lost) (?:my job|my employer)")
_NO_LONGER = (
    (re.compile(r"I am no longer (?P<rest>.+)"), "I am {rest}"),
    (re.compile(r"I am not (?P<rest>.+?) (?:anymore|any more|any longer)"), "I am {rest}"),
    (re.compile(r"I no longer (?P<rest>.+)"), "I {rest}"),
    (re.compile(r"I do not (?P<rest>.+?) (?:anymore|any more|any longer)"), "I {rest}"),
    (
        re.compile(
            r"I (?:have )?(?:just |recently |finally )?(?:stopped|quit|given up|gave up) (?P<ing>\w+ing) (?P<rest>.+)"
        ),
        "I {base} {rest}",
    ),
)
_LIKES = frozenset({"love", "like", "enjoy", "adore", "fan", "loved", "liked", "enjoyed"})


def read(clause: str, *, greeted: bool = False) -> list[Reading]:
    """What a clause in the first person says; `greeted` where it follows a greeting."""
    if greeted:
        clause = _GREETED_AS.sub("my name is ", clause)
    if left := _LEFT.fullmatch(clause) or _LOST.fullmatch(clause):
        content = f"User left {left['v']}."
        return [Reading(_BY_NAME[name], "", _key(left["v"]), content, ended=True) for name in ("employer", "home")]
    if _JOBLESS.fullmatch(clause):
        return [Reading(_BY_NAME["employer"], "", "", "User left their job.", ended=True)]
    for ending, positive in _NO_LONGER:
        if found := ending.fullmatch(clause):
            stated = positive.format(rest=found["rest"], base=w.base_of(found.groupdict().get("ing", "")))
            return [
                Reading(one.frame, one.slot, one.value, w.no_longer(one.content), ended=True)
                for one in _statements(stated)
            ]
    return _statements(clause)


def read_fact(content: str) -> list[Reading]:
    """What a known fact or a candidate says, however it was worded."""
    return read(w.first_person(content))


def _statements(clause: str) -> list[Reading]:
    readings = []
    for frame, patterns in _COMPILED:
        for said, wording in patterns:
            if found := said.fullmatch(clause):
                reading = _reading(frame, found["v"], found.groupdict().get("k") or "", wording)
                if reading:
                    readings.append(reading)
                    break
    return readings


def _reading(frame: Frame, value: str, slot: str, wording: str) -> Reading | None:
    taste = frame.name == "taste"
    if (slot and not w.is_plain(slot, 4)) or not frame.accept(value):
        return None
    said = w.about_them(value)
    content = wording.format(v=said, k=w.about_them(slot), a=w.article(said), verbs=w.in_third_person(said))
    compared = ("likes" if value in _LIKES else "dislikes") if taste else value
    return Reading(frame, _key(slot), _key(compared), content)


def _key(text: str) -> str:
    return re.sub(r"^(?:the|an?) ", "", " ".join(text.casefold().split()).rstrip("."))

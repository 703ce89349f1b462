"""From candidates to decisions, by comparing what they say with what is known, in terms of the frames."""

import re
from collections.abc import Sequence

from services.extraction.offline.reading import Reading, read, read_fact
from services.extraction.offline.segments import own_clauses
from shared.rpc.messages import Action, Candidate, Decision, FreeSlots, KnownFact, Scope
from shared.text.normal import same_fact_key

# What people name when they ask to forget something, and the frames it means, the most fitting first.
_NAMED = tuple(
    (re.compile(rf"(?:{pattern})\b.*", re.I), frames)
    for pattern, frames in (
        (r"(?:about )?(?:where i work|my (?:employer|company|workplace))", ("employer", "role")),
        (r"(?:about )?(?:my (?:job|role|profession|occupation|career)|what i do)", ("role", "employer")),
        (r"(?:about )?(?:where i live|my (?:home|city|location|hometown))", ("home",)),
        (r"(?:about )?(?:where i(?: am| come)? from|my origin)", ("origin",)),
        (r"(?:about )?(?:my name|what i am called|who i am)", ("name",)),
        (r"(?:about )?(?:my diet|what i eat)", ("diet", "does not eat")),
        (r"(?:about )?(?:my allerg(?:y|ies)|what i am allergic to)", ("allergy",)),
        (r"(?:about )?(?:my (?:health|illness|diagnosis|condition))", ("health",)),
    )
)
_ABOUT = re.compile(
    r"(?:everything |all |anything )?(?:about |that |what i (?:said|told you) about )*(?:my |the )?(?P<what>.+)", re.I
)
_IDLE_WORDS = frozenset(
    [
        "user",
        "users",
        "that",
        "this",
        "with",
        "about",
        "have",
        "from",
        "what",
        "said",
        "told",
        "their",
        "they",
        "when",
        "where",
        "been",
        "does",
    ]
)


Known = tuple[KnownFact, list[Reading]]
Verdict = tuple[Action, str, KnownFact | None]


def reflect(candidates: Sequence[Candidate], facts: Sequence[KnownFact], _free: FreeSlots) -> list[Decision]:
    """One decision per candidate, in their order. Free slots change none of them: what does not fit waits for the person."""
    known = [(fact, read_fact(fact.content)) for fact in facts]
    stated: list[Reading] = []
    decisions = []
    for index, candidate in enumerate(candidates):
        readings = read_fact(candidate.content)
        if any(_covers(old, new) for new in readings for old in stated):
            decisions.append(Decision(candidate=index, action="skip", reason="Said twice."))
        else:
            decisions.append(_decide(index, candidate, readings, known))
        stated += readings
    return decisions


def _decide(index: int, candidate: Candidate, readings: Sequence[Reading], known: Sequence[Known]) -> Decision:
    clauses = [clause for evidence in candidate.evidence for clause in own_clauses(evidence.quote)]
    forget = next((clause for clause in clauses if clause.forget), None)
    if forget:
        action, reason, fact = _forgotten(forget.text, known)
    elif readings and readings[0].ended:
        action, reason, fact = _ended(readings, known)
    else:
        action, reason, fact = _stated(candidate.content, readings, known)
    wide = bool(readings) and readings[0].frame.scope == "global" and not candidate.sensitive
    scope: Scope = fact.scope if fact else "global" if wide else "workspace"
    return Decision(candidate=index, action=action, scope=scope, target=str(fact.id) if fact else None, reason=reason)


def _forgotten(asked: str, known: Sequence[Known]) -> Verdict:
    fact = _meant(asked, known)
    return ("delete", "Asked to forget it.", fact) if fact else ("skip", "Nothing known is meant.", None)


def _ended(readings: Sequence[Reading], known: Sequence[Known]) -> Verdict:
    fact = next((fact for reading in readings for fact in _saying(reading, known)), None)
    return ("retire", "No longer so.", fact) if fact else ("skip", "Nothing known has ended.", None)


def _stated(content: str, readings: Sequence[Reading], known: Sequence[Known]) -> Verdict:
    key = same_fact_key(content)
    for fact in (fact for fact, _ in known if same_fact_key(fact.content) == key):
        return "skip", "Known.", fact
    for reading in readings:
        for fact, old in _comparable(reading, known):
            if _covers(old, reading) or (fact.locked and _covers(reading, old)):
                return "skip", "Known.", fact
            if _covers(reading, old):
                return "update", "Says more than what was known.", fact
            if reading.frame.single:
                return "supersede", "Another took its place.", fact
    return "create", "New.", None


def _comparable(reading: Reading, known: Sequence[Known]) -> list[tuple[KnownFact, Reading]]:
    """Known facts that say something of the same frame and slot."""
    same = (reading.frame.name, reading.slot)
    return [(fact, old) for fact, olds in known for old in olds if (old.frame.name, old.slot) == same and not old.ended]


def _saying(reading: Reading, known: Sequence[Known]) -> list[KnownFact]:
    """Known facts of the reading's value; where it names none ("my job"), of its frame."""
    return [
        fact
        for fact, old in _comparable(reading, known)
        if not reading.value or _alike(old, reading) or _alike(reading, old)
    ]


def _covers(more: Reading, less: Reading) -> bool:
    """Whether one statement says all that the other says."""
    return (more.frame.name, more.slot, more.ended) == (less.frame.name, less.slot, less.ended) and _alike(more, less)


def _alike(more: Reading, less: Reading) -> bool:
    """By words; of a single-valued frame only what begins alike is the same: `Lisbon` and `Lisbon, Portugal`, not `New York` and `York`."""
    many, few = re.findall(r"[\w+#]+", more.value), re.findall(r"[\w+#]+", less.value)
    return many[: len(few)] == few if more.frame.single else set(few) <= set(many)


def _meant(asked: str, known: Sequence[Known]) -> KnownFact | None:
    for pattern, names in _NAMED:
        if pattern.fullmatch(asked):
            return next(
                (fact for name in names for fact, readings in known if any(r.frame.name == name for r in readings)),
                None,
            )
    for reading in read(re.sub(r"^that ", "", asked)):
        if facts := _saying(reading, known):
            return facts[0]
    about = _ABOUT.fullmatch(asked)
    wanted = (
        {word for word in re.findall(r"\w+", about["what"].casefold()) if len(word) > 2} - _IDLE_WORDS
        if about
        else set()
    )
    matching = [fact for fact, _ in known if wanted and wanted <= set(re.findall(r"\w+", fact.content.casefold()))]
    return matching[0] if len(matching) == 1 else None

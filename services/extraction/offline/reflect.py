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
    "user users that this with about have from what said told their they when where been does".split()
)  # noqa: SIM905


def reflect(candidates: Sequence[Candidate], facts: Sequence[KnownFact], free: FreeSlots) -> list[Decision]:
    """One decision per candidate. A full scope changes none of them: what does not fit waits for the person."""
    known = [(fact, read_fact(fact.content)) for fact in facts]
    seen: set[str] = set()
    decisions = []
    for index, candidate in enumerate(candidates):
        key = same_fact_key(candidate.content)
        if key in seen:
            decisions.append(Decision(candidate=index, action="skip", reason="Said twice."))
        else:
            decisions.append(_decide(index, candidate, known))
        seen.add(key)
    return decisions


Known = tuple[KnownFact, list[Reading]]


def _decide(index: int, candidate: Candidate, known: Sequence[Known]) -> Decision:
    def decided(action: Action, reason: str, fact: KnownFact | None = None, scope: Scope = "workspace") -> Decision:
        return Decision(
            candidate=index,
            action=action,
            scope=fact.scope if fact else scope,
            target=str(fact.id) if fact else None,
            reason=reason,
        )

    for clause in (
        clause for evidence in candidate.evidence for clause in own_clauses(evidence.quote) if clause.forget
    ):
        fact = _meant(clause.text, known)
        return decided("delete", "Asked to forget it.", fact) if fact else decided("skip", "Nothing known is meant.")
    key = same_fact_key(candidate.content)
    if same := next((fact for fact, _ in known if same_fact_key(fact.content) == key), None):
        return decided("skip", "Known.", same)
    readings = read_fact(candidate.content)
    if readings and readings[0].ended:
        ended = next((fact for reading in readings for fact in _of_value(reading, known)), None)
        return decided("retire", "No longer so.", ended) if ended else decided("skip", "Nothing known has ended.")
    for reading in readings:
        for fact, old in _same_slot(reading, known):
            if _covers(old.value, reading.value, reading.frame.single):
                return decided("skip", "Known.", fact)
            if _covers(reading.value, old.value, reading.frame.single):
                return decided("skip" if fact.locked else "update", "Says more than what was known.", fact)
            if reading.frame.single:
                return decided("supersede", "Another took its place.", fact)
    wide = bool(readings) and readings[0].frame.scope == "global" and not candidate.sensitive
    return decided("create", "New.", scope="global" if wide else "workspace")


def _same_slot(reading: Reading, known: Sequence[Known]) -> list[tuple[KnownFact, Reading]]:
    return [
        (fact, old)
        for fact, olds in known
        for old in olds
        if (old.frame.name, old.slot) == (reading.frame.name, reading.slot) and not old.ended
    ]


def _of_value(reading: Reading, known: Sequence[Known]) -> list[KnownFact]:
    """Facts of the reading's value; where it names none ("my job"), any of its frame."""
    return [
        fact
        for fact, old in _same_slot(reading, known)
        if not reading.value
        or _covers(old.value, reading.value, reading.frame.single)
        or _covers(reading.value, old.value, reading.frame.single)
    ]


def _covers(more: str, less: str, single: bool) -> bool:
    """Whether `more` says all of `less`: by words; of a name, a place or a company only what begins alike is the same."""
    many, few = re.findall(r"[\w+#]+", more), re.findall(r"[\w+#]+", less)
    return many[: len(few)] == few if single else set(few) <= set(many)


def _meant(asked: str, known: Sequence[Known]) -> KnownFact | None:
    for pattern, names in _NAMED:
        if pattern.fullmatch(asked):
            return next(
                (fact for name in names for fact, readings in known if any(r.frame.name == name for r in readings)),
                None,
            )
    for reading in read(re.sub(r"^that ", "", asked)):
        if facts := _of_value(reading, known):
            return facts[0]
    about = _ABOUT.fullmatch(asked)
    wanted = (
        {word for word in re.findall(r"\w+", about["what"].casefold()) if len(word) > 2} - _IDLE_WORDS
        if about
        else set()
    )
    matching = [fact for fact, _ in known if wanted and wanted <= set(re.findall(r"\w+", fact.content.casefold()))]
    return matching[0] if len(matching) == 1 else None

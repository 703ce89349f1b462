"""The words frames are made of: kinds of values as patterns, and turning a first-person phrase into one about the user."""

import re
from pathlib import Path


def _lists() -> dict[str, str]:
    """The lists of words.txt, each as one alternative of a pattern."""
    text = (Path(__file__).parent / "words.txt").read_text(encoding="utf-8")
    lists = {}
    for entry in re.split(r"\n(?=\S)", re.sub(r"(?m)^#.*\n", "", text).strip()):
        name, _, phrases = entry.partition(":")
        lists[name.strip()] = "|".join(phrase.strip() for phrase in " ".join(phrases.split()).split(","))
    return lists


LISTS = _lists()
_FILLERS = frozenset(LISTS["fillers"].split("|"))
_DETERMINERS = re.compile(
    r"(?:the|a|an|my|some|any|no|every|to|of|for|with|at|in|on|and|or|not|as|by|from|about)\b", re.I
)
_MORE = "practitioner|assistant|engineer|manager|developer|designer|teacher|technician|officer"
ROLE = rf"(?:[A-Za-z][\w'/+-]*\s){{0,4}}?(?:{LISTS['job']})(?:\s(?:{_MORE}))?"
_NOT_ROLES = re.compile(rf"\b(?:{LISTS['not roles']})\b", re.I)
LANGUAGES = rf"(?:{LISTS['language']})(?:(?:, and |, | and )(?:{LISTS['language']}))*"
FOODS = rf"(?:{LISTS['food']})(?:(?:, or |, and |, | or | and )(?:{LISTS['food']}))*"
CAPITAL = r"[^\W\d_a-z][\w'’.&-]*"
NAME = rf"{CAPITAL}(?:\s{CAPITAL}){{0,3}}"
PLACE = (
    rf"(?:the )?{CAPITAL}(?:\s(?:(?:of|de|del|do|da|la|le|upon|am|an der|and)\s)?{CAPITAL}){{0,3}}"
    rf"(?:, {CAPITAL}(?:\s{CAPITAL})?){{0,2}}"
)
ORG = rf"(?:the )?{CAPITAL}(?:\s(?:(?:of|and|for|the|de|&)\s)?{CAPITAL}){{0,4}}"
TOOL = rf"{CAPITAL}(?:\s{CAPITAL}|\s\d[\w.]*){{0,3}}|{LISTS['tools']}"
NOT_A_NAME = rf"(?i:(?:{LISTS['not names']})\b)"


def is_plain(value: str, most: int = 5) -> bool:
    """Whether a phrase stands for itself: no pronoun or filler, no determiner at its start, at most so many words."""
    words = value.lower().replace(",", " ").split()
    return 0 < len(words) <= most and not _FILLERS.intersection(words) and not _DETERMINERS.match(value)


def is_thing(value: str, most: int = 6) -> bool:
    """As `is_plain`, but `the`, `a` or `my` may stand before it."""
    return is_plain(re.sub(r"^(?:the|an?|my) ", "", value, flags=re.I), most)


def is_role(value: str) -> bool:
    return not _NOT_ROLES.search(value)


def is_name(value: str) -> bool:
    return not re.match(NOT_A_NAME, value) and not any(char.isdigit() for char in value)


def is_place(value: str) -> bool:
    """No place is written `TypeScript`, and the names of tools move people too."""
    return not re.search(r"[a-z][A-Z]", value) and not re.fullmatch(LISTS["tools"], value.lower())


_VOWEL = re.compile(r"[aeioAEIO][a-z]|u(?!ni|se|ti|ro)|[AEFHILMNORSX](?=[A-Z])|hour|honest")


def article(phrase: str) -> str:
    """The phrase with its indefinite article; `an` goes by spelling."""
    return f"{'an' if _VOWEL.match(phrase) else 'a'} {phrase}"


_IRREGULAR = {"am": "is", "have": "has", "do": "does", "go": "goes"}
_UNCHANGED = frozenset("can cannot will must should may might did was were had".split())  # noqa: SIM905


def third_person(verb: str) -> str:
    """`works` of `work`."""
    if verb in _UNCHANGED:
        return verb
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if re.search(r"(?:s|x|z|ch|sh|o)$", verb):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y$", verb) else f"{verb}s"


def in_third_person(phrase: str) -> str:
    """`wakes up early` of `wake up early`, `does not like` of `do not like`."""
    verb, space, rest = phrase.partition(" ")
    return f"{third_person(verb)}{space}{rest}"


def about_them(phrase: str) -> str:
    """`my thesis` becomes `their thesis`."""
    phrase = re.sub(r"\bmyself\b", "themself", re.sub(r"\bmine\b", "theirs", phrase))
    return re.sub(r"\bme\b", "them", re.sub(r"\bmy\b", "their", phrase, flags=re.I))


def no_longer(content: str) -> str:
    """`User works at Acme.` becomes `User no longer works at Acme.`"""
    verb = "User is " if content.startswith("User is ") else "User "
    return f"{verb}no longer {content.removeprefix(verb)}"


_BASES = {
    "living": "live",
    "using": "use",
    "writing": "write",
    "driving": "drive",
    "loving": "love",
    "liking": "like",
    "coding": "code",
    "taking": "take",
}


def base_of(gerund: str) -> str:
    return _BASES.get(gerund, gerund[:-3])


def first_person(content: str) -> str:
    """A sentence about the user as the user would say it; other sentences stay."""
    text = re.sub(r"\btheir\b", "my", content.strip().rstrip(".!"))
    if text.startswith(("User's ", "The user's ")):
        return f"my {text.partition(chr(39) + 's ')[2]}"
    found = re.match(
        r"(?:The )?[Uu]ser (?P<adverbs>(?:(?:really|also|always|never|no longer|currently|now|still|usually|strongly) )*)(?P<verb>\w+)",
        text,
    )
    if not found:
        return text
    return f"I {found['adverbs']}{_plain_form(found['verb'])}{text[found.end() :]}".replace(
        "doesn't", "do not"
    ).replace("can't", "cannot")


def _plain_form(verb: str) -> str:
    known = {"is": "am", "has": "have", "does": "do", "goes": "go", "was": "was"}
    if verb in known or not verb.endswith("s"):
        return known.get(verb, verb)
    if verb.endswith("ies"):
        return f"{verb[:-3]}y"
    return verb[:-2] if re.search(r"(?:ss|x|zz|ch|sh)es$", verb) else verb[:-1]


def asked_for(text: str) -> str:
    """`where I work` becomes `where they work`."""
    return about_them(re.sub(r"\bI\b", "they", re.sub(r"\bI am\b", "they are", text)))


_OTHERS = re.compile(r"\b(?:you|your|yours|it|this|that|these|those|he|she|we|our|us|I)\b", re.I)
_PRESENT = re.compile(rf"I (?P<adverb>(?:always|never|only|usually|also) )?(?P<verb>{LISTS['verbs']}) (?P<rest>.+)")


def told(clause: str) -> str:
    """What the user asked to remember of themself, in the third person; "" where that is not plain."""
    if len(clause.split()) > 25:
        return ""
    mine = re.fullmatch(r"my (?P<what>[\w' -]{1,60}?) (?P<verb>is|are) (?P<rest>.+)", clause, re.I)
    found = mine or _PRESENT.fullmatch(clause)
    if not found or _OTHERS.search(found["rest"]):
        return ""
    rest = about_them(found["rest"])
    if mine:
        return f"User's {mine['what']} {mine['verb']} {rest}."
    adverb, verb = found["adverb"] or "", in_third_person(found["verb"])
    return f"User {verb} {adverb}{rest}." if verb == "is" else f"User {adverb}{verb} {rest}."

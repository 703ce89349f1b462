"""Makes an English message speak as facts do: "where is my office" is nearer to "User's office is in Lisbon" as "where is User's office".

Measured over questions in the first person and facts about "User", with 40 off-topic messages, use-multilingual-v3: AUC of on-
against off-topic 0.972 as given, 0.982 with every pronoun rewritten, 0.993 when requests that only happen to hold a pronoun
("I need to sort a list", "tell me a joke") are left as they are; gold facts kept at 5 % false injections 0.795, 0.770, 0.822.
"""

import re

from services.injection.ranking.english import is_english

_FIRST_PERSON = re.compile(r"\b(?:I|my|mine)\b", re.IGNORECASE)
_REQUEST = re.compile(r"\b(?:I need|I want|I(?: would|['’]d) like|how (?:can|do|should|could) I)\b", re.IGNORECASE)
_ME_OF_REQUEST = re.compile(
    r"\b(tell|give|show|help|send|write|teach|remind|ask|let|for|explain to|to) me\b", re.IGNORECASE
)
_REWRITES = (
    (re.compile(r"\bI(?:['’]m| am)\b", re.IGNORECASE), "User is"),
    (re.compile(r"\bI['’]ve\b", re.IGNORECASE), "User has"),
    (re.compile(r"\bI['’]d\b", re.IGNORECASE), "User would"),
    (re.compile(r"\bI['’]ll\b", re.IGNORECASE), "User will"),
    (re.compile(r"\b(?:my|mine)\b", re.IGNORECASE), "User's"),
    (re.compile(r"\b(?:I|me|myself)\b", re.IGNORECASE), "User"),
)


def third_person(text: str) -> str:
    """`text` with "User" for the speaker, or as it is: in another language, without a speaker, or a mere request."""
    if not _FIRST_PERSON.search(text) or _REQUEST.search(text) or not is_english(text):
        return text
    text = _ME_OF_REQUEST.sub(r"\1", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text

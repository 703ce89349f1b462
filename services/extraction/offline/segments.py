"""From a prompt to the clauses in which its writer speaks of themself, each with the words it was read from.

First whole stretches go that are not the writer's own (blanked, so that places stay), then sentences that ask, suppose, report or joke;
the rest is cut into clauses. Of a long prompt only the beginning is read: what follows is mostly pasted.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from services.extraction.observer.own_words import memory_block
from services.extraction.observer.window import HEAD, TAIL
from services.extraction.offline.words import LISTS
from shared.text.normal import MAX_QUOTE

_STRETCHES = (
    memory_block(""),
    re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(?:(?![ \t]*\1)[^\n]*(?:\n|\Z))*+[^\n]*", re.M),
    re.compile(r"`[^`\n]*+`?"),
    re.compile(
        r"^(?:[ \t]*>|(?: {4}|\t)[ \t]*\S|[ \t]*(?:[-*•|]|\d+[.)])[ \t])[^\n]*", re.M
    ),  # quoted, indented, listed
    re.compile(r'"[^"]*+"?|“[^”]*+”?|«[^»]*+»?|„[^“”]*+[“”]?|「[^」]*+」?|『[^』]*+』?'),
    re.compile(r"(?<!\w)['‘][^'‘’\n]++['’](?!\w)"),
)

_ASKED = (
    r"(?:(?:^|[.!?;\n][ \t]*|[,:][ \t]+)(?:(?:ok(?:ay)?|hi|hello|hey|so|now|and|then|also|first|next),?[ \t]+)?(?:please,?[ \t]+)?"
    r"|\b(?:please|(?:can|could|would|will) you|help(?: me)?(?: to)?|(?:want|need|like) you to|let's|let us"
    r"|how (?:do|can|should|would) (?:i|you)"
    r"|i(?: a|')m (?:going|trying) to|i (?:want|need|have|would like) to)[ \t]+(?:please[ \t]+)?)"
)
# From here on the text is not, or not surely, what the writer says of themself.
_TO_THE_END = (
    re.compile(
        r"^[ \t]*(?:dear\b|to whom|subject:|from:|sent:|on [^\n]{5,120} wrote:|-{3,}|={3,}|\*{3,}|#{1,6}[ \t]"
        r"|\[?(?:system|assistant|user|human|ai|inst)\]?[ \t]*:)",
        re.I | re.M,
    ),
    re.compile(rf"{_ASKED}(?:{LISTS['works']})\b", re.I),
    re.compile(
        r"\b(?:you are (?:now )?(?:an?|the|my)|once upon a time|role[- ]?play|in character|my character|the (?:following|below)|lyrics"
        r"|as follows|in this (?:story|scenario|game)|for example|e\.g\.|example sentence)|</?[a-z!|]",
        re.I,
    ),
    re.compile(rf"(?:^|[.!?][ \t])(?![ \t]*(?:{LISTS['labels']})[ \t]*:)[^:\n.!?]*:(?=\s|\Z)", re.I | re.M),
)
_SIGNED = re.compile(
    r"^[ \t]*(?:(?:best|kind|warm)?[ \t]*(?:regards|wishes)|sincerely|yours (?:truly|faithfully))"
    r"|^[ \t]*(?:cheers|thanks),?[ \t]*\n[ \t]*\S",
    re.I | re.M,
)

_END = re.compile(
    r"(?<!\b[A-Z])(?<!\bDr)(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bSt)(?<!\bProf)(?<!\bInc)(?<!\bLtd)(?<!\bCo)(?<!\bvs)[.!?…]+(?=\s|\Z)"
    r"|\n+|[;:](?=\s)|\s[–—-]+\s|—|\Z"
)
_UNSURE = re.compile(
    rf"\b(?:{LISTS['doubts']})\b|\[secret|^\W*(?:when|whenever|while|once|until|as an?|in (?:my|the) \w+)\b", re.I
)
_GREETING = re.compile(r"\b(?:hi|hello|hey|hiya|greetings|good (?:morning|evening|afternoon))\b", re.I)
_LEAD = re.compile(rf"(?:(?:{LISTS['openings']})(?:\s*[,!.–—-]+\s*|\s+))+", re.I)
_POLITE = r"(?:(?:please|also|and|can you|could you|i (?:want|need) you to|do|just|now)[ ,]+)*"
_REMEMBER = re.compile(
    rf"{_POLITE}(?:remember|memori[sz]e|keep in mind|bear in mind|make a note|note|don't forget|do not forget|never forget)"
    r"(?: this| for (?:later|next time|the future))?(?:[,:]| that)?\s+(?=i\b|i'|my\b|call me)",
    re.I,
)
_FORGET = re.compile(rf"{_POLITE}(?:forget|unlearn|stop remembering)(?: about)?\s+", re.I)
_CUT = re.compile(
    r",?\s+(?:and|but|so|plus|because|since)\s+(?=(?:i|my)\b|i'|call me\b)|,\s*(?=(?:i|my)\b|i'|(?:please )?call me\b)",
    re.I,
)
# "I am a nurse, what should I read?" states something before it asks.
_THEN_ASKS = re.compile(
    r",\s+(?:so\s+)?(?:what|how|which|where|who|when|why|can|could|should|would|will|do|does|is|are|any)\b.*\?\Z",
    re.I | re.S,
)
_SHARED_I = re.compile(
    r",?\s+and\s+(?:(?:also|currently|now)\s+)?(?=(?:live|work|am|use|prefer|speak|have|love|hate|like|study)\b)", re.I
)
_SHORT_FORMS = tuple(
    (re.compile(pattern, re.I), full)
    for pattern, full in (
        (r"\bi'm\b|\bim\b(?= )", "I am"),
        (r"\bi've\b", "I have"),
        (r"\b(?:can't|can not)\b", "cannot"),
        (r"\bwon't\b", "will not"),
        (r"n't\b", " not"),
        (r"\bname's\b", "name is"),
        (r"\bi\b", "I"),
    )
)


@dataclass(frozen=True)
class Clause:
    """`text` has short forms written out and begins with its subject; `quote` is the sentence as it stands in the prompt.

    One that `follows` shares the "I" of the clause before it, and counts only if that one was understood.
    """

    text: str
    quote: str
    greeted: bool = False
    follows: bool = False
    remember: bool = False
    forget: bool = False


def own_clauses(prompt: str) -> Iterator[Clause]:
    """The clauses in which the writer speaks as themself, of the first 1,000 characters where the prompt has over 1,500."""
    read = prompt
    if len(prompt) > HEAD + TAIL:
        read = prompt[:HEAD]
        read = read[: max(read.rfind(end) for end in (". ", "! ", "? ", "\n")) + 1]
    own = _own_text(read)
    greeted = False
    for start, end in _sentences(own):
        sentence = own[start:end].replace("’", "'").strip()
        quote = read[start:end].strip()
        if sentence and len(quote) <= MAX_QUOTE:
            yield from _clauses(sentence, quote, greeted=greeted)
        greeted = len(sentence.split()) <= 3 and _GREETING.search(sentence) is not None


def _own_text(prompt: str) -> str:
    text = prompt
    for stretch in _STRETCHES:
        text = stretch.sub(lambda found: " " * len(found[0]), text)
    if _SIGNED.search(text):
        return ""
    return text[: min((found.start() for pattern in _TO_THE_END if (found := pattern.search(text))), default=len(text))]


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for found in _END.finditer(text):
        end = found.end() if found[0][:1] in {".", "!", "?", "…"} else found.start()
        if end > start:
            yield start, end
        start = found.end()


def _clauses(sentence: str, quote: str, *, greeted: bool) -> Iterator[Clause]:
    body = _THEN_ASKS.sub("", sentence).rstrip(".!… ")
    if lead := _LEAD.match(body):
        body = body[lead.end() :]
        greeted = greeted or _GREETING.search(lead[0]) is not None
    forget, remember = _FORGET.match(body), _REMEMBER.match(body)
    if forget:
        yield Clause(written_out(body[forget.end() :].rstrip("? ")), quote, forget=True)
        return
    if _UNSURE.search(body) or (body.endswith("?") and not remember):
        return
    body = body.rstrip("? ")
    for piece in _CUT.split(body[remember.end() :] if remember else body):
        first, *rest = _SHARED_I.split(piece)
        yield Clause(written_out(first), quote, greeted=greeted, remember=remember is not None)
        for more in rest if re.match(r"i\b", first, re.I) else ():
            yield Clause(f"I {written_out(more)}", quote, follows=True, remember=remember is not None)
        greeted = False


def written_out(text: str) -> str:
    """Short forms written out, white space folded, no punctuation at the ends."""
    for pattern, full in _SHORT_FORMS:
        text = pattern.sub(full, text)
    return " ".join(text.split()).strip(" ,.!-")

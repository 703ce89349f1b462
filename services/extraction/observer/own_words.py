"""Which parts of a prompt are not the person's own words: earlier memory blocks, quoted and pasted text, code, texts to work on.

Coarse on purpose: a quote counts as long as it stands once outside these parts. Every rule is linear in the text.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice

from shared.text.normal import find_quote, fold_whitespace

Spans = Iterator[tuple[int, int]]
Rule = Callable[[str], Spans]

_DEFAULT_HEADING = "Things I Remember About You"


@lru_cache(maxsize=256)
def memory_block(heading: str) -> re.Pattern[str]:
    """Blocks as `assemble` writes them, under this heading or the default one: its line, and the bullets right below it."""
    known = {re.escape(fold_whitespace(each.strip("#*_: \t"))) for each in (heading, _DEFAULT_HEADING)} - {""}
    words = "|".join(sorted(known, key=len, reverse=True))
    return re.compile(
        rf"^[ \t>]*+(?:#{{1,6}}[ \t]*+(?:{words})[^\n]*|[*_]{{0,3}}(?:{words})[ \t*_:]*+(?=\n))(?=(?:\n[ \t>]*+)++[-*•])"
        r"(?:\n[ \t>]*+(?:[-*•][^\n]*)?(?=\n|\Z))*+",
        re.MULTILINE | re.IGNORECASE,
    )


def without_memory_blocks(text: str, heading: str) -> str:
    """Leaves out memory blocks that an application sent along, so that what was once injected is not learned anew."""
    return memory_block(heading).sub("[an earlier memory block was left out here]", text)


class Prompt:
    """A prompt that quotes are looked up in. Told apart once; each look then costs a search."""

    def __init__(self, text: str, heading: str) -> None:
        self._folded = fold_whitespace(text)
        self._lowered = fold_whitespace(_lower(text))
        self._foreign = [fold_whitespace(part) for part in _foreign_parts(_lower(text), heading)]

    def has_own(self, quote: str) -> bool:
        """Whether the quote stands in the prompt (see `find_quote`), at least once outside of what is not the person's own."""
        if not find_quote(quote, self._folded):
            return False
        lowered = fold_whitespace(_lower(quote))
        return self._lowered.count(lowered) > sum(part.count(lowered) for part in self._foreign)


def _lower(text: str) -> str:
    """Of the same length: U+0130 alone would become two signs. Patterns that need not look at case are twice as fast."""
    return text.replace("\u0130", "i").lower()


# Parts of one kind that are looked at. With more of them nobody can say what is whose: the rest is taken for foreign.
_MAX_PARTS = 10_000
_MIN_WORDS, _MIN_SIGNS = 3, 10


def _foreign_parts(lowered: str, heading: str) -> Iterator[str]:
    """Parts that do not overlap: each rule looks at what the rules before it have left."""
    for rule in (_matches(memory_block(heading)), *_RULES):
        left, position = [], 0
        for count, (start, end) in enumerate(islice(rule(lowered), _MAX_PARTS), 1):
            if count == _MAX_PARTS:
                end = len(lowered)  # noqa: PLW2901 (to the end)
            part = lowered[start:end]
            if len(part) >= _MIN_SIGNS or len(part.split(None, _MIN_WORDS)) >= _MIN_WORDS:
                yield part
                left.append(lowered[position:start])
                position = end
        lowered = "\n".join([*left, lowered[position:]])


def _matches(pattern: re.Pattern[str]) -> Rule:
    return lambda text: (found.span() for found in pattern.finditer(text))


# A text to work on begins with such a verb at the start of a sentence, or behind "please", "you" or "and", and a colon soon after it.
_TASK = re.compile(
    r"(?:translate|summari[sz]e|proofread|rewrite|rephrase|paraphrase|edit|correct|improve|shorten|analy[sz]e|reply to|respond to"
    r"|write|draft|compose|pretend|imagine)\b"
)
_BEFORE_TASK = re.compile(r"(?:\A|\n[ \t]*|[.!?]\s|\b(?:please|you|and)\s)\Z")
_BEHIND_TASK = re.compile(r"[^:\n]{0,120}+:")
_MAX_TASKS = 10_000


def _text_to_work_on(text: str) -> Spans:
    """From the first such verb to the end."""
    for count, verb in enumerate(_TASK.finditer(text), 1):
        before = text[max(0, verb.start() - 8) : verb.start()] if verb.start() > 8 else "\n" + text[: verb.start()]
        if count > _MAX_TASKS or (_BEFORE_TASK.search(before) and _BEHIND_TASK.match(text, verb.end())):
            yield verb.start(), len(text)
            return


_TO_THE_END = re.MULTILINE | re.DOTALL
_RULES: tuple[Rule, ...] = (
    # code fences, also one that is never closed
    _matches(re.compile(r"^[ \t]*+```[^\n]*\n(?:(?![ \t]*+```)[^\n]*(?:\n|\Z))*+(?:[ \t]*+```[^\n]*)?", re.MULTILINE)),
    # quoted lines
    _matches(re.compile(r"^[ \t]*+>[^\n]*(?:\n[ \t]*+>[^\n]*)*+", re.MULTILINE)),
    # text in quotation marks of three words or more; of ten signs where no spaces are written
    _matches(re.compile(r'(?<!\w)"[^"\n]*+"(?!\w)|“[^”“]*+”|«[^»«]*+»|„[^“”„]*+[“”]|「[^」「]*+」|『[^』『]*+』')),
    # a forwarded message, from its header on
    _matches(
        re.compile(
            r"^[ \t]*+(?:-{2,}[ \t]*(?:original|forwarded) message|from:[^\n]*\n(?:[^\n]*\n){0,3}?subject:|on [^\n]{5,120} wrote:).*",
            _TO_THE_END,
        )
    ),
    # a transcript or a system prompt, from its first line on
    _matches(
        re.compile(
            r"^[ \t]*+(?:<\|im_start\|>|\[?(?:system|assistant)\]?[ \t]*(?:prompt)?[ \t]*:"
            r"|you are (?:an?|the) [^\n]{0,80}\b(?:assistant|bot|ai|agent|model)\b).*",
            _TO_THE_END,
        )
    ),
    _text_to_work_on,
)

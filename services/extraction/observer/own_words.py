"""Which parts of a prompt are not the person's own words: earlier memory blocks, quoted and pasted text, code, texts to work on.

Coarse on purpose: a quote counts as long as it stands once outside these parts. Every rule is linear in the text.
"""

import re
from collections.abc import Iterator

from shared.text.normal import find_quote, fold_whitespace

# The block as `assemble` writes it, whatever heading is set: a Markdown heading and the bullets right below it. Only the default
# heading is known here; another one is told by the application that sends it as a system prompt, where it does not belong to a chat.
MEMORY_BLOCK = re.compile(
    r"^[ \t>]*#{1,6}[ \t]*Things I Remember About You[^\n]*(?:\n[ \t>]*(?:[-*•][^\n]*)?(?=\n|\Z))*",
    re.MULTILINE | re.IGNORECASE,
)
_TO_THE_END = re.MULTILINE | re.IGNORECASE | re.DOTALL
_FOREIGN = (
    MEMORY_BLOCK,
    # code fences, also one that is never closed
    re.compile(r"^[ \t]*```[^\n]*\n(?:(?![ \t]*```)[^\n]*(?:\n|\Z))*+(?:[ \t]*```[^\n]*)?", re.MULTILINE),
    # quoted lines
    re.compile(r"^[ \t]*>[^\n]*(?:\n[ \t]*>[^\n]*)*+", re.MULTILINE),
    # text in quotation marks of three words or more; of ten signs where no spaces are written
    re.compile(r'(?<!\w)"[^"\n]*+"(?!\w)|“[^”“]*+”|«[^»«]*+»|„[^“”„]*+[“”]|「[^」「]*+」|『[^』『]*+』'),
    # a forwarded message, from its header on
    re.compile(
        r"^[ \t]*(?:-{2,}[ \t]*(?:original|forwarded) message|from:[^\n]*\n(?:[^\n]*\n){0,3}?subject:|on [^\n]{5,120} wrote:).*",
        _TO_THE_END,
    ),
    # a transcript or a system prompt, from its first line on
    re.compile(
        r"^[ \t]*(?:<\|im_start\|>|\[?(?:system|assistant)\]?[ \t]*(?:prompt)?[ \t]*:"
        r"|you are (?:an?|the) [^\n]{0,80}\b(?:assistant|bot|ai|agent|model)\b).*",
        _TO_THE_END,
    ),
    # a text to work on, from the colon on; the verb begins a sentence or follows "please", "you" or "and"
    re.compile(
        r"(?=[acdeiprstw])(?:^|(?<=[.!?]\s)|(?<=\bplease\s)|(?<=\byou\s)|(?<=\band\s))(?:translate|summari[sz]e|proofread"
        r"|rewrite|rephrase|paraphrase|edit|correct|improve|shorten|analy[sz]e|reply to|respond to|write|draft|compose"
        r"|pretend|imagine)\b[^:\n]{0,120}:.*",
        _TO_THE_END,
    ),
)
_MIN_WORDS, _MIN_SIGNS = 3, 10


def without_memory_blocks(text: str) -> str:
    """Leaves out memory blocks that an application sent along, so that what was once injected is not learned anew."""
    return (
        MEMORY_BLOCK.sub("[an earlier memory block was left out here]", text)
        if "remember about you" in text.lower()
        else text
    )


class Prompt:
    """A prompt that quotes are looked up in. Told apart once; each look then costs a search."""

    def __init__(self, text: str) -> None:
        self._folded = fold_whitespace(text)
        self._foreign = [fold_whitespace(part) for part in _foreign_parts(text)]

    def has_own(self, quote: str) -> bool:
        """Whether the quote stands in the prompt (see `find_quote`), at least once outside of what is not the person's own."""
        if not find_quote(quote, self._folded):
            return False
        folded = fold_whitespace(quote)
        return self._folded.count(folded) > sum(part.count(folded) for part in self._foreign)


def _foreign_parts(prompt: str) -> Iterator[str]:
    """Parts that do not overlap: each rule looks at what the rules before it have left."""
    for pattern in _FOREIGN:
        left, position = [], 0
        for found in pattern.finditer(prompt):
            if len(found[0].split(None, _MIN_WORDS)) >= _MIN_WORDS or len(found[0]) >= _MIN_SIGNS:
                yield found[0]
                left.append(prompt[position : found.start()])
                position = found.end()
        prompt = "\n".join([*left, prompt[position:]])

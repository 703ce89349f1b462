"""Normal forms of a fact's content and of quotes."""

import re
import unicodedata

MAX_CONTENT = 500
MAX_QUOTE = 300

# No code point decomposes canonically into more than four, so a longer text stays above MAX_CONTENT after NFC.
# Asked before normalising, since CPython sorts long runs of combining marks in quadratic time.
_MAX_RAW = MAX_CONTENT * 4

_EDGES = " \t\r\n\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

# Controls, separators, bidi, tags and what else is drawn as nothing (Default_Ignorable_Code_Point and the category Cf).
# Allowed of those: ZWJ, ZWNJ, the visible Arabic, Syriac and Kaithi signs of Cf, and one variation selector after a base.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
    "|(?:^|[\\s\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef])[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_JOINERS = re.compile("[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_NOTHING_TO_SEE = re.compile("[\\s\u200c\u200d\u2800\ufe00-\ufe0f\U000e0100-\U000e01ef]*")
_END_PUNCTUATION = " .,;:!?\u3002\u3001\uff61\u061f\u06d4\u0964\u0965\u0589\u1362\u104b"


class ContentError(ValueError):
    """A fact's content cannot be kept. `code` is the problem code, `reason` says which rule."""

    code = "invalid"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def clean_content(raw: str) -> str:
    """NFC and trimmed, at most 500 code points on one line.

    Raises ContentError with reason `blank`, `too_long` or `unprintable`. Line breaks and spaces at the ends are trimmed;
    inside, only spaces may stand.
    """
    text = raw.strip(_EDGES)
    if len(text) > _MAX_RAW:
        raise ContentError("too_long")
    text = unicodedata.normalize("NFC", text).strip(_EDGES)
    if _UNSEEN.search(text):
        raise ContentError("unprintable")
    if _NOTHING_TO_SEE.fullmatch(text):
        raise ContentError("blank")
    if len(text) > MAX_CONTENT:
        raise ContentError("too_long")
    return text


def same_fact_key(content: str) -> str:
    """What two wordings of one fact share: NFKC, case folded, spaces collapsed, no end punctuation, no joiners.

    Expects content that passed `clean_content`; two equal keys in one scope are one fact.
    """
    folded = unicodedata.normalize("NFKC", _JOINERS.sub("", content)).casefold()
    spaced = fold_whitespace(unicodedata.normalize("NFKC", folded))
    return spaced.rstrip(_END_PUNCTUATION) or spaced


def fold_whitespace(text: str) -> str:
    """Runs of Unicode white space become one space; none at the ends."""
    return " ".join(text.split())


def find_quote(quote: str, prompt: str) -> bool:
    """Whether the quote, of 1 to 300 characters, stands in the prompt when white space is folded in both."""
    folded = fold_whitespace(quote)
    if not folded or len(folded) > MAX_QUOTE or _NOTHING_TO_SEE.fullmatch(folded):
        return False
    return folded in fold_whitespace(prompt)

"""A plain twin of a text for rules to look at: lookalike letters and digits made ASCII, zero-width characters left out."""

import re
import unicodedata
from bisect import bisect_right
from itertools import accumulate


def _lookalikes() -> dict[int, str]:
    """Full-width, mathematical and circled letters and digits, decimals of every script, and the signs that hold keys together."""
    table: dict[int, str] = {}
    blocks = (
        range(0x00B2, 0x00BA),
        range(0x0660, 0x3300),
        range(0xA620, 0xAC00),
        range(0xFF01, 0xFF5F),
        range(0x104A0, 0x1FC00),
    )
    for block in blocks:
        for code in block:
            char = chr(code)
            plain = unicodedata.normalize("NFKC", char)
            if char.isdecimal():
                table[code] = str(unicodedata.decimal(char))
            elif plain != char and len(plain) == 1 and plain.isascii() and (plain.isalnum() or plain in "-_.:=+/@#"):
                table[code] = plain
    return table | dict.fromkeys((*range(0x2010, 0x2014), 0x2212), "-")


_ASCII = bytes(range(0x80))
_LOOKALIKES = _lookalikes()
_ZERO_WIDTH = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef"
_UNSEEN = re.compile(f"[{_ZERO_WIDTH}]+")
# Exact in the basic plane; above it one range, since each single code point there would cost every character looked at.
_BASIC = "".join(chr(code) for code in _LOOKALIKES if code < 0x10000)
_ODD = re.compile(f"[{_ZERO_WIDTH}{re.escape(_BASIC)}\U000104a0-\U0001f1ff\U0001fbf0-\U0001fbf9]")


class Folded:
    """`plain` has the lookalikes replaced; `origin(i)` is where its i-th character stands in the text. `foreign` has what is not ASCII."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] | None = None
        self.plain = text
        self.foreign = ""
        if text.isascii():
            return
        # Deleting ASCII as bytes first is ten times faster than looking at every character of a mostly Latin text.
        self.foreign = text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")
        if _ODD.search(self.foreign):
            self.plain = _UNSEEN.sub("", text).translate(_LOOKALIKES)

    def origin(self, index: int) -> int:
        if len(self.plain) == len(self._text):
            return index
        if self._starts is None:
            seen = [len(piece) for piece in _UNSEEN.split(self._text)]
            self._starts = [0, *accumulate(seen)][:-1]
            self._unseen = [0, *accumulate(map(len, _UNSEEN.findall(self._text)))]
        return index + self._unseen[bisect_right(self._starts, index) - 1]

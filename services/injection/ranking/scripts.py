"""Whether a ranker reads a text's language, told by the text's script."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

# By the first word of a letter's Unicode name. A language that is not named here is written in Latin letters.
_SCRIPTS: dict[str, tuple[str, ...]] = {
    "ar": ("ARABIC",),
    "be": ("CYRILLIC",),
    "bg": ("CYRILLIC",),
    "bn": ("BENGALI",),
    "el": ("GREEK",),
    "fa": ("ARABIC",),
    "he": ("HEBREW",),
    "hi": ("DEVANAGARI",),
    "hy": ("ARMENIAN",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"),
    "ka": ("GEORGIAN",),
    "ko": ("HANGUL",),
    "mk": ("CYRILLIC",),
    "mr": ("DEVANAGARI",),
    "ru": ("CYRILLIC",),
    "sr": ("CYRILLIC", "LATIN"),
    "ta": ("TAMIL",),
    "te": ("TELUGU",),
    "th": ("THAI",),
    "uk": ("CYRILLIC",),
    "ur": ("ARABIC",),
    "zh": ("CJK",),
}
_SAMPLE = 200


def scripts_of(languages: Iterable[str]) -> frozenset[str]:
    """The scripts of ISO 639-1 codes (`zh-tw` as `zh`)."""
    return frozenset(
        script for language in languages for script in _SCRIPTS.get(language.lower().partition("-")[0], ("LATIN",))
    )


def main_script(text: str) -> str | None:
    """The script of most letters among the first 200 characters that are no ASCII punctuation; None where there is no letter."""
    if text.isascii():
        return "LATIN" if any(map(str.isalpha, text[:_SAMPLE])) else None
    letters = [c for c in text if c.isalpha()][:_SAMPLE]
    counts = Counter("LATIN" if c.isascii() else unicodedata.name(c, "UNNAMED").split(" ", 1)[0] for c in letters)
    return counts.most_common(1)[0][0] if counts else None


def covers(scripts: frozenset[str], text: str) -> bool:
    """True also where there is no letter to judge by."""
    script = main_script(text)
    return script is None or script in scripts

"""Finds secrets in text and replaces each by `[secret]`: keys, tokens, passwords, private keys, card numbers.

Every chat passes here, so ordinary text must cost next to nothing: a rule is tried only where one of its stems stands, and the long list
of key prefixes only where the text has an unbroken run that a key could be.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shared.text import secret_rules
from shared.text.fold import Folded
from shared.text.secret_rules import Rule, secret_span

MARK = "[secret]"

# A text with more stems of one rule is a flood or a dump; looking at each would take too long, so all of it goes.
_MAX_TRIES = 5_000
# Secrets glued to one another deeper than this are no accident.
_MAX_ROUNDS = 5

_SHAPE = bytes(
    ord("0") if byte in range(48, 58) else ord("a") if (chr(byte).isalpha() and byte < 128) or byte == ord("_") else 32
    for byte in range(256)
)
_RUNS = bytes(ord("a") if shape != 32 or byte == 45 else 32 for byte, shape in enumerate(_SHAPE))
_GAPS = b" -.?\t\n"  # `?` is what a space of another script became
_FOREIGN_STEM = re.compile(
    "|".join({re.sub(r"[ -~]", "", stem) for rule in secret_rules.FOREIGN for stem in rule.stems})
)

Found = tuple[int, int, str]  # start, end and kind
Group = dict[str, list[Rule]]  # by stem


def _by_stem(group: Iterable[Rule]) -> Group:
    stems: Group = {}
    for rule in group:
        for stem in rule.stems:
            stems.setdefault(stem, []).append(rule)
    return stems


_ALWAYS, _ADDRESSES, _NUMBERS = map(_by_stem, (secret_rules.ALWAYS, secret_rules.ADDRESSES, secret_rules.NUMBERS))
_MIXED, _LATIN, _FOREIGN = map(_by_stem, (secret_rules.MIXED, secret_rules.LATIN, secret_rules.FOREIGN))
_LONG_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{12,}+")

# Blocks or groups that begin as Visa, Mastercard, Maestro, Amex, Diners, JCB, Discover, UnionPay, Mir and RuPay do.
_FOUR_DIGITS = re.compile(r"[0-9]{4,}+")
_CARD = re.compile(
    r"\b(?:[0-9]{13,19}+|[0-9]{4}(G)[0-9]{4}\1[0-9]{4}\1[0-9]{1,7}+|3[0-9]{3}(G)[0-9]{6}\2[0-9]{4,5}+)\b".replace(
        "G", r"[\s\u00a0\u2000-\u200a\u202f\u3000.-]{1,3}"
    ),
    re.ASCII,
)  # ASCII, so that a number glued to CJK stands at a boundary
_CARD_NUMBER = re.compile(
    rb"4(?:.{12}|.{15}|.{18})|5[0-8].{14}|2[2-7].{14}|3(?:[47].{13}|[0689].{12}|5.{14})|6.{15,18}|8[12].{14}", re.S
)
_ONCE = bytes.maketrans(b"0123456789", bytes(range(10)))
_TWICE = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))


@dataclass(frozen=True)
class Redacted:
    """`kinds` counts what was replaced; empty where the text stayed as it was."""

    text: str
    kinds: dict[str, int]


class _Flood(Exception):
    """More stems than can be looked at."""


def redact(text: str) -> Redacted:
    """Replaces each secret by `[secret]`; linear in the text, and a second time changes nothing."""
    kinds: dict[str, int] = {}
    try:
        # A secret that was glued to another one's end is seen once that one is gone.
        for _ in range(_MAX_ROUNDS):
            folded = Folded(text)
            if not (found := _find(folded)):
                return Redacted(text, kinds)
            text = _without(text, folded, found, kinds)
    except _Flood:
        pass
    return Redacted(MARK, {"flood": 1})


def _without(text: str, folded: Folded, found: list[Found], kinds: dict[str, int]) -> str:
    parts: list[str] = []
    done = covered = 0
    for start, end, kind in sorted(found):
        if start >= covered:
            parts += (text[done : folded.origin(start)], MARK)
            kinds[kind] = kinds.get(kind, 0) + 1
        if end > covered:
            covered = end
            done = folded.origin(end - 1) + 1
    return "".join((*parts, text[done:]))


def has_secret(text: str) -> bool:
    """Whether `redact` would change the text."""
    return bool(redact(text).kinds)


def _find(folded: Folded) -> list[Found]:
    plain = folded.plain
    encoded = plain.encode("ascii", "replace")
    lower = encoded.lower().decode()
    shape = encoded.translate(_SHAPE)
    numbers = mixed = long_run = False
    found: list[Found] = []
    _apply(_ALWAYS, plain, lower, found)
    if b"0" in shape:
        numbers = b"000" in shape
        long_run = b"a" * 13 in encoded.translate(_RUNS)
        mixed = b"a0" in shape or b"0a" in shape
        if b"0" * 13 in encoded.translate(_SHAPE, _GAPS):
            found += _cards(plain)
    if b"a" * 16 in shape:
        mixed = long_run = True
    if "@" in plain:
        _apply(_ADDRESSES, plain, lower, found)
    if numbers:
        _apply(_NUMBERS, plain, lower, found)
    if mixed:
        _apply(_MIXED, plain, lower, found)
    if long_run:
        found += _keys(plain)
    if numbers or mixed:
        _apply(_LATIN, plain, lower, found)
    if folded.foreign and _FOREIGN_STEM.search(folded.foreign):
        _apply(_FOREIGN, plain, plain, found)
    return found


def _apply(group: Group, plain: str, lower: str, found: list[Found]) -> None:
    for stem in filter(lower.__contains__, group):
        for rule in group[stem]:
            found += _matches(rule, stem, plain, lower)


def _matches(rule: Rule, stem: str, plain: str, lower: str) -> Iterator[Found]:
    tries, at = 0, lower.find(stem)
    while at >= 0:
        tries += 1
        if tries > _MAX_TRIES:
            raise _Flood
        match = rule.pattern.match(plain, at)
        if match and rule.accept(match):
            yield (*secret_span(match), rule.kind)
        at = lower.find(stem, max(at + len(stem), match.end() if match else 0))


def _keys(plain: str) -> Iterator[Found]:
    found = 0
    for run in _LONG_RUN.finditer(plain):
        if match := secret_rules.KEY.match(plain, run.start()):
            found += 1
            if found > _MAX_TRIES:
                raise _Flood
            yield (*match.span(), match.lastgroup or "")


def _cards(plain: str) -> Iterator[Found]:
    tries = 0
    for group in _FOUR_DIGITS.finditer(plain):
        if plain[group.start()] not in "234568" or not (match := _CARD.match(plain, group.start())):
            continue
        tries += 1
        if tries > _MAX_TRIES:
            raise _Flood
        digits = re.sub(r"\D", "", match[0]).encode()
        if _CARD_NUMBER.fullmatch(digits) and _luhn(digits):
            yield (*match.span(), "card")


def _luhn(digits: bytes) -> bool:
    return (sum(digits[-1::-2].translate(_ONCE)) + sum(digits[-2::-2].translate(_TWICE))) % 10 == 0

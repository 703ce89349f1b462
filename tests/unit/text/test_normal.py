import time
import unicodedata
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.text.normal import ContentError, clean_content, find_quote, fold_whitespace, same_fact_key

KEPT = [
    ("  User likes tea. ", "User likes tea."),
    ("User likes tea.\n", "User likes tea."),
    ("User likes  tea", "User likes  tea"),
    ("Cafe\u0301", "Café"),
    ("用户喜欢喝茶。", "用户喜欢喝茶。"),
    ("ユーザーは寿司が好き", "ユーザーは寿司が好き"),
    ("يحب المستخدم الشاي", "يحب المستخدم الشاي"),
    ("می‌خواهم", "می‌خواهم"),
    ("User likes ❤️ and 👨‍👩‍👧 and 1️⃣", "User likes ❤️ and 👨‍👩‍👧 and 1️⃣"),
    ("葛\U000e0100城さん", "葛\U000e0100城さん"),
    ("User's name is Zoë O’Neil-Łukasz", "User's name is Zoë O’Neil-Łukasz"),
    ("a" * 500, "a" * 500),
    ("e\u0301" * 500, "é" * 500),
    (" " * 5000 + "x", "x"),
    ("😀" * 500, "😀" * 500),
]
REFUSED = [
    ("", "blank"),
    ("   ", "blank"),
    ("\n\t ", "blank"),
    ("\u00a0\u3000", "blank"),
    ("\u200d\u200c", "blank"),
    ("\u2800", "blank"),
    ("a" * 501, "too_long"),
    ("e\u0301" * 501, "too_long"),
    ("a" * 3000, "too_long"),
    ("a\nb", "unprintable"),
    ("a\rb", "unprintable"),
    ("a\tb", "unprintable"),
    ("a\x00b", "unprintable"),
    ("\x00", "unprintable"),
    ("a\x1bb", "unprintable"),
    ("a\x85b", "unprintable"),
    ("a\u2028b", "unprintable"),
    ("a\u2028", "unprintable"),
    ("\u2029a", "unprintable"),
    ("a\u202eb", "unprintable"),
    ("a\u2066b\u2069", "unprintable"),
    ("a\u200fb", "unprintable"),
    ("a\u061cb", "unprintable"),
    ("a\u200bb", "unprintable"),
    ("a\ufeffb", "unprintable"),
    ("a\u00adb", "unprintable"),
    ("a\u2060b", "unprintable"),
    ("a\u115fb", "unprintable"),
    ("a\u3164b", "unprintable"),
    ("a\U000e0041\U000e007f", "unprintable"),
    ("a\ufe0f\ufe0e", "unprintable"),
    ("a\U000e0101\U000e0102", "unprintable"),
    ("a\ud800b", "unprintable"),
    ("a\uffffb", "unprintable"),
]


@pytest.mark.parametrize(("raw", "clean"), KEPT)
def test_content_is_trimmed_and_composed(raw: str, clean: str) -> None:
    assert clean_content(raw) == clean


@pytest.mark.parametrize(("raw", "reason"), REFUSED)
def test_f2_e12_content_is_refused(raw: str, reason: str) -> None:
    with pytest.raises(ContentError) as caught:
        clean_content(raw)
    assert (caught.value.code, caught.value.reason) == ("invalid", reason)


def test_nothing_unseen_but_the_joiners_passes() -> None:
    visible_signs = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    for code in range(0x110000):
        char = chr(code)
        if unicodedata.category(char) in {"Cf", "Cc", "Cs", "Zl", "Zp"} and code not in visible_signs | {
            0x200C,
            0x200D,
        }:
            with pytest.raises(ContentError):
                clean_content(f"a{char}b")


@given(st.text(max_size=40) | st.text(alphabet="a \n\u0301\u200d\ufe0f\u2028ﬁé.\ud800", max_size=40))
def test_clean_content_is_idempotent_and_raises_nothing_else(raw: str) -> None:
    try:
        once = clean_content(raw)
    except ContentError:
        return
    assert clean_content(once) == once
    assert len(f"- {once}".splitlines()) == 1
    assert same_fact_key(same_fact_key(once)) == same_fact_key(once)
    assert find_quote(once, f"x {once} y")


SAME = [
    ("  User  likes   tea. ", "user likes tea"),
    ("User likes tea", "USER LIKES TEA!!"),
    ("User lives in Straße", "user lives in STRASSE"),
    ("Ｕｓｅｒ ｌｉｋｅｓ ｔｅａ．", "User likes tea"),
    ("用户喜欢喝茶。", "用户喜欢喝茶"),
    ("هل يحب الشاي؟", "هل يحب الشاي"),
    ("می‌خواهم", "میخواهم"),
    ("User likes ❤️", "User likes ❤"),
]
OTHER = [
    ("User likes tea", "User likes tee"),
    ("User uses C", "User uses C++"),
    ("User uses C", "User uses C#"),
    ("?", "!"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_f2_the_same_fact(one: str, other: str) -> None:
    assert same_fact_key(one) == same_fact_key(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_fact(one: str, other: str) -> None:
    assert same_fact_key(one) != same_fact_key(other)


def test_whitespace_folds() -> None:
    assert fold_whitespace(" a\n\tb\u00a0\u2003c ") == "a b c"


@pytest.mark.parametrize(
    ("quote", "prompt", "found"),
    [
        ("I am a nurse", "Hello. I am a\n  nurse in Lisbon.", True),
        (" I  am a nurse ", "I am a nurse", True),
        ("I am a doctor", "I am a nurse", False),
        ("i am a nurse", "I am a nurse", False),
        ("", "I am a nurse", False),
        (" \n", "I am a nurse", False),
        ("\u200d", "a\u200db", False),
        ("a" * 300, "a" * 400, True),
        ("a" * 301, "a" * 400, False),
        ("我是护士", "大家好，我是护士。", True),
    ],
)
def test_e4_a_quote_stands_in_the_prompt(quote: str, prompt: str, found: bool) -> None:
    assert find_quote(quote, prompt) is found


@pytest.mark.parametrize(
    "piece", ["a", " ", "\u0301", "\u0301\u0316", "\u200d", "\ufe0f", "가", "\u1100\u1161", "﷽", "a ", "\ud800", "ﬁ"]
)
def test_e13_a_megabyte_of_the_worst_is_quick(piece: str) -> None:
    text = piece * (1_000_000 // len(piece.encode("utf-8", "surrogatepass")))
    for check in (
        lambda: clean_content(text),
        lambda: clean_content(text[:2000]),
        lambda: find_quote("aab" * 100, text),
        lambda: find_quote(text, text),
    ):
        start = time.process_time()
        with suppress(ContentError):
            check()
        assert time.process_time() - start < 0.1

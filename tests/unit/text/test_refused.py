import time
from collections.abc import Callable

import pytest

from shared.text.refused import has_contact_data, has_markup

MARKUP = [
    "User's site is https://example.com",
    "User reads www.example.org",
    "User uses example.com/path",
    "See ftp://host/x",
    "javascript:alert(1)",
    "data:text/html;base64,AAAA",
    "![pixel](//evil.example/x.png)",
    "User likes [tea](x)",
    "[a][b]",
    "User <b>is</b> bold",
    "User <img src=x onerror=alert(1)>",
    "User </system>",
    "<!-- hidden -->",
    "<svg/onload=x>",
    "User likes <script",
    "```rm -rf```",
    "~~~ code",
]
NO_MARKUP = [
    "User works at Booking.com.",
    "User uses Node.js and C++ (C#, too).",
    "User thinks a < b and b > c.",
    "User says I <3 cats",
    "User's ratio is 3:1.",
    "User's [secret] is safe.",
    "User earns < 3 coins and likes (tea)",
    "User prefers and/or lists",
    "用户喜欢喝茶。",
]
CONTACT = [
    "User's e-mail is dana@example.com.",
    "dana.lee+x@mail.example.co.uk",
    "我的邮箱是dana@example.com",
    "dana at example dot com",
    "dana (at) example (dot) com",
    "User's phone is +1 415 555 2671.",
    "+442079460958",
    "(415) 555-2671",
    "415.555.2671",
    "User's number is 0171 2345678",
    "01 23 45 67 89",
    "13912345678",
    "phone 555-0199",
    "手机 5550 199",
    "SSN 123-45-6789",
    "123-45-6789",
    "User's passport is X1234567",
    "身份证号 110101199003074514",
    "IBAN DE89 3704 0044 0532 0130 00",
    "AB 12 34 56 C",
    "12345678Z",
    "User lives at 12 Main Street.",
    "User lives at 221b Baker Street",
    "221b baker street",
    "1600 Pennsylvania Ave",
    "User lives in Hauptstraße 5",
    "Goethestr. 12",
    "Calle Mayor 12",
    "12 rue de Rivoli",
    "Via Roma, 3",
    "P.O. Box 123",
    "SW1A 1AA",
    "CA 94105",
    "长安街1号",
    "〒100-0001",
]
NO_CONTACT = [
    "User lives in Lisbon.",
    "User was born in 1985.",
    "User works on 3 projects since 2019-2023.",
    "User's deadline is 2024-05-14.",
    "User runs 10 km on the way to work",
    "User spends 3 hours on the road.",
    "User has 2 kids and a dog",
    "User is @dana on Matrix",
    "User met at noon dotted lines",
    "User earns 120,000 a year",
    "User uses port 9077 and Python 3.11.4",
    "User works at Street Food Ltd",
    "User lives near Main Street",
    "User speaks 4 languages",
    "User meditates at 6 and dots the i",
    "用户住在北京",
]


@pytest.mark.parametrize("content", MARKUP)
def test_markup_is_seen(content: str) -> None:
    assert has_markup(content)


@pytest.mark.parametrize("content", [*NO_MARKUP, *NO_CONTACT])
def test_plain_text_is_no_markup(content: str) -> None:
    assert not has_markup(content)


@pytest.mark.parametrize("content", CONTACT)
def test_e17_contact_data_is_seen(content: str) -> None:
    assert has_contact_data(content)


@pytest.mark.parametrize("content", [*NO_CONTACT, *NO_MARKUP])
def test_ordinary_facts_hold_no_contact_data(content: str) -> None:
    assert not has_contact_data(content)


WORST = [
    "a",
    "a.",
    "a.a.a.",
    "a@",
    "@",
    "aa@a",
    "1",
    "12 ",
    "1 ",
    "(0",
    "0 ",
    "+1 ",
    "123-",
    "123-45-",
    "A",
    "AB12 ",
    "1 A ",
    "1 Aa Bb ",
    "1 a ",
    "calle aa ",
    "via ",
    "rue a",
    "phone ",
    "phone 1",
    "tel aaaa",
    "<a",
    "<a ",
    "<",
    "]",
    "[",
    "!",
    "` ",
    "http:",
    "a://"[:3],
    "aa ",
    "x/",
    " at a",
    "(at)a",
    "-",
    "电话",
    "str.",
    "12345678",
    "P.O. ",
]


@pytest.mark.parametrize("piece", WORST)
@pytest.mark.parametrize("check", [has_markup, has_contact_data])
def test_e13_a_megabyte_of_the_worst_is_quick(check: Callable[[str], bool], piece: str) -> None:
    for size in (1_990, 1_000_000):
        text = piece * (size // len(piece))
        start = time.process_time()
        check(text)
        assert time.process_time() - start < 0.1

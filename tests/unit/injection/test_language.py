"""Scripts and the first person."""

import pytest

from services.injection.ranking.english import is_english
from services.injection.ranking.first_person import third_person
from services.injection.ranking.scripts import covers, main_script, scripts_of


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("What shall I cook?", "LATIN"),
        ("¿Qué cocino hoy?", "LATIN"),
        ("今天吃什么", "CJK"),
        ("ありがとうございます", "HIRAGANA"),
        ("Что приготовить?", "CYRILLIC"),
        ("ماذا أطبخ اليوم؟", "ARABIC"),
        ("무엇을 요리할까요", "HANGUL"),
        ("ทำอาหารอะไรดี", "THAI"),
        ("我用 Python 写代码和测试", "CJK"),
        ("42 + 1 = ?", None),
        ("👍🏽", None),
        ("", None),
    ],
)
def test_main_script(text: str, script: str | None) -> None:
    assert main_script(text) == script


def test_ranker_reads_the_scripts_of_its_languages() -> None:
    english, many = scripts_of(["en"]), scripts_of(["en", "zh-tw", "ja", "ru"])
    assert covers(english, "tea?")
    assert covers(english, "👍")
    assert not covers(english, "喝茶")
    assert covers(many, "喝茶")
    assert covers(many, "お茶")
    assert not covers(many, "شاي")


@pytest.mark.parametrize(
    ("given", "rewritten"),
    [
        ("Where do I work?", "Where do User work?"),
        ("I'm tired, what's my plan?", "User is tired, what's User's plan?"),
        ("what did i say about mine", "what did User say about User's"),
        ("I’ve had it with this", "User has had it with this"),
    ],
)
def test_speaker_becomes_user(given: str, rewritten: str) -> None:
    assert third_person(given) == rewritten


@pytest.mark.parametrize(
    "text",
    [
        "I need to sort a list in Java",
        "How can I convert this file?",
        "Tell me a joke",
        "what is the capital of France?",
        "I bambini sono a casa",
        "me gusta el té y mi trabajo",
        "idę i kupię chleb",
        "我喜欢喝茶",
        "",
    ],
)
def test_requests_and_other_languages_stay(text: str) -> None:
    assert third_person(text) == text


@pytest.mark.parametrize(
    "text",
    ["hi", "ok", "👍", "42", "SQL joins", "tell me more", "Plan my weekend", "I love café culture", "What's next?", ""],
)
def test_english(text: str) -> None:
    assert is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "¿Qué puedo cocinar esta noche?",
        "Dónde trabajo",
        "hola",
        "Où est-ce que je travaille ?",
        "Was soll ich heute kochen?",
        "Cosa posso cucinare stasera?",
        "O que posso cozinhar hoje?",
        "Wat kan ik vanavond koken?",
        "Co mam ugotować?",
        "Bu akşam ne pişireyim?",
        "今晚我该做什么菜？",
        "ماذا أطبخ الليلة؟",
        "Что приготовить?",
    ],
)
def test_other_languages(text: str) -> None:
    assert not is_english(text)

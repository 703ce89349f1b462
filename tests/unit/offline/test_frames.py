"""What each frame says, and what looks like it and says nothing."""

import time

import pytest

from services.extraction.offline.frames import FRAMES
from services.extraction.offline.reading import read, read_fact
from tests.unit.offline.support import contents, seen

# frame -> (prompt, the fact)
SAID = {
    "name": [
        ("My name is Dana.", "User's name is Dana."),
        ("my name is dana", "User's name is dana."),
        ("Call me Dana!", "User's name is Dana."),
        ("Please call me Mary Jane", "User's name is Mary Jane."),
        ("Hi, I'm Dana.", "User's name is Dana."),
        ("Hello! I'm Łukasz Żak from Gdańsk.", "User's name is Łukasz Żak."),
        ("I go by Zoë.", "User's name is Zoë."),
        ("my name’s 李雷", "User's name is 李雷."),
    ],
    "role": [
        ("I am a nurse.", "User is a nurse."),
        ("I'm a nurse in Lisbon", "User is a nurse in Lisbon."),
        ("I'm an English teacher.", "User is an English teacher."),
        ("I'm a senior software engineer now", "User is a senior software engineer."),
        ("I work as a freelance graphic designer.", "User is a freelance graphic designer."),
        ("My job is product manager", "User is a product manager."),
        ("FYI I'm a PhD student and I need help with R", "User is a PhD student."),
    ],
    "employer": [
        ("I work at Acme.", "User works at Acme."),
        (
            "I currently work for the World Health Organization in Geneva.",
            "User works at the World Health Organization.",
        ),
        ("I've been working at St. Mary's Hospital for three years", "User works at St. Mary's Hospital."),
        ("I started a new job at Globex!", "User works at Globex."),
        ("I just joined Initech as a data scientist", "User works at Initech."),
    ],
    "home": [
        ("I live in Lisbon.", "User lives in Lisbon."),
        ("I live in Austin, Texas with my cat", "User lives in Austin, Texas."),
        ("I'm based in New York City", "User lives in New York City."),
        ("I recently moved to Rio de Janeiro", "User lives in Rio de Janeiro."),
        ("I have lived in the Netherlands for 5 years", "User lives in the Netherlands."),
    ],
    "origin": [
        ("I'm originally from Brazil", "User is from Brazil."),
        ("I was born in Porto Alegre.", "User was born in Porto Alegre."),
        ("I grew up in Kyoto.", "User grew up in Kyoto."),
    ],
    "languages": [
        ("I speak English, Spanish and Catalan.", "User speaks English, Spanish and Catalan."),
        ("My native language is Polish", "User's first language is Polish."),
    ],
    "diet": [
        ("I'm vegetarian", "User is vegetarian."),
        ("I am a strict vegan.", "User is vegan."),
        ("I went vegan", "User is vegan."),
        ("I'm on a keto diet", "User follows a keto diet."),
    ],
    "does not eat": [
        ("I don't eat pork or shellfish.", "User does not eat pork or shellfish."),
        ("I never drink alcohol", "User does not drink alcohol."),
    ],
    "allergy": [
        ("I'm severely allergic to peanuts!", "User is allergic to peanuts."),
        ("I have a shellfish allergy.", "User is allergic to shellfish."),
        ("I'm lactose-intolerant", "User is lactose intolerant."),
    ],
    "health": [
        ("I was diagnosed with celiac disease.", "User was diagnosed with celiac disease."),
        ("I have asthma.", "User has asthma."),
        ("I'm colorblind", "User is colorblind."),
        ("I use a wheelchair.", "User uses a wheelchair."),
    ],
    "belief": [("I'm a practicing Buddhist.", "User is Buddhist.")],
    "time zone": [
        ("My time zone is CET.", "User's time zone is CET."),
        ("I'm in the Europe/Lisbon timezone", "User's time zone is Europe/Lisbon."),
    ],
    "limits": [
        ("I can't drive.", "User does not drive."),
        ("I'm left-handed", "User is left-handed."),
        ("I work night shifts", "User works night shifts."),
    ],
    "experience": [
        ("I have 10 years of experience with Python.", "User has 10 years of experience with Python."),
        ("I specialize in contract law", "User specializes in contract law."),
        ("I'm new to Rust.", "User is new to Rust."),
        ("I have a PhD in marine biology", "User has a PhD in marine biology."),
    ],
    "learning": [
        ("I'm learning Portuguese.", "User is learning Portuguese."),
        ("I'm learning how to play the piano", "User is learning how to play the piano."),
        ("I've started learning Rust", "User is learning Rust."),
    ],
    "project": [
        ("I'm working on my thesis about coral reefs.", "User is working on their thesis about coral reefs."),
        ("I'm writing a novel", "User is working on a novel."),
    ],
    "business": [
        ("I run a small bakery.", "User runs a small bakery."),
        ("I started my own design studio last year", "User started their own design studio."),
    ],
    "goal": [
        ("I'm training for a marathon.", "User is preparing for a marathon."),
        ("I want to become a pilot", "User wants to become a pilot."),
        ("My goal is to run a marathon.", "User's goal is to run a marathon."),
    ],
    "volunteering": [("I volunteer at a dog shelter.", "User volunteers at a dog shelter.")],
    "class": [("I'm taking a pottery class.", "User is taking a pottery class.")],
    "plays": [
        ("I play the cello in an orchestra", "User plays cello."),
        ("I've been playing chess for ten years", "User plays chess."),
    ],
    "passion": [
        ("I'm passionate about urban gardening.", "User is passionate about urban gardening."),
        ("I'm really into astronomy", "User is into astronomy."),
    ],
    "uses": [
        ("I use Vim.", "User uses Vim."),
        ("I'm using PostgreSQL 18 for analytics", "User uses PostgreSQL 18 for analytics."),
        ("I mostly use python", "User uses python."),
    ],
    "preference": [
        ("I prefer short answers.", "User prefers short answers."),
        ("I prefer tea to coffee", "User prefers tea to coffee."),
        ("I much prefer dark mode over light mode.", "User prefers dark mode over light mode."),
        ("I prefer to work early", "User prefers to work early."),
    ],
    "favorite": [("My favourite colour is dark green.", "User's favorite colour is dark green.")],
    "taste": [
        ("I really like coffee.", "User likes coffee."),
        ("I love pizza, Sam!", "User loves pizza."),
        ("I love classical and jazz music!", "User loves classical and jazz music."),
        ("I can't stand cilantro", "User cannot stand cilantro."),
        ("I don't like olives", "User does not like olives."),
        ("I'm a big fan of chess.", "User likes chess."),
    ],
    "habit": [
        ("I always use metric units.", "User always uses metric units."),
        ("I never deploy on Fridays", "User never deploys on Fridays."),
        ("I always wake up at 6am", "User always wakes up at 6am."),
    ],
    "pet": [("I have a dog named Rex.", "User has a dog named Rex.")],
}
TOLD = [(frame, prompt, fact) for frame, rows in SAID.items() for prompt, fact in rows]

NOTHING = [
    # not the frame's kind of value
    "Call me crazy, but it works.",
    "Call me back.",
    "Call me when you can",
    "Call me Tomorrow",
    "I'm Canadian.",
    "Hi, I'm Canadian.",
    "Hi, I'm tired.",
    "I'm a good cook.",
    "I'm a big mess.",
    "I'm a believer",
    "I'm a bit tired",
    "I'm the best teacher ever",
    "I'm a former nurse.",
    "I'm a pilot for a day",
    "I'm a poet at heart",
    "I'm an aspiring actor",
    "I'm a friend of the teacher",
    "I work at night.",
    "I work for myself",
    "I work on Sundays",
    "I live in a small flat",
    "I live in fear",
    "I live in hope.",
    "I moved to the couch.",
    "I moved to TypeScript.",
    "I moved to react",
    "I'm from accounting",
    "I speak up often",
    "I speak my mind",
    "I love it!",
    "I love this.",
    "I love you",
    "I love your painting",
    "I love how it looks",
    "I love that you came",
    "I love the idea",
    "I like to think so",
    "I like them",
    "I love seeing you happy.",
    "I prefer it",
    "I prefer not to say",
    "I prefer that one",
    "I use it daily",
    "I use this for work",
    "I use my hands",
    "I'm learning a lot.",
    "I'm learning so much",
    "I'm learning to let go",
    "I'm working on it",
    "I'm working on myself.",
    "I'm working on something new",
    "I always feel better after a walk",
    "I never thought of it.",
    "I always knew.",
    "I have a cold.",
    "I have a question",
    "I have ten years left",
    "My favorite is the red one",
    "My favorite thing about it is the people",
    "My name is not important.",
    "My goal is to help you",
    "I'm training for it",
    "I'm passionate about what I do",
    "I'm allergic to this",
    "I'm allergic to you",
    # tense, negation, time
    "I was a nurse.",
    "I worked at Acme.",
    "I lived in Paris.",
    "I used to smoke.",
    "I used to be vegan",
    "I'm not a nurse.",
    "I'm not from Brazil",
    "I don't work at Acme.",
    "I'll move to Berlin.",
    "I'm moving to Berlin next month",
    "I will be a teacher",
    "I'm going to learn Rust",
    "I want to live in Tokyo",
    "I would love a dog",
    "I love hiking today",
    "I never use Vim on Mondays last week",
]


@pytest.mark.parametrize(("frame", "prompt", "fact"), TOLD)
def test_e1_a_frame_is_heard(frame: str, prompt: str, fact: str) -> None:
    found = {candidate.content: candidate for candidate in seen(prompt)}
    assert fact in found
    assert found[fact].evidence[0].quote in prompt
    assert frame in found[fact].reasoning
    assert found[fact].confidence == "high"


@pytest.mark.parametrize(("frame", "prompt", "fact"), TOLD)
def test_a_fact_is_read_back_as_it_was_heard(frame: str, prompt: str, fact: str) -> None:
    again = [(reading.frame.name, reading.content) for reading in read_fact(fact)]
    assert frame in [name for name, _ in again]


def test_every_frame_has_its_rows() -> None:
    assert set(SAID) == {frame.name for frame in FRAMES}


@pytest.mark.parametrize("prompt", NOTHING)
def test_what_only_looks_like_a_frame_says_nothing(prompt: str) -> None:
    assert contents(prompt) == []


@pytest.mark.parametrize(
    ("content", "frame", "value"),
    [
        ("User works for Acme as an engineer", "employer", "acme"),
        ("The user works at Acme.", "employer", "acme"),
        ("User is an engineer at Acme.", "employer", "acme"),
        ("User is based in Lisbon", "home", "lisbon"),
        ("User moved to Lisbon.", "home", "lisbon"),
        ("User is a vegan", "diet", "vegan"),
        ("User is called Dana", "name", "dana"),
        ("User goes by Dana.", "name", "dana"),
        ("User really likes coffee.", "taste", "likes"),
        ("User doesn't like coffee.", "taste", "dislikes"),
        ("User's favourite colour is blue", "favorite", "blue"),
        ("User does not eat pork.", "does not eat", "pork"),
    ],
)
def test_facts_in_the_words_of_others_are_read(content: str, frame: str, value: str) -> None:
    assert (frame, value) in [(reading.frame.name, reading.value) for reading in read_fact(content)]


@pytest.mark.parametrize(
    ("clause", "content"),
    [
        ("I left Acme", "User left Acme."),
        ("I quit my job at Acme", "User left Acme."),
        ("I lost my job at Acme", "User left Acme."),
        ("I quit my job", "User left their job."),
        ("I no longer work at Acme", "User no longer works at Acme."),
        ("I do not work at Acme anymore", "User no longer works at Acme."),
        ("I am no longer vegan", "User is no longer vegan."),
        ("I am not vegan anymore", "User is no longer vegan."),
        ("I stopped using Vim", "User no longer uses Vim."),
    ],
)
def test_e8_what_has_ended_is_heard(clause: str, content: str) -> None:
    readings = read(clause)
    assert [(reading.content, reading.ended) for reading in readings[:1]] == [(content, True)]
    assert read_fact(content)[0].ended


WORST = [
    "I am a ",
    "I work at A ",
    "I live in A, ",
    "I love a and ",
    "a ",
    "A ",
    "I am a senior ",
    "my favorite ",
    "I prefer a to ",
    "I have ",
    "A-",
    "I am not ",
    "a b c d e f g ",
]


@pytest.mark.parametrize("piece", WORST)
def test_e13_a_clause_of_a_thousand_characters_is_quick(piece: str) -> None:
    """No longer one reaches the frames (see `own_clauses`); a quote of 300 characters bounds them further."""
    for start in ("", "I am ", "I live in ", "I love "):
        clause = (start + piece * 300)[:300]
        began = time.process_time()
        read(clause)
        assert time.process_time() - began < 0.1

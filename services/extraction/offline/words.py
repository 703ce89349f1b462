"""The words frames are made of: kinds of values as patterns, and turning a first-person phrase into one about the user."""

import re


def any_of(phrases: str) -> str:
    """The phrases of a table, parted by commas and lines, as one alternative of a pattern."""
    return "|".join(filter(None, (phrase.strip() for phrase in re.split(r"[,\n]", phrases))))


_FORBIDDEN = frozenset(
    any_of("""
    i, me, myself, it, this, that, these, those, you, your, yours, him, her, his, hers, them, they, he, she, us, we,
    our, ours, everyone, everybody, everything, someone, somebody, something, anyone, anything, nothing, nobody,
    one, ones, here, there, what, how, why, when, who, whom, which, lot, lots, bit, such, thing, things, stuff, way,
    today, tomorrow, tonight, yesterday, now, then, later, soon, again, much, many, more, most, less, too, very, so,
    really, just, even, being, having, getting, seeing, hearing, knowing, doing, making, feeling, going, trying,
    thinking, looking, same, new, next, other, another, each, all, both, half, idea, ideas, time, times, moment,
    moments, part, parts, kind, sort, day, days
""").split("|")
)
_DETERMINERS = re.compile(
    r"(?:the|a|an|my|some|any|no|every|to|of|for|with|at|in|on|and|or|not|as|by|from|about)\b", re.I
)
JOB = any_of("""
    accountant, actor, actress, actuary, administrator, adviser, advisor, analyst, anesthesiologist, animator,
    anthropologist, archaeologist, architect, archivist, artist, assistant, astronomer, athlete, attorney, auditor,
    author, baker, banker, barber, barista, bartender, biochemist, biologist, bookkeeper, botanist, builder,
    butcher, caregiver, carer, caretaker, carpenter, cashier, chef, chemist, chiropractor, choreographer,
    cinematographer, cleaner, clerk, coach, columnist, comedian, composer, conductor, consultant, contractor, cook,
    copywriter, counsellor, counselor, curator, dancer, dentist, dermatologist, designer, detective, developer,
    dietitian, diplomat, director, doctor, drummer, economist, editor, electrician, engineer, entrepreneur,
    epidemiologist, estimator, farmer, filmmaker, firefighter, fisherman, florist, forester, freelancer, gardener,
    geographer, geologist, goldsmith, guide, hairdresser, historian, hydrologist, illustrator, immunologist,
    inspector, instructor, interpreter, investor, janitor, jeweler, journalist, judge, lawyer, lecturer, librarian,
    lifeguard, linguist, locksmith, logistician, machinist, manager, mathematician, mechanic, meteorologist,
    microbiologist, midwife, miner, musician, neurologist, neuroscientist, notary, novelist, nurse, nutritionist,
    oceanographer, officer, optician, optometrist, paediatrician, painter, paralegal, paramedic, pastor,
    pathologist, pediatrician, pharmacist, philosopher, photographer, physician, physicist, physiotherapist,
    pianist, pilot, plumber, podcaster, poet, policeman, policewoman, politician, postdoc, potter, practitioner,
    principal, producer, professor, programmer, psychiatrist, psychologist, psychotherapist, publisher, radiologist,
    ranger, realtor, receptionist, recruiter, reporter, researcher, sailor, salesman, salesperson, saleswoman,
    scientist, screenwriter, sculptor, seamstress, secretary, singer, sociologist, soldier, sommelier, statistician,
    student, stylist, supervisor, surgeon, surveyor, tailor, teacher, technician, technologist, therapist, trainer,
    translator, tutor, undergraduate, undertaker, upholsterer, urbanist, vet, veterinarian, videographer, violinist,
    waiter, waitress, welder, woodworker, writer, zoologist
""")
_MORE = "practitioner|assistant|engineer|manager|developer|designer|teacher|technician|officer"
ROLE = rf"(?:[A-Za-z][\w'/+-]*\s){{0,4}}?(?:{JOB})(?:\s(?:{_MORE}))?"
_NOT_ROLES = re.compile(
    r"\b(?:"
    + any_of("""
    good, bad, great, better, terrible, awful, decent, former, ex, aspiring, wannabe, natural, born, amazing, real,
    true, huge, big, bit, total, self-taught, fake, future, hopeful, keen, avid, passionate, hobby, amateur, slow,
    fast, lousy, mediocre, not, just, lucky, happy, proud, best, worst, only, sort, kind, fan, friend, son,
    daughter, child, wife, husband, sister, brother, mother, father, mom, dad, partner, who, that, of, for, to, by,
    with, than, like
""")
    + r")\b",
    re.I,
)
LANGUAGE = any_of("""
    Afrikaans, Albanian, Amharic, Arabic, Armenian, Basque, Bengali, Bulgarian, Burmese, Cantonese, Catalan,
    Chinese, Croatian, Czech, Danish, Dutch, English, Estonian, Farsi, Filipino, Finnish, French, Galician,
    Georgian, German, Greek, Gujarati, Hausa, Hebrew, Hindi, Hungarian, Icelandic, Igbo, Indonesian, Irish, Italian,
    Japanese, Kannada, Korean, Latin, Latvian, Lithuanian, Malay, Malayalam, Mandarin, Marathi, Mongolian, Nepali,
    Norwegian, Persian, Polish, Portuguese, Punjabi, Romanian, Russian, Serbian, Sinhala, Slovak, Slovenian, Somali,
    Spanish, Swahili, Swedish, Tagalog, Tamil, Telugu, Thai, Tibetan, Turkish, Ukrainian, Urdu, Vietnamese, Welsh,
    Yoruba, Zulu, American Sign Language, sign language
""")
LANGUAGES = rf"(?:{LANGUAGE})(?:(?:, and |, | and )(?:{LANGUAGE}))*"
CAPITAL = r"[^\W\d_a-z][\w'’.&-]*"
NAME = rf"{CAPITAL}(?:\s{CAPITAL}){{0,3}}"
PLACE = (
    rf"(?:the )?{CAPITAL}(?:\s(?:(?:of|de|del|do|da|la|le|upon|am|an der|and)\s)?{CAPITAL}){{0,3}}"
    rf"(?:, {CAPITAL}(?:\s{CAPITAL})?){{0,2}}"
)
ORG = rf"(?:the )?{CAPITAL}(?:\s(?:(?:of|and|for|the|de|&)\s)?{CAPITAL}){{0,4}}"
FOOD = any_of("""
    meat, red meat, pork, beef, chicken, fish, seafood, shellfish, dairy, gluten, eggs, nuts, peanuts, tree nuts,
    sugar, wheat, soy, onions, garlic, mushrooms, cilantro, coriander, lactose, milk, cheese, bread, carbs, alcohol,
    coffee, caffeine, soda, spicy food, fast food, junk food, animal products, honey
""")
FOODS = rf"(?:{FOOD})(?:(?:, or |, and |, | or | and )(?:{FOOD}))*"
_TOOLS = any_of("""
    neovim, vim, emacs, nano, git, docker, podman, kubernetes, python, rust, golang, go, java, javascript,
    typescript, kotlin, swift, ruby, php, perl, haskell, scala, elixir, erlang, clojure, react, vue, svelte,
    angular, django, flask, fastapi, rails, laravel, postgres, postgresql, mysql, sqlite, mongodb, redis, kafka,
    linux, ubuntu, debian, fedora, nixos, windows, macos, tmux, zsh, bash, jupyter, pandas, numpy, pytorch,
    tensorflow, excel, notion, obsidian, figma, photoshop, latex, terraform, ansible, dvorak, colemak, pnpm, npm,
    yarn, poetry, uv
""")
TOOL = rf"{CAPITAL}(?:\s{CAPITAL}|\s\d[\w.]*){{0,3}}|{_TOOLS}"
NOT_NAMES = re.compile(
    r"(?:"
    + any_of("""
    crazy, back, later, maybe, old, tomorrow, today, now, asap, mom, dad, mum, anytime, when, if, sir, whatever,
    please, again, names, i, god, lol, ok, okay, good, fine, american, british, english, german, french, spanish,
    italian, canadian, australian, indian, chinese, japanese, irish, scottish, dutch, swiss, polish, russian,
    mexican, brazilian, muslim, christian, jewish, hindu, buddhist, catholic, gay, lesbian, trans, vegan,
    vegetarian, team, single, married, black, white, asian, latino, latina
""")
    + r")\b",
    re.I,
)


def is_plain(value: str, most: int = 5) -> bool:
    """Whether a phrase stands for itself: no pronoun or filler, no determiner at its start, at most so many words."""
    words = value.lower().replace(",", " ").split()
    return 0 < len(words) <= most and not _FORBIDDEN.intersection(words) and not _DETERMINERS.match(value)


def is_thing(value: str, most: int = 6) -> bool:
    """As `is_plain`, but `the`, `a` or `my` may stand before it."""
    return is_plain(re.sub(r"^(?:the|an?|my) ", "", value, flags=re.I), most)


def is_role(value: str) -> bool:
    return not _NOT_ROLES.search(value)


def is_name(value: str) -> bool:
    return not NOT_NAMES.match(value) and not any(char.isdigit() for char in value)


def is_place(value: str) -> bool:
    """No place is written `TypeScript`, and the names of tools move people too."""
    return not re.search(r"[a-z][A-Z]", value) and not re.fullmatch(_TOOLS, value.lower())


def article(phrase: str) -> str:
    """The phrase with its indefinite article; `an` goes by spelling."""
    vowel = re.match(r"[aeio]|u(?!ni|se|ti|ro)|(?:[AEFHILMNORSX](?=[A-Z]))|MS|hour|honest", phrase, 0)
    return f"{'an' if vowel or re.match(r'[AEIO][a-z]', phrase) else 'a'} {phrase}"


_IRREGULAR = {"am": "is", "have": "has", "do": "does", "go": "goes"}
_UNCHANGED = frozenset("can cannot will must should may might did was were had".split())  # noqa: SIM905


def third_person(verb: str) -> str:
    """`works` of `work`."""
    if verb in _UNCHANGED:
        return verb
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if re.search(r"(?:s|x|z|ch|sh|o)$", verb):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y$", verb) else f"{verb}s"


def in_third_person(phrase: str) -> str:
    """`wakes up early` of `wake up early`, `does not like` of `do not like`."""
    verb, space, rest = phrase.partition(" ")
    return f"{third_person(verb)}{space}{rest}"


def about_them(phrase: str) -> str:
    """`my thesis` becomes `their thesis`."""
    phrase = re.sub(r"\bmyself\b", "themself", re.sub(r"\bmine\b", "theirs", phrase))
    return re.sub(r"\bme\b", "them", re.sub(r"\bmy\b", "their", phrase, flags=re.I))


def no_longer(content: str) -> str:
    """`User works at Acme.` becomes `User no longer works at Acme.`"""
    return (
        re.sub(r"^User is ", "User is no longer ", content)
        if content.startswith("User is ")
        else f"User no longer{content[4:]}"
    )


_BASES = {
    "living": "live",
    "using": "use",
    "writing": "write",
    "driving": "drive",
    "loving": "love",
    "liking": "like",
    "coding": "code",
    "taking": "take",
}


def base_of(gerund: str) -> str:
    return _BASES.get(gerund, gerund[:-3])


def first_person(content: str) -> str:
    """A sentence about the user as the user would say it; other sentences stay."""
    text = re.sub(r"\btheir\b", "my", content.strip().rstrip(".!"))
    if text.startswith(("User's ", "The user's ")):
        return f"my {text.partition(chr(39) + 's ')[2]}"
    found = re.match(
        r"(?:The )?[Uu]ser (?P<adverbs>(?:(?:really|also|always|never|no longer|currently|now|still|usually|strongly) )*)(?P<verb>\w+)",
        text,
    )
    if not found:
        return text
    return f"I {found['adverbs']}{_plain_form(found['verb'])}{text[found.end() :]}".replace(
        "doesn't", "do not"
    ).replace("can't", "cannot")


def _plain_form(verb: str) -> str:
    known = {"is": "am", "has": "have", "does": "do", "goes": "go", "was": "was"}
    if verb in known or not verb.endswith("s"):
        return known.get(verb, verb)
    if verb.endswith("ies"):
        return f"{verb[:-3]}y"
    return verb[:-2] if re.search(r"(?:ss|x|zz|ch|sh)es$", verb) else verb[:-1]


def asked_for(text: str) -> str:
    """`where I work` becomes `where they work`."""
    return about_them(re.sub(r"\bI\b", "they", re.sub(r"\bI am\b", "they are", text)))


_OTHERS = re.compile(r"\b(?:you|your|yours|it|this|that|these|those|he|she|we|our|us|I)\b", re.I)
_PRESENT = re.compile(
    r"I (?P<adverb>(?:always|never|only|usually|also) )?(?P<verb>"
    + any_of("""
    am, have, do not, cannot, need, want, like, love, hate, prefer, use, work, live, own, drive, play, speak, study,
    teach, run, walk, take, get, go, eat, drink, avoid, follow, keep, wear, write, read, sleep, train, start,
    finish, support, manage, lead, belong, plan, travel, cook, sing
""")
    + r") (?P<rest>.+)"
)


def told(clause: str) -> str:
    """What the user asked to remember of themself, in the third person; "" where that is not plain."""
    if len(clause.split()) > 25:
        return ""
    if found := _PRESENT.fullmatch(clause):
        if _OTHERS.search(found["rest"]):
            return ""
        verb = "does not" if found["verb"] == "do not" else third_person(found["verb"])
        said = f"{found['adverb'] or ''}{verb}"
        return f"User {'is ' + (found['adverb'] or '').strip() if verb == 'is' and found['adverb'] else said} {about_them(found['rest'])}."
    mine = re.fullmatch(r"my (?P<what>[\w' -]{1,60}?) (?P<is>is|are) (?P<rest>.+)", clause, re.I)
    return (
        f"User's {mine['what']} {mine['is']} {about_them(mine['rest'])}."
        if mine and not _OTHERS.search(mine["rest"])
        else ""
    )

"""The table of what counts as a fact: which clause says it and how it is worded about the user.

To teach another kind, add a `Frame` here and a row to tests/unit/offline/test_frames.py. Patterns are regular expressions over a whole
clause in which `<v:place>` is the value, of the kind `place` (see `_KINDS`), `<place>` the same without being the value, `<now>` any of
the adverbs that change nothing, and after which harmless endings pass. `<k:…>` is the slot where a person has one value for each of
several things (favourite colour, favourite food). Of a `single` frame one value holds per slot, another takes its place.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from services.extraction.offline import words as w
from shared.rpc.messages import Category, Scope

# What may follow a value without changing it; an open phrase ends less easily, for "abstract and modern art" is one thing.
_ADVERBS = w.any_of("""
    now, currently, these days, nowadays, lately, at the moment, right now, too, as well, already, by the way, btw,
    though, actually, again, so far
""")
_CLAUSE = "but|so|because|since|which|while|although|'cause"
TAIL = rf"(?: (?:{_ADVERBS}))*(?:(?:,? (?:and|where|{_CLAUSE})\b|,|\().*)?"
_OPEN_TAIL = (
    rf"(?: (?:{_ADVERBS}))*(?:(?:,? (?:{_CLAUSE})\b|(?:,|,? and) "
    r"(?:I|my|it|it's|they|we|this|that|he|she|you|plus|especially|have|am|would|will|can)\b|\().*|, [A-Z]\w+)?"
)
_DIETS = "vegetarian|vegan|pescatarian|pescetarian|omnivore|flexitarian|fruitarian"
_THINGS = w.any_of("""
    thesis, dissertation, novel, book, app, application, startup, start-up, business, store, shop, studio,
    company, paper, game, website, album, screenplay, PhD, degree, library, compiler, course, documentary,
    podcast, blog, plugin, master's
""")
_HABITS = w.any_of("""
    use, write, drink, eat, work, wear, take, code, deploy, test, commit, read, run, travel, fly, cook, buy, walk,
    bike, cycle, drive, commute, sleep, wake up, get up, go to bed, check, keep, start, plan, pay, order, answer,
    skip, add, put, work out, train, study
""")
_ILLNESSES = w.any_of("""
    diabetes, type 1 diabetes, type 2 diabetes, asthma, ADHD, ADD, autism, epilepsy, celiac disease, coeliac
    disease, depression, anxiety, arthritis, migraines, high blood pressure, hypertension, cancer, Crohn's
    disease, IBS, endometriosis, dyslexia, insomnia, PTSD, OCD, bipolar disorder, tinnitus, lupus, PCOS, HIV
""")
_BUSINESSES = w.any_of("""
    business, company, startup, store, shop, studio, agency, bakery, restaurant, café, cafe, farm, firm, salon,
    gym, consultancy, brewery, bookshop, bookstore
""")
_INSTRUMENTS = w.any_of("""
    piano, guitar, acoustic guitar, electric guitar, bass, violin, viola, cello, clarinet, flute, saxophone,
    trumpet, trombone, drums, harp, ukulele, banjo, accordion, oboe, bassoon, harmonica, organ, keyboard
""")
_SPORTS = w.any_of("""
    football, soccer, basketball, tennis, volleyball, baseball, hockey, rugby, cricket, badminton, golf, squash,
    chess, table tennis, ultimate frisbee
""")
_PHRASE = r"[\w'+#&/.-]+(?: [\w'+#&/.-]+){0,5}?"
_KINDS = {
    "now": r"(?:(?:also|now|currently|still|actually|already|just|recently|finally|always|really|usually|mostly|mainly) )*",
    "phrase": _PHRASE,
    "capital": w.CAPITAL,
    "name": w.NAME,
    "place": w.PLACE,
    "org": w.ORG,
    "role": w.ROLE,
    "role in place": rf"{w.ROLE}(?: in {w.PLACE})?",
    "language": w.LANGUAGE,
    "languages": w.LANGUAGES,
    "foods": w.FOODS,
    "tool": w.TOOL,
    "diet": _DIETS,
    "kind of diet": f"{_DIETS}|keto|ketogenic|paleo|plant-based|low-carb|gluten-free|Mediterranean|dairy-free",
    "zone": r"[A-Z][\w/+:-]+(?: [A-Z]\w+)?",
    "like": "love|like|enjoy|adore|hate|dislike|detest|cannot stand|do not like",
    "habit": rf"(?:{_HABITS})(?: [\w'-]+){{1,7}}?",
    "long": r"(?: for (?:(?:over|about|almost|nearly|more than) )?(?:\d{1,2}|[a-z]+) (?:years?|months?|weeks?)(?: now)?)?",
    "work": rf"(?:my|an?|the) (?:[\w-]+ ){{0,3}}?(?:{_THINGS})(?: (?:on|about|for|in|called) {_PHRASE})?",
    "belief": "Muslim|Christian|Catholic|Jewish|Hindu|Buddhist|Sikh|Mormon|atheist|agnostic|Protestant|Quaker",
    "illness": _ILLNESSES,
    "condition": "diabetic|dyslexic|autistic|epileptic|colou?r[- ]?blind|deaf|legally blind|hard of hearing|pregnant|bipolar",
    "aid": "a wheelchair|a hearing aid|hearing aids|a screen reader|crutches",
    "skill": "play|code|program|cook|sew|swim|drive|speak|draw|paint|knit|sail|ski|surf",
    "level": "an expert (?:in|on|at)|(?:proficient|experienced|skilled) (?:in|with|at)|new to|a beginner (?:in|at|with)",
    "degree": r"(?:PhD|Ph\.D\.|master's|master's degree|bachelor's|bachelor's degree|degree|background)",
    "instrument": _INSTRUMENTS,
    "sport": _SPORTS,
    "business": rf"(?:my own|an?) (?:[\w-]+ ){{0,3}}?(?:{_BUSINESSES})",
    "pet": r"an? (?:[a-z]+ )?(?:dog|cat|puppy|kitten|parrot|rabbit|horse|hamster)",
}


def _anything(_: str) -> bool:
    return True


@dataclass(frozen=True)
class Frame:
    """`said` pairs a pattern with its wording: `{v}`, `{k}`, `{a}` v with its article, `{verbs}` v with its verb in the third person.

    `dated` frames keep the date a clause states; of the others a clause with a date tells of one occasion, and is no fact.
    """

    name: str
    category: Category
    said: tuple[tuple[str, str], ...]
    scope: Scope = "workspace"
    single: bool = False
    sensitive: bool = False
    dated: bool = False
    accept: Callable[[str], bool] = _anything


FRAMES: tuple[Frame, ...] = (
    Frame(
        "name",
        "identity",
        (
            (r"(?i:my (?:full |first |real )?name is) <v:name>(?: from .*)?", "User's name is {v}."),
            (r"(?i:my name is) (?P<v>[a-z]{2,})(?=$|,)", "User's name is {v}."),
            (
                r"(?i:(?:(?:please|you can|you may|just|everyone|everybody|people|friends) )*call me) <v:name>",
                "User's name is {v}.",
            ),
            (r"I (?:go by|am called) <v:name>", "User's name is {v}."),
        ),
        scope="global",
        single=True,
        accept=w.is_name,
    ),
    Frame(
        "role",
        "identity",
        (
            (
                r"I am <now>(?:an? |the )<v:role in place>(?: (?!for (?:a|one) |at heart)(?:at|for|from|with|by) .*)?",
                "User is {a}.",
            ),
            (r"I <now>work <now>as (?:an? |the )<v:role in place>(?: (?:at|for|with) .*)?", "User is {a}."),
            (r"I <now>work <now>(?:at|for|with) <org> as (?:an? |the )<v:role>", "User is {a}."),
            (r"(?i:my (?:job|profession|occupation|role) is) (?:an? |the )?<v:role>", "User is {a}."),
        ),
        scope="global",
        dated=True,
        accept=w.is_role,
    ),
    Frame(
        "employer",
        "work",
        (
            (
                r"I <now>work <now>(?:(?:full|part)[- ]time |remotely )?(?:at|for) <v:org>(?: (?:as|in|on|with) .*)?",
                "User works at {v}.",
            ),
            (r"I am <now>(?:employed|working) (?:at|by|for) <v:org>(?: (?:as|in|on|with) .*)?", "User works at {v}."),
            (
                r"I <now>(?:work|am) <now>(?:as )?(?:an? |the )<role> (?:at|for) <v:org>(?: in .*)?",
                "User works at {v}.",
            ),
            (r"I have <now>(?:worked|been working) (?:at|for) <v:org><long>", "User works at {v}."),
            (r"I (?:have )?<now>joined <v:org> as .*", "User works at {v}."),
            (
                r"I (?:have )?<now>(?:started|got|took) a (?:new )?(?:job|position|role) (?:at|with) <v:org>(?: as .*)?",
                "User works at {v}.",
            ),
            (r"I (?:have )?<now>started (?:working )?at <v:org>(?: as .*)?", "User works at {v}."),
            (r"(?i:my employer is) <v:org>", "User works at {v}."),
        ),
        single=True,
        dated=True,
    ),
    Frame(
        "home",
        "identity",
        (
            (r"I <now>live <now>in <v:place>(?: (?:with|near|as) .*)?", "User lives in {v}."),
            (r"I am <now>(?:living|based|located) in <v:place>(?: (?:with|near) .*)?", "User lives in {v}."),
            (r"I have <now>(?:lived|been living) in <v:place><long>", "User lives in {v}."),
            (
                r"I (?:have )?<now>(?:moved|relocated) (?:back |out |over |down |up )?to <v:place>(?: (?:with|from) .*)?",
                "User lives in {v}.",
            ),
        ),
        scope="global",
        single=True,
        dated=True,
        accept=w.is_place,
    ),
    Frame(
        "origin",
        "identity",
        (
            (r"I (?:am|come) <now>(?:originally )?from <v:place>", "User is from {v}."),
            (r"I was born (?:and raised )?in <v:place>", "User was born in {v}."),
            (r"I grew up in <v:place>", "User grew up in {v}."),
        ),
    ),
    Frame(
        "languages",
        "skill",
        (
            (r"I <now>speak <v:languages>(?: fluently| natively| at home)?", "User speaks {v}."),
            (r"I am <now>fluent in <v:languages>", "User speaks {v}."),
            (
                r"(?i:my (?:native|first) (?:language|tongue) is|my mother tongue is) <v:language>",
                "User's first language is {v}.",
            ),
        ),
        scope="global",
    ),
    Frame(
        "diet",
        "constraint",
        (
            (r"I am (?:an? )?<now>(?:(?:strict|strictly|lifelong|committed) )?(?:an? )?<v:diet>", "User is {v}."),
            (r"I (?:have )?<now>(?:went|gone|turned|became|become) (?:an? )?(?:fully )?<v:diet>", "User is {v}."),
            (
                r"I <now>(?:am on|follow|eat|keep to) (?:an? )?(?:strict )?<v:kind of diet>(?: diet)?",
                "User follows a {v} diet.",
            ),
        ),
        scope="global",
        single=True,
        dated=True,
    ),
    Frame(
        "does not eat",
        "constraint",
        (
            (r"I <now>(?:do not|never|cannot) <now>(?:eat|have) (?:any )?<v:foods>", "User does not eat {v}."),
            (r"I <now>(?:do not|never|cannot) <now>drink (?:any )?<v:foods>", "User does not drink {v}."),
        ),
        scope="global",
    ),
    Frame(
        "allergy",
        "constraint",
        (
            (
                r"I am <now>(?:(?:severely|very|deathly|highly|mildly|extremely) )?allergic to <v:phrase>",
                "User is allergic to {v}.",
            ),
            (
                r"I have <now>an? (?:severe |bad |serious |mild )?(?P<v>[\w-]+(?: [\w-]+)?) allergy",
                "User is allergic to {v}.",
            ),
            (r"I am <now>(?P<v>lactose|gluten|histamine|fructose)[- ]intolerant", "User is {v} intolerant."),
        ),
        sensitive=True,
        accept=w.is_plain,
    ),
    Frame(
        "health",
        "constraint",
        (
            (r"I (?:was|got|have|have been) ?<now>(?:been )?diagnosed with <v:phrase>", "User was diagnosed with {v}."),
            (r"I <now>(?:have|suffer from) <v:illness>", "User has {v}."),
            (r"I am <now><v:condition>", "User is {v}."),
            (r"I <now>use <v:aid>", "User uses {v}."),
        ),
        sensitive=True,
        dated=True,
        accept=lambda value: w.is_thing(value, 5),
    ),
    Frame(
        "belief",
        "other",
        ((r"I am <now>(?:an? )?(?:practi[cs]ing |devout )?<v:belief>", "User is {v}."),),
        sensitive=True,
    ),
    Frame(
        "time zone",
        "constraint",
        (
            (r"(?i:my time ?zone is) (?:the )?<v:zone>(?: time)?", "User's time zone is {v}."),
            (r"I am <now>in (?:the )?<v:zone> time ?zone", "User's time zone is {v}."),
        ),
        scope="global",
        single=True,
    ),
    Frame(
        "limits",
        "constraint",
        (
            (r"I (?:do not|cannot) (?P<v>drive|swim|fly|cook)(?: a car)?", "User does not {v}."),
            (r"I am <now>(?P<v>left-handed|right-handed|ambidextrous)", "User is {v}."),
            (r"I <now>work (?P<v>night shifts|nights|part[- ]time|from home|remotely|weekends)", "User works {v}."),
        ),
    ),
    Frame(
        "experience",
        "skill",
        (
            (
                r"I have <now>(?P<v>(?:(?:over|more than|about|around|almost|nearly) )?(?:\d{1,2}|[a-z]+) years of (?:\w+ )?experience "
                r"(?:in|with|as|using) <phrase>)",
                "User has {v}.",
            ),
            (r"I <now>speciali[sz]e in <v:phrase>", "User specializes in {v}."),
            (r"I am <now>(?:very |pretty |quite |highly )?(?P<v><level> <phrase>)", "User is {v}."),
            (r"I have (?P<v>a <degree> in <phrase>)", "User has {v}."),
        ),
        accept=lambda value: w.is_thing(re.split(r" (?:in|on|at|with|to|as|using) ", value)[-1], 6),
    ),
    Frame(
        "learning",
        "skill",
        (
            (
                r"I am <now>(?:learning|studying|teaching myself) (?P<v>(?:how )?to <skill>(?: [\w-]+){0,3}?)",
                "User is learning {v}.",
            ),
            (r"I am <now>(?:learning|studying|teaching myself) (?!to |how )<v:phrase>", "User is learning {v}."),
            (
                r"I (?:have )?<now>(?:started|begun|began) (?:learning|studying) (?!to |how )<v:phrase>",
                "User is learning {v}.",
            ),
        ),
        dated=True,
        accept=lambda value: w.is_plain(re.sub(r"^(?:how )?to ", "", value), 5),
    ),
    Frame(
        "project",
        "work",
        ((r"I am <now>(?:working on|writing|building|developing|making) <v:work>", "User is working on {v}."),),
        dated=True,
        accept=lambda value: w.is_thing(value, 10),
    ),
    Frame(
        "business",
        "work",
        (
            (r"I <now>(?:own|run) <v:business>", "User runs {v}."),
            (
                r"I (?:have )?<now>(?:started|opened|launched|founded) <v:business>(?: not (?:so|too) long ago| a while (?:ago|back))?",
                "User started {v}.",
            ),
        ),
        dated=True,
    ),
    Frame(
        "goal",
        "work",
        (
            (
                r"I am <now>(?:training|preparing|studying) for (?P<v>(?:my|an?|the) [\w'-]+(?: [\w'-]+){0,3}?)",
                "User is preparing for {v}.",
            ),
            (r"I <now>want to become an? <v:role>", "User wants to become {a}."),
            (
                r"(?i:my (?:main |long-term |big |biggest )?(?:goal|dream|ambition) is) (?P<v>to <phrase>(?: <phrase>)?)",
                "User's goal is {v}.",
            ),
        ),
        accept=lambda value: w.is_thing(value.removeprefix("to "), 12),
    ),
    Frame(
        "volunteering",
        "other",
        (
            (
                r"I (?:<now>volunteer|have <now>been volunteering|am <now>volunteering|(?:have )?<now>started volunteering) at <v:phrase>",
                "User volunteers at {v}.",
            ),
        ),
        dated=True,
        accept=lambda value: w.is_thing(value, 8),
    ),
    Frame(
        "class",
        "skill",
        (
            (
                r"I (?:am <now>taking|have <now>been taking) (?P<v>(?:an? )?(?:[a-z]+ ){1,3}?(?:class|classes|course|lessons))",
                "User is taking {v}.",
            ),
        ),
        accept=lambda value: w.is_thing(value, 4),
    ),
    Frame(
        "plays",
        "skill",
        (
            (r"I <now>play (?:the )?(?P<v><instrument>|<sport>)(?: in an? .*)?", "User plays {v}."),
            (
                r"I (?:have )?<now>(?:been playing|started playing) (?:the )?(?P<v><instrument>|<sport>)<long>",
                "User plays {v}.",
            ),
        ),
        dated=True,
    ),
    Frame(
        "passion",
        "preference",
        (
            (
                r"I (?:am|have <now>been) <now>(?:so |very |super )?passionate about <v:phrase>",
                "User is passionate about {v}.",
            ),
            (r"I am <now>(?:so |very |super )?keen on <v:phrase>", "User is keen on {v}."),
            (r"I (?:am|have <now>been) <now>(?:very |super )?into <v:phrase>", "User is into {v}."),
            (r"I (?:<now>blog|have <now>been blogging|am <now>blogging) about <v:phrase>", "User blogs about {v}."),
        ),
        accept=lambda value: w.is_plain(value, 6),
    ),
    Frame(
        "uses",
        "preference",
        (
            (
                r"I <now>(?:use|code in|program in|am using) (?P<v><tool>(?: (?:for|at|on) [\w'-]+(?: [\w'-]+){0,3}?)?)"
                r"(?: every day| daily)?",
                "User uses {v}.",
            ),
        ),
        dated=True,
        accept=lambda value: w.is_plain(value, 9),
    ),
    Frame(
        "preference",
        "preference",
        (
            (
                r"I (?:(?:strongly|much|generally|usually|really|always|also|still|now) )*prefer "
                r"(?P<v><phrase>(?: (?:over|to|rather than|instead of) <phrase>)?)",
                "User prefers {v}.",
            ),
        ),
        accept=lambda value: w.is_thing(re.split(r" (?:over|to|rather|instead) ", value.removeprefix("to "))[0], 8),
    ),
    Frame(
        "favorite",
        "preference",
        (
            (
                r"(?i:my (?:all-time |absolute )?favou?rite) (?P<k>[\w-]+(?: [\w-]+){0,2}) (?:is|are) <v:phrase>",
                "User's favorite {k} is {v}.",
            ),
        ),
        single=True,
        accept=lambda value: w.is_thing(value, 5),
    ),
    Frame(
        "taste",
        "preference",
        (
            (r"I (?:(?:really|absolutely|still|also|just|now|truly) )*<v:like> <k:phrase>", "User {verbs} {k}."),
            (r"I have always (?P<v>loved|liked|enjoyed|hated|disliked) <k:phrase>", "User has always {v} {k}."),
            (r"I am <now>a (?:(?:big|huge|massive|great|real) )?(?P<v>fan) of <k:phrase>", "User likes {k}."),
        ),
        single=True,
    ),
    Frame(
        "habit",
        "preference",
        ((r"I always <v:habit>", "User always {verbs}."), (r"I never <v:habit>", "User never {verbs}.")),
        accept=lambda value: w.is_plain(value, 9),
    ),
    Frame(
        "pet",
        "other",
        (
            (r"I <now>have (?P<v><pet> (?:named|called) <capital>)", "User has {v}."),
            (r"I (?:have )?<now>(?:got|adopted) (?P<v><pet>)", "User has {v}."),
        ),
        dated=True,
    ),
)


def pattern(said: str) -> re.Pattern[str]:
    """A pattern of the table, its kinds filled in, for a whole clause."""
    named = re.sub(r"<([vk]):([a-z ]+)>", lambda found: f"(?P<{found[1]}>{_KINDS[found[2]]})", said)
    tail = _OPEN_TAIL if re.search("[<:](?:phrase|habit|work)>", said) else TAIL
    return re.compile(re.sub(r"(?<!\?P)<([a-z ]+)>", lambda found: f"(?:{_KINDS[found[1]]})", named) + tail)

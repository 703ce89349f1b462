"""People with twenty facts each, and messages of twenty words about one of them."""

import itertools

from tests.bench.bench import Bench
from tests.support.system import System

_TOPICS = (
    ("Works as a nurse in the emergency room of a city hospital", "long night shift at the hospital"),
    ("Is allergic to peanuts and carries an injector", "dinner without any peanuts in it"),
    ("Prefers Python over Java for small tools", "small Python tool for my notes"),
    ("Lives in Lisbon near the river", "good walk along the river in Lisbon"),
    ("Is learning to play the cello", "practice plan for the cello"),
    ("Has two daughters who swim in a club", "swimming club for my daughters"),
    ("Drives an old diesel van and camps in it", "camping trip with the old van"),
    ("Wants answers in short bullet points", "answer in short bullet points"),
    ("Runs half marathons in spring", "training for a half marathon in spring"),
    ("Speaks Portuguese and some German", "German phrases for a visit to Berlin"),
    ("Keeps bees on the roof of the house", "feeding the bees on the roof in winter"),
    ("Is vegetarian on weekdays", "vegetarian lunch for a weekday"),
    ("Uses a standing desk because of back pain", "exercise against back pain at the desk"),
    ("Collects vinyl records of old jazz", "jazz record to give as a present"),
    ("Is writing a thesis about tidal power", "chapter of my thesis about tidal power"),
    ("Never flies, takes trains instead", "night train across the border"),
    ("Brews coffee by hand with a scale", "coffee recipe with exact weights"),
    ("Plays chess by mail with an uncle", "chess opening for my game by mail"),
    ("Repairs bicycles for neighbours", "gear of a bicycle that slips"),
    ("Reads crime novels from Scotland", "crime novel from Scotland for the holidays"),
)
FACT_TEXTS = [fact for fact, _ in _TOPICS]
_NUMBERS = itertools.count(1)


def message() -> str:
    """Twenty words that nobody said before, so that no vector of them is kept."""
    number = next(_NUMBERS)
    about = _TOPICS[number % len(_TOPICS)][1]
    text = f"Before {number} other things are done today, please help me with a {about} and tell me what matters most there now"
    return " ".join(text.split()[:20])


def give_facts(bench: Bench, system: System, people: int) -> list[str]:
    """Makes people with twenty facts in the default workspace each; answers their ids."""
    users = [f"person-{number}" for number in range(people)]
    bench.say(f"{people} people with {len(FACT_TEXTS)} facts each")
    with system.client("memory_store") as client:
        for user, fact in itertools.product(users, FACT_TEXTS):
            body = {"user": user, "workspace": "default", "content": fact}
            client.post("/v1/facts", json=body).raise_for_status()
    return users

"""Whether a message is English, for what was measured in English alone: the first person and the floor."""

import re

from services.injection.ranking.scripts import main_script

_WORD = re.compile(r"[^\W\d_]+")
# Frequent words that tell languages in Latin letters apart. Words that two sides share ("do", "to", "in", "me", "was") are in neither.
_ENGLISH = frozenset(
    _WORD.findall(
        "the is are were what which who where when how why should could would will have has had with of and not that this it about "
        "like love hate want need work live know think been can did does for you my please hello thanks"
    )
)
_OTHER = frozenset(
    _WORD.findall(
        "el la los las una que qué cómo dónde cuál mi mis yo tu para por está es son como soy tengo hola gracias "  # Spanish
        "le les des une est sont je mon ma mes il elle nous vous et dans où comment quel quelle avec pour qui bonjour merci "
        "der das ein eine ich mein meine und ist nicht wie wo wer welche mit für habe bin soll hallo danke kann "  # German
        "che di il lo gli della sono mio mia dove cosa come quale ho ciao grazie quanto "  # Italian
        "o os uma meu minha eu não é com onde qual você são estou tenho olá obrigado quanto "  # Portuguese
        "de het een ik mijn niet waar wat welke hoe met voor heb ben "  # Dutch
        "jest nie jak gdzie się czy co mój moja jestem mam dla cześć dziękuję kto "  # Polish
        "bir ve ne nerede nasıl ben benim mi için bu var hangi merhaba"  # Turkish
    )
)


def is_english(text: str) -> bool:
    """Told by frequent words; a Latin text that has none ("hi", "SQL joins") counts as English unless it has other letters than ASCII."""
    if main_script(text) not in ("LATIN", None):
        return False
    words = _WORD.findall(text.lower())
    english = sum(word in _ENGLISH for word in words)
    other = sum(word in _OTHER for word in words)
    if english != other:
        return english > other
    return "".join(words).isascii()

"""Which strings are secrets: one `Rule` a kind. To teach another, add a line to a table below and a row to its test.

Every pattern is tried only where one of its stems stands, and every repetition is bounded or possessive, so that a rule costs a constant
at each stem.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """`pattern` is matched where a stem (lower case) begins; `accept` decides on the match.

    The secret is the group `q` (quoted), else `v`, else all of the match.
    """

    kind: str
    stems: tuple[str, ...]
    pattern: re.Pattern[str]
    accept: Callable[[re.Match[str]], bool]


def secret_span(match: re.Match[str]) -> tuple[int, int]:
    """Where in the looked-at text the secret itself stands, without the sentence's punctuation after it."""
    groups = match.re.groupindex
    if "q" in groups and match["q"] is not None:
        return match.span("q")
    start, end = match.span("v") if "v" in groups else match.span()
    return start, start + len(match.string[start:end].rstrip(".,;:!?"))


def _value(match: re.Match[str]) -> str:
    """Its first 64 characters, enough to judge it by."""
    start, end = secret_span(match)
    return match.string[start : min(end, start + 64)]


# --- How a secret is stated: a word for it, perhaps what it is for, a separator, the value --------------------------------------------

_QUOTED = r"""\\?["'`“„«「『](?P<q>[^\n"'`”“»」』]{1,200})["'`”“»」』]"""
_BARE = r"""(?P<v>[^\s"'`“”„«»「」『』<，。、；！？）)\]}]{1,200})"""
_IS = r"is|was|are|equals|set\s{1,2}to|changed\s{1,2}to|ist|lautet|es|est|é|è|jest|là|adalah|är"
_NOW = r"(?:\s{1,2}(?:now|still|currently|just|simply|actually|jetzt|ahora|maintenant))?"
_SEPARATOR = (
    rf"""(?:\\?["'`*]{{1,2}})?(?P<sep>\s{{0,3}}(?:=>|:=|={{1,2}}|[:>])\s{{0,3}}|\s{{1,3}}(?:{_IS}){_NOW}(?:\s{{0,2}}:)?\s{{1,3}}|\s{{1,2}})"""
    r"(?:\*{1,2}\s{0,3})?"
)
_PURPOSE = r"(?:\s{1,2}(?:for|to|of|on|at|in|para|für|pour|de|do|da|di|del|voor)\s[^\n:=.?!]{1,40}?)?"


def _stated(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{words})[\w-]{{0,16}}{_PURPOSE}{_SEPARATOR}(?={_QUOTED}|{_BARE})", re.I)


# --- What a value looks like ------------------------------------------------------------------------------------------------------------

_LETTER_AND_DIGIT = re.compile(r"(?=.*?\d).*?[^\W\d_]")
_DIGIT = re.compile(r".*?\d")
_MIXED = re.compile(r".*?(?:\w[@#$%^&*+=~|\\!?]\w|[a-z][A-Z])")
_HIDDEN = re.compile(r"\W*\Z|\[secret|\$\{|\$\(|[<{%]|\W*(?:x{3,}|your|my[_-]|example)", re.I)
_CODE = re.compile(r"[A-Za-z_][\w.]*[(\[]|process\.env|os\.environ|self\.")
_MEASURE = re.compile(
    r"\d{1,3}\W{1,3}\d{1,3}\Z|\d{1,3}\Z|\d{1,5}[+-]?(?:k|m|x|bits?|bytes?|char|letter|digit|day|hour|minute|min\Z|s\Z)"
    r"|[2m]fa|\d{4}-\d\d",
    re.I,
)
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\Z", re.I)
_TOKEN = re.compile(r"[A-Za-z0-9_\-+/=.~:@]{6,}(?:[&;,].*)?\Z")
_ORDINARY_END = ("ed", "ing", "able", "ible", "ly", "ous", "ful", "less", "ive", "ent", "ant", "est", "ic", "al", "words")  # fmt: skip
_ORDINARY_WORDS = (
    "an the too very so not none null nil true false wrong right correct incorrect valid invalid weak strong "
    "secure insecure safe unsafe long short good same fine okay here there this that these what which your their "
    "our blank empty private known unknown simple easy hard complex unique gone lost stuck broken hidden enough "
    "only always never still also just because when from with like string text varchar stolen written forgotten "
    "taken ready random mine yours common obvious terrible horrible mandatory out off down case better longer "
    "shorter stronger weaker easier harder safer older newer alphanumeric length hash hint reset "
)
_ORDINARY = frozenset(_ORDINARY_WORDS.split())
_ENDS_HERE = re.compile(
    r"""["'`*)\]]{0,3}(?:[.!?;,]{1,3}(?:\s|\Z)|\s{0,3}(?:\n|\Z)|\s(?:and|but|so|please)\s)""",
)


def _is_password(match: re.Match[str]) -> bool:
    """After a word for password nearly all that could be one counts: only ordinary words, lengths and code are let go."""
    value = _value(match)
    quoted, said = match["q"] is not None, match["sep"].strip().lower()
    if len(value) < 4 or _HIDDEN.match(value) or _MEASURE.match(value) or _CODE.match(value) or value.startswith("//"):
        return False
    if not said and not quoted:
        return len(value) >= 6 and _LETTER_AND_DIGIT.match(value) is not None
    if _DIGIT.match(value) or _MIXED.match(value):
        return True
    if value.lower() in _ORDINARY or (value.isalpha() and value.lower().endswith(_ORDINARY_END)) or "/" in value:
        return False
    return quoted or (
        said in {"is", "was", ":", "=", "is now", "is:"}
        and _ENDS_HERE.match(match.string, secret_span(match)[1]) is not None
    )


_NAMED_KEY = re.compile(
    r".*(?:api|access|secret|private|auth|encryption|signing|licen[sc]e|account|client|service|admin|master)[\s_-]{0,2}\Z",
    re.I | re.S,
)


def _is_token(match: re.Match[str]) -> bool:
    """Letters and digits, eight or more; sixteen after "key" alone, a word for many harmless things."""
    value, word = _value(match), match[0][:3].lower()
    if (
        not match["sep"].strip()
        or not _TOKEN.match(value)
        or _HIDDEN.match(value)
        or _MEASURE.match(value)
        or _CODE.match(value)
    ):
        return False
    if word == "key" and not _NAMED_KEY.match(match.string[max(0, match.start() - 24) : match.start()]):
        return (
            len(value) >= 16
            and "/" not in value
            and not _UUID.match(value)
            and _LETTER_AND_DIGIT.match(value) is not None
        )
    if _LETTER_AND_DIGIT.match(value):
        return len(value) >= (6 if word == "sec" else 8)
    return len(value) >= 12 and _MIXED.match(value) is not None and (match["q"] is not None or "=" in match["sep"])


def _always(_: re.Match[str]) -> bool:
    return True


def _digit_or_long(match: re.Match[str]) -> bool:
    value = _value(match)
    return len(value) >= 20 or _DIGIT.match(value) is not None


def _after_passphrase(match: re.Match[str]) -> bool:
    return _ENDS_HERE.match(match.string, match.end()) is not None


# --- The rules, in groups by what a text must show before they are worth asking -----------------------------------------------

_PLAIN_WORDS = r"(?:(?!(?:the|for|to|is|and|not|that|of|in|you|it|was|too|so)\b)[a-z]{3,12}[ ,-]{1,2})"

# Asked of every text.
ALWAYS = (
    Rule(
        "password",
        ("pass", "pwd"),
        _stated(r"pass(?:word|wd|wort|phrase|code|key|e\b)|(?<![a-z])pass(?=\s{0,2}[:=])|pwd"),
        _is_password,
    ),
    Rule(
        "password",
        ("phrase",),
        re.compile(
            rf"(?<=pass)phrase(?:\s{{1,2}}is|\s{{0,2}}[:=])\s{{1,3}}(?P<v>{_PLAIN_WORDS}{{2,7}}[a-z]{{3,12}})", re.I
        ),
        _after_passphrase,
    ),
    Rule(  # seed phrases of 12 to 24 words
        "password",
        ("phrase",),
        re.compile(
            rf"phrase(?:\s{{1,2}}(?:is|are)|\s{{0,2}}[:=])?\s{{1,3}}[\"'“]?(?P<v>{_PLAIN_WORDS}{{11,23}}[a-z]{{3,12}})",
            re.I,
        ),
        _always,
    ),
)
# Asked where an @ stands.
ADDRESSES = (Rule("password", ("://",), re.compile(r"://[^\s/:@]{0,100}:(?P<v>(?!\[secret)[^\s/]{1,200})@"), _always),)
# Asked where three digits stand together.
NUMBERS = (
    Rule(
        "pin",
        ("pin ", "pin:", "cvv", "cvc", "security code"),
        re.compile(
            r"(?<![a-z])(?:pin|cvv2?|cvc2?|security)(?:\s{1,2}(?:code|number))?"
            r"(?:\s{0,2}[:=]\s{0,2}|\s{1,2}(?:is|ist|es|est)\s{1,2}|\s)(?P<v>[0-9]{3,8})(?![\w.])",
            re.I,
        ),
        _always,
    ),
)
# Asked where a letter or `_` touches a digit, or sixteen of them stand together.
MIXED = (
    Rule("token", ("secret", "token", "credential", "key"), _stated(r"secret|token|credential|key"), _is_token),
    Rule(
        "token",
        ("bearer ",),
        re.compile(r"(?<![a-z])bearer\s{1,3}(?P<v>[A-Za-z0-9._~+/=-]{8,}+)", re.I),
        _digit_or_long,
    ),
    Rule(
        "token",
        ("authorization",),
        re.compile(
            r"""authorization\\?["']?\s{0,2}[:=]\s{0,2}\\?["']?(?:basic|bearer|token|digest|apikey)\s{1,3}"""
            r"(?P<v>[A-Za-z0-9._~+/=-]{6,}+)",
            re.I,
        ),
        _always,
    ),
    Rule(  # to its end, or as far as a cut one goes
        "private_key",
        ("-----begin",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----"
            r"(?:(?:[^-]|-(?!----))*+-----END[^-\n]{0,60}-----|(?:(?:\s|\\n){0,4}[A-Za-z0-9+/=]{16,}+)*+)",
            re.I,
        ),
        _always,
    ),
    Rule(
        "api_key",
        ("sk-", "sk_"),
        re.compile(r"(?<![A-Za-z0-9])sk[-_](?:[a-z]{2,10}[-_]){0,3}[A-Za-z0-9_-]{8,}+", re.I),
        _digit_or_long,
    ),
)
# Asked at each unbroken run of thirteen letters, digits, `_` and `-`, where it begins.
_PREFIXES = (
    "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- AIza hf_ gsk_ xai- pplx- tvly- nvapi- r8_ lin_api_ ntn_ figd_ dckr_pat_ "
    "ATATT3 dop_v1_ shpat_ sq0atp- sbp_ pypi- npm_ EAAC ks_ AGE-SECRET-KEY-1"
)
KEY = re.compile(
    rf"(?P<api_key>(?:{_PREFIXES.replace(' ', '|')})[A-Za-z0-9_-]{{16,}}+|xox[abeprs]-[A-Za-z0-9-]{{8,}}+"
    r"|xapp-[A-Za-z0-9-]{8,}+|A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])|[rp]k_(?:live|test)_[A-Za-z0-9]{8,}+"
    r"|whsec_[A-Za-z0-9]{8,}+|key-[0-9a-f]{32}(?![A-Za-z0-9])"
    r"|(?:(?<=\bya29\.)|(?<=\bSG\.))[A-Za-z0-9._-]{16,}+|(?<=[0-9]{8}:)AA[A-Za-z0-9_-]{30,}+)"
    r"|(?P<jwt>eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)*+)",
    re.ASCII,
)
# Words for password in other languages, asked with MIXED or NUMBERS.
_LATIN = ("kennwort", "wachtwoord", "contrase", "senha", "clave", "parola", "mat khau", "kata sandi", "haslo", "heslo")
LATIN = (Rule("password", _LATIN, _stated(rf"contrase[ñn]as?|(?<![a-z])clave|{'|'.join(_LATIN)}"), _is_password),)
# Words that are not ASCII, asked where one stands.
_ACCENTED = ("şifre", "mật khẩu", "lösenord", "hasło", "jelszó")
_OTHER = (
    *(
        "密码",
        "密碼",
        "口令",
        "凭证",
        "憑證",
        "凭据",
        "令牌",
        "密钥",
        "密鑰",
        "パスワード",
        "暗証番号",
        "비밀번호",
        "패스워드",
        "암호",
    ),
    *("пароль", "كلمة المرور", "كلمة السر", "الرقم السري", "رمز عبور", "סיסמה", "סיסמא", "पासवर्ड", "κωδικ", "รหัสผ่าน"),
)
_SAID = re.compile(r"[^!-~]{0,12}?[是为為叫はが는은—]|[^!-~]*[:=]")


def _is_password_in_another_script(match: re.Match[str]) -> bool:
    value = _value(match)
    if len(value) < 4 or _HIDDEN.match(value) or _MEASURE.match(value):
        return False
    return _SAID.match(match["between"]) is not None or _LETTER_AND_DIGIT.match(value) is not None


FOREIGN = (
    Rule(
        "password",
        (*_OTHER, "Пароль", "Κωδικ"),
        re.compile(
            rf"(?:{'|'.join(_OTHER)})(?P<between>[^\n!-~]{{0,24}}?[:=]?[^\n!-~]{{0,3}})"
            r"[\"'`]?(?P<v>[!#-&(-;=-_a-~]{4,200})",
            re.I,
        ),
        _is_password_in_another_script,
    ),
    Rule(
        "password",
        tuple(form for word in _ACCENTED for form in (word, word.capitalize())),
        _stated("|".join(_ACCENTED)),
        _is_password,
    ),
)

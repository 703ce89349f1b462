"""What a fact from a model or an agent may not hold: markup, and data by which a person can be reached or identified.

Both are asked of a fact's content, which has at most 500 characters; a text of over 2,000 is refused unread. Every repetition is
bounded, so the time they take is too.
"""

import re

_LONGEST = 2_000

_MARKUP = re.compile(
    r"[a-z][a-z0-9+.-]{1,15}://|\bwww\.\w|\b(?:javascript|data|vbscript|mailto|file):\S"  # URLs
    r"|\b[a-z0-9-]{1,63}\.[a-z]{2,24}/[\w%~#?-]"
    r"|\]\s?\(|\]\[|!\["  # Markdown links and images
    r"|</?[a-z][a-z0-9:-]{0,40}[\s/>]|<[!?]|</?[a-z][a-z0-9:-]{0,40}\Z"  # HTML
    r"|```|~~~",
    re.I,
)

_NAMED_NUMBER = re.compile(
    r"\b(?:phone|telephone|tel|mobile|cell|whatsapp|fax|passport|ssn|social\ssecurity|national\sid|id\scard|tax\sid|licen[cs]e|"
    r"nhs|dni|nif|cpf|aadhaar|iban|account)\b[^\d\n]{0,40}\d(?:[\d\s().-]{0,4}\d){4}"
    r"|(?:电话|手机|身份证|护照|電話|携帯|전화|телефон|паспорт)[^\d\n]{0,20}\d(?:[\d\s().-]{0,4}\d){4}",
    re.I,
)
_STREET = r"(?:street|avenue|boulevard|strasse|straße)"
_CONTACT = re.compile(
    r"(?<=[\w+-])@[\w-]{1,63}\.[\w-]{2,63}"  # e-mail, also spelled out
    r"|(?:[([]at[)\]]|\sat\s)\s{0,2}[\w-]{1,40}\s{0,2}(?:[([]dot[)\]]|\sdot\s)\s{0,2}\w"
    r"|\+\d(?:[\s().-]{0,2}\d){7}"  # phone: international, grouped, national
    r"|(?<![\w.-])\(?\d{3}\)?[\s.-]{1,2}\d{3,4}[\s.-]\d{4}(?![\w-])"
    r"|(?<![\w.-])\(?0\d(?:[\s()/.-]{0,2}\d){7}"
    r"|(?<!\w)\d{3}-\d{2}-\d{4}(?!\w)"  # numbers of identity: US, UK, Spain, IBAN, and any of ten digits or more
    r"|\b[A-CEGHJ-PR-TW-Z]{2}\s?\d{2}\s?\d{2}\s?\d{2}\s?[A-D]\b"
    r"|\b\d{8}-?[A-Z]\b|\b[A-Z]{2}\d{2}(?:\s?[A-Z0-9]{4}){3}"
    r"|(?<!\d)\d{10}"
    r"|\b\d{1,5}[A-Za-z]?\s(?:[A-Z][\w'.-]{0,30}\s){1,4}(?:St|Ave|Rd|Ln|Dr|Blvd|Ct|Road|Lane|Drive|Court|Way|Place|Pl|Square|Terrace|Highway)\b"
    rf"|\b\d{{1,5}}[A-Za-z]?\s(?:[\w'.-]{{1,30}}\s){{1,2}}{_STREET}\b|\b\d{{1,5}}[A-Za-z]?\s(?:[\w'.-]{{1,30}}\s){{0,2}}(?i:{_STREET})\b"
    r"|\w{2,30}(?:straße|strasse|str\.|gasse|allee|platz|weg)\s\d{1,4}\b"
    r"|\b(?i:calle|avenida|plaza|rue|via|viale|piazza|rua)\s[\w .'-]{2,40}?,?\s(?:n[º°o]\.?\s?)?\d{1,4}\b"
    r"|\b\d{1,4},?\s(?:bis\s)?(?i:rue|avenue|boulevard|place|chemin)\s(?:de|du|des|d'|la|le)"
    r"|\b(?i:p\.?\s?o\.?\sbox)\s\d|\b[A-Z]{1,2}\d[A-Z\d]?\s\d[A-Z]{2}\b|\b[A-Z]{2}\s\d{5}\b"
    r"|[路街道巷弄]\d{1,5}号|〒\s?\d{3}|\d丁目",
)


def has_markup(content: str) -> bool:
    """A URL, a Markdown link or image, an HTML tag or a code fence."""
    return len(content) > _LONGEST or _MARKUP.search(content) is not None


def has_contact_data(content: str) -> bool:
    """An e-mail or postal address, a phone number, or a number that identifies a person."""
    return len(content) > _LONGEST or _CONTACT.search(content) is not None or _NAMED_NUMBER.search(content) is not None

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.text.secrets import MARK, has_secret, redact

JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq\nabcdefghijklmnopqrstuvwxyz012345\n-----END RSA PRIVATE KEY-----"
ENCRYPTED_PEM = PEM.replace("MIIEowIBAAKCAQEA7bq", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,F5\n\nMIIEowIBAA")
CUT_PEM = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE\nbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW"
)

# (text, the part that must be gone)
SECRETS = [
    ("my key is sk-abc123def456ghi789", "sk-abc123def456ghi789"),
    ("my key is sk-proj-4f8a9b2c1d3e5f6a", "4f8a9b2c"),
    ("use sk-ant-api03-Zx9Yw8Vu7Ts6 please", "Zx9Yw8Vu7Ts6"),
    ("stripe sk_test_51HabcDEF and sk_live_99zzYY88", "51HabcDEF"),
    ("sk_test_4eC39HqLyjWDarjtT1zdp7dc", "4eC39"),
    ("凭证为sk_test_51Habcdef12345", "51Habcdef"),
    ("密钥是sk-abc123def456ghi789，请保密", "sk-abc123def456ghi789"),
    ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F"),
    ("github_pat_11ABCDEFG0abcdefghijklmnop_qrstuv", "11ABCDEFG0"),
    ("glpat-abc123DEF456ghi789jk", "abc123DEF"),
    ("aws AKIAIOSFODNN7EXAMPLE ok", "AKIAIOSFODNN7EXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "bPxRfiCY"),
    ("slack xoxb-123456789012-abcdefABCDEF", "xoxb-123456789012"),
    ("AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe", "AIzaSyDaGm"),
    ("hf_abcdefghijklmnopqrstuvwxyz123456", "abcdefghij"),
    ("ks_0123456789abcdefABCDEF0123456789abcdef", "0123456789abcdef"),
    (f"token {JWT} end", "eyJhbGci"),
    (f"我的{JWT}", "dozjgNryP4J3jVmNHl0w5N"),
    (PEM, "MIIEowIBAAKCAQEA7bq"),
    (f"here:\n{PEM}\nand thanks", "abcdefghijklmnopqrstuvwxyz012345"),
    (ENCRYPTED_PEM, "MIIEowIBAA"),
    (CUT_PEM, "bm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW"),
    (PEM.replace("\n", "\\n"), "MIIEowIBAAKCAQEA7bq"),
    ("Authorization: Bearer abcdef1234567890", "abcdef1234567890"),
    ("curl -H 'Authorization: Basic dXNlcjpwYXNzdzByZA=='", "dXNlcjpwYXNzdzByZA"),
    ("bearer 8f7a9b2c4d5e", "8f7a9b2c4d5e"),
    ("my password is hunter2", "hunter2"),
    ("my password is swordfish.", "swordfish"),
    ("My password is 'correct horse battery'", "correct horse battery"),
    ("My passphrase is correct horse battery staple.", "battery"),
    ("password: Tr0ub4dor&3", "Tr0ub4dor"),
    ("Password:hunter2", "hunter2"),
    ("**Password:** hunter2", "hunter2"),
    ("user: bob pass: letmein99", "letmein99"),
    ("login bob, pwd=letmein", "letmein"),
    ("the password for gmail is hunter2", "hunter2"),
    ("my Netflix password was Summer2023!", "Summer2023"),
    ("use password hunter22 to log in", "hunter22"),
    ("mysql --password=s3cr3tpw", "s3cr3tpw"),
    ('{"user": "bob", "password": "swordfish"}', "swordfish"),
    ('{\\"password\\": \\"swordfish\\"}', "swordfish"),
    ("DB_PASSWORD_PROD=Xy7pq", "Xy7pq"),
    ("passwd = 12345678", "12345678"),
    ("my password is 123456", "123456"),
    ("mi contraseña es perro123", "perro123"),
    ("Contraseña: gato-99x", "gato-99x"),
    ("mon mot de passe est chien123", "chien123"),
    ("Mot de passe : chien123", "chien123"),
    ("mein Passwort ist hund123", "hund123"),
    ("Das Kennwort lautet hund123", "hund123"),
    ("minha senha é gato123", "gato123"),
    ("la mia password è gatto123", "gatto123"),
    ("mijn wachtwoord is hond123", "hond123"),
    ("moje hasło: pies123", "pies123"),
    ("şifrem: kedi1234", "kedi1234"),
    ("мой пароль hunter2", "hunter2"),
    ("Пароль: Qwerty123", "Qwerty123"),
    ("пароль от почты — qwerty99", "qwerty99"),
    ("我的密码是hunter2", "hunter2"),
    ("密码：swordfish", "swordfish"),
    ("密码是123456，别告诉别人", "123456"),
    ("口令为abcd1234", "abcd1234"),
    ("凭证：abcd1234", "abcd1234"),
    ("パスワードはsakura99です", "sakura99"),
    ("비밀번호는 abcd1234 입니다", "abcd1234"),
    ("كلمة المرور هي abcd1234", "abcd1234"),
    ("הסיסמה שלי היא abcd1234", "abcd1234"),
    ("मेरा पासवर्ड abcd1234 है", "abcd1234"),
    ("api_key = 9f8e7d6c5b4a", "9f8e7d6c5b4a"),
    ("API key: 9f8e7d6c5b4a", "9f8e7d6c5b4a"),
    ("my api key is 550e8400-e29b-41d4-a716-446655440000", "550e8400"),
    ("the access token is abc123def456", "abc123def456"),
    ("client_secret: 'a1b2c3d4'", "a1b2c3d4"),
    ("https://x.example/cb?access_token=abc123def456&x=1", "abc123def456"),
    ("X-Api-Key: 12ab34cd56ef", "12ab34cd56ef"),
    ("postgres://app:s3cr3t@db.internal:5432/app", "s3cr3t"),
    ("mongodb+srv://root:pa%24s@cluster0.example.net/x", "pa%24s"),
    ("redis://:hushhush@cache:6379", "hushhush"),
    ("amqp://guest:p@ss@mq/", "p@ss"),
    ("Server=db;User Id=sa;Password=Sup3r;", "Sup3r"),
    ("my PIN is 4711", "4711"),
    ("CVV 123", "123"),
    ("seed phrase: witch collapse practice feed shame open despair creek road again ice least", "despair"),
    ("my card is 4111111111111111", "4111111111111111"),
    ("card 4111 1111 1111 1111, exp 12/27", "1111 1111"),
    ("5555-5555-5555-4444", "5555-5555"),
    ("amex 3782 822463 10005", "822463"),
    ("银行卡号4111111111111111谢谢", "4111111111111111"),
    ("1234 4111 1111 1111 1111", "4111 1111 1111 1111"),
    ("４１１１１１１１１１１１１１１１", "４１１１"),
    ("٤١١١١١١١١١١١١١١١", "٤١١١"),
    ("4111\u00a01111\u00a01111\u00a01111", "1111\u00a01111"),
    ("ｐａｓｓｗｏｒｄ：ｈｕｎｔｅｒ２", "ｈｕｎｔｅｒ２"),
    ("ｓｋ－ａｂｃ１２３ｄｅｆ４５６ｇｈｉ７８９", "ａｂｃ１２３"),
    ("my key is sk-abc1\u200b23def\u200b456ghi789", "123"),
    ("my key is sk-abc1\u200b23def\u200b456ghi789", "def"),
    ("pass\u200bword: hun\u200bter2", "ter2"),
    ("4111\u200b1111\u200d1111\u206011\ufeff11", "4111"),
    ("𝚙𝚊𝚜𝚜𝚠𝚘𝚛𝚍: 𝚑𝚞𝚗𝚝𝚎𝚛𝟸", "𝚑𝚞𝚗𝚝𝚎𝚛"),
]

ORDINARY = [
    "my password manager is great",
    "My password is too long to remember",
    "my password is wrong.",
    "my password is compromised!",
    "The password is required.",
    "Password: required",
    "password must be 8-16 characters",
    "The minimum password length is 12",
    "I forgot my password and the reset link has expired",
    "How do I change my password in Outlook 365?",
    "password = getpass.getpass()",
    'password = os.environ["DB_PASSWORD"]',
    "password: ${DB_PASSWORD}",
    "password: ********",
    "password: <your password>",
    "I keep my password on paper",
    "Password protected PDFs are annoying",
    "the secret is to use cold butter",
    "The secret ingredient is love",
    "a token is a unit of text, about 4 characters",
    "max_tokens=500 and tokens: 4096",
    "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')",
    "The key is to start early at 9am",
    "key: value pairs, 3 keys: a1, b2, c3",
    "primary key: 550e8400-e29b-41d4-a716-446655440000",
    "The key takeaway of section 3b is on page 12",
    "order number 4111-2222-33",
    "order 123-4567890-1234567",
    "my order number is 1234567890123456",
    "tracking 1Z999AA10123456784",
    "ISBN 978-3-16-148410-0 and 9780306406157",
    "call me at +1 415 555 2671 or (020) 7946 0958",
    "550e8400-e29b-41d4-a716-446655440000",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b fixed it",
    "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "at 1700000000000 ms",
    "task-management, desk-mounted, sk-learn and risk-averse people",
    "bearer of bad news",
    "bearer token authentication",
    "https://example.com:8080/path?user=a@b.example",
    "git clone git@github.com:org/repo.git",
    "pin the dependency to 2.31.0",
    "pineapple pizza in 2024",
    "We met at the passport office on 2024-05-14",
    "compass: north",
    "I passed 3 exams: maths, physics and chemistry",
    "我忘了密码，怎么办？",
    "密码很重要",
    "我的密码太长了",
    "パスワードを忘れました",
    "Забыл пароль, помогите",
    "la clave es empezar pronto",
    "La clave del éxito es trabajar 8 horas",
    "phrase of the day: carpe diem",
    "she likes key lime pie and monkeys 24h a day",
    "4 apples, 4 pears, 4 plums, 4 figs, 4 dates, 4 limes, 4 nuts, 4 eggs",
    "temperatures 4512 3321 8890 1206",
    "👨‍👩‍👧 family of 3",
    "می‌خواهم ۳ کتاب بخرم",
    "",
    "\ud800 lone",
]


@pytest.mark.parametrize(("text", "gone"), SECRETS)
def test_a_secret_is_replaced(text: str, gone: str) -> None:
    result = redact(text)
    assert MARK in result.text
    assert gone not in result.text
    assert result.kinds
    assert has_secret(text)
    assert redact(result.text).text == result.text


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_prose_stays(text: str) -> None:
    assert redact(text).text == text
    assert not has_secret(text)


def test_the_words_around_a_secret_stay() -> None:
    text = "Hi, ❤️ my pass\u200bword is hun\u200bter2, and the card 4111 1111 1111 1111. Name: Renée 👩‍🚀!"
    assert redact(text).text == "Hi, ❤️ my pass\u200bword is [secret], and the card [secret]. Name: Renée 👩‍🚀!"
    assert redact(text).kinds == {"password": 1, "card": 1}


_GLUE = [
    "password",
    " is ",
    ": ",
    "=",
    "sk-",
    "key",
    "\u200b",
    "4111 ",
    "1111",
    "://",
    "@",
    "a1",
    "[secret]",
    '"',
    "是",
]
_PIECES = st.sampled_from([*(text for text, _ in SECRETS), *ORDINARY[:20], *_GLUE])


@given(st.lists(_PIECES | st.text(max_size=8), max_size=8).map("".join))
def test_redacting_twice_changes_nothing(text: str) -> None:
    once = redact(text).text
    assert redact(once).text == once


_MEGABYTE = 1_000_000
WORST = [
    "password",
    "password is ",
    "password: ",
    "pass",
    "pwd:",
    "pwd=a1",
    "passphrase is ",
    "phrase aaa ",
    "phrase",
    "secret",
    "token=",
    "token: a1b2c3d4 ",
    "key",
    "key=abcdefgh1 ",
    "credential",
    "bearer ",
    "bearer a1b2c3d4 ",
    "authorization: ",
    "://",
    "://a:b@",
    "://" + "a" * 90 + ":",
    "sk-",
    "sk-a-b-c-",
    "sk-abc12345 ",
    "pin 1234 ",
    "pin ",
    "cvv",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----AAAAAAAAAAAAAAAAAAAA",
    "-----",
    "eyJ",
    "eyJabcdefgh.",
    "ghp_",
    "AKIA",
    ":AA",
    "12345678:AA",
    "1",
    "4",
    "41",
    "4111 ",
    "4111 1111 1111 1111 ",
    "4111-1111-1111-1112 ",
    "4 1 ",
    "a1",
    "a1 ",
    "_",
    "密码",
    "密码是",
    "密码是ab12 ",
    "пароль ",
    "１",
    "ｐ",
    "a\u200b",
    "\u200b",
    "İ",
    "é",
    "password for a",
    "[secret]",
    '"',
    "\n",
    " ",
    "password:'",
    "contraseña es a1 ",
    "clave",
    "x@",
    "@",
    "a=",
]


@pytest.mark.parametrize("piece", WORST)
def test_e13_a_megabyte_of_the_worst_is_quick(piece: str) -> None:
    text = (piece * (_MEGABYTE // len(piece.encode()) + 1)) + " a1 111 @ 密码"
    redact(text[:1000])
    best = 9.0
    for _ in range(3):
        start = time.process_time()
        redact(text)
        best = min(best, time.process_time() - start)
    assert best < 0.1, f"{best * 1000:.0f} ms"


def test_an_ordinary_chat_costs_little() -> None:
    """The goal is 10 µs for the 1 KB of prompt and response; four times that leaves room for a busy machine."""
    prompt = (
        "I've been thinking about moving our planning to Tuesday, since the train leaves on Thursday and nobody has time before. "
        * 4
    )
    response = (
        "That makes sense - it gives you two full days. Keep the demo on Thursday, and only move the backlog; try it for a month. "
        * 4
    )
    runs = 500
    best = 9.0
    for _ in range(5):
        start = time.process_time()
        for _ in range(runs):
            redact(prompt)
            redact(response)
        best = min(best, (time.process_time() - start) / runs)
    assert best < 40e-6, f"{best * 1e6:.1f} µs"


def test_a_key_glued_behind_another_secret_goes_too() -> None:
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq\n-----END RSA PRIVATE KEY-----"
    assert redact(f"{block}ghp_16C7e42F292c6912E7710c838347Ae178B4a").text == "[secret][secret]"

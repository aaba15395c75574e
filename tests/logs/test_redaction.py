import json
import re
import time
from typing import ClassVar

import pytest
from examples.hotel.log_formats import Call, Turn, number, write_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdr.errors import InputError
from dtdr.logs import Importer, Redactor, find_format, read_rules
from dtdr.logs.redaction import MAX_TEXT
from dtdr.logs.redaction_rules import BUILT_IN, Rule
from tests.logs.log_samples import RENDERINGS, format_of
from tests.logs.redaction_battery import is_replaced, leaked, samples, templates
from tests.secret_samples import FORMATS, HARMLESS, SHAPES, ordinary_values

SECRETS = {
    "email": "ann.lee+x@mail.example.org ¦ jürgen@müller.de ¦ o'hara@x.io",
    "phone": "+49 151 2345678 ¦ (415) 555-0123 ¦ +14155550123 ¦ 0049 30 901820",
    "api-key": "sk-proj-abcDEF123456 ¦ ghp_0123456789abcdefghij ¦ AKIAIOSFODNN7EXAMPLE ¦ "
    "xoxb-1234567890-abcdef ¦ eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "card": "4111 1111 1111 1111 ¦ 5500-0000-0000-0004 ¦ 378282246310005",
    "iban": "DE89 3704 0044 0532 0130 00 ¦ GB82WEST12345698765432 ¦ NO9386011117947",
    "ip": "10.0.0.17 ¦ 2001:db8::ff00:42:8329",
    "private-key": "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
}
KINDS = [(kind, secret) for kind, row in SECRETS.items() for secret in row.split(" ¦ ")]
ALL = [secret for _, secret in KINDS]


@pytest.mark.parametrize(("rule", "secret"), KINDS)
def test_each_kind_of_secret_is_replaced_by_its_name(rule, secret):
    redactor = Redactor()
    for text in (secret, f"use {secret} now", f"it is ({secret}), OK", f"value:{secret};"):
        assert redactor.text(text) == text.replace(secret, f"[{rule}]")
    assert redactor.counts[rule] == 4


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("Authorization: Bearer abc.DEF-123", "Authorization: [secret]"),
        ("token ab12cd34ef", "token [token]"),
        ("postgres://bob:s3cret@db.example/x", "postgres://[url-credentials]@db.example/x"),
        ("password=hunter22 next", "password=[secret] next"),
        ('{"api_key": "abcd1234"}', '{"api_key": "[secret]"}'),
        ('{\\"client_secret\\": \\"abcd1234\\"}', '{\\"client_secret\\": \\"[secret]\\"}'),
    ],
)
def test_credentials_are_replaced_and_what_stands_around_them_stays(text, scrubbed):
    assert Redactor().text(text) == scrubbed


def test_values_under_telling_keys_are_replaced_whole_and_references_stay():
    value = {
        "password": "a b",
        "login": {"access_token": 12345},
        "session": {"token": {"$ref": "1"}},
        "ann@x.org": 1,
        "bob@x.org": 2,
        "card": 4111111111111111,
        "ids": [12, 4111111111111112],
    }
    assert Redactor().value(value) == {
        "password": "[secret]",
        "login": {"access_token": "[secret]"},
        "session": {"token": {"$ref": "1"}},
        "[email]": 1,
        "[email]-2": 2,
        "card": "[card]",
        "ids": [12, 4111111111111112],
    }


@given(st.text("0123456789", min_size=14, max_size=14))
def test_of_ten_numbers_with_the_head_of_a_card_the_one_with_its_luhn_digit_is_replaced(digits):
    texts = [Redactor().text(f"pay 4{digits}{last}.") for last in range(10)]
    assert texts.count("pay [card].") == 1


@pytest.mark.parametrize("rendering", [*RENDERINGS, "dtdr"])
@given(secrets=st.lists(st.sampled_from(ALL), min_size=1, max_size=3, unique=True), seed=st.data())
@settings(max_examples=settings().max_examples // 2)
def test_no_planted_secret_is_ever_written(rendering, secrets, seed, tmp_path_factory):
    words = st.text("abc XYZ,.", max_size=8)

    def planted():
        secret = seed.draw(st.sampled_from(secrets))
        return f"{seed.draw(words)} {secret} {seed.draw(words)}"

    calls = [
        [Call("find", {"q": planted(), "list": [planted()], planted(): 1}, {"id": planted()})],
        [Call("send", {"to": planted(), "text": f"{planted()} {planted()}"}, planted())],
    ]
    later = [[Call("use", {"id": planted()}, f"{planted()} and more " * 100)]]
    turns = number([Turn(planted(), calls, planted()), Turn(f"go on {planted()}", later)])
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    if rendering == "dtdr":
        written = [
            {"id": call.id, "tool": call.tool, "arguments": call.arguments}
            for batch in calls
            for call in batch
        ]
        records = [{"id": planted(), "query": planted(), "group": planted(), "calls": written}]
    else:
        records = RENDERINGS[rendering](turns)
    write_lines(path, records)
    importer = Importer(find_format(format_of(rendering)), [path], redactor=Redactor())
    text = "".join(
        json.dumps(found.to_dict(), ensure_ascii=False) for found in importer.demonstrations()
    )
    assert '"before"' in text or rendering in ("mcp", "dtdr")
    for secret in secrets:
        assert json.dumps(secret, ensure_ascii=False)[1:-1] not in text


def test_an_argument_that_is_a_secret_of_an_earlier_output_is_still_a_reference(tmp_path):
    find = Call("find", {"n": "ann"}, {"mail": "ann@corp.example", "part": "sk-abcd1efgh2"})
    send = Call("send", {"to": "ann@corp.example", "t": "key sk-abcd1efgh23456"})
    turns = number([Turn("mail ann", [[find], [send]])])
    path = write_lines(tmp_path / "log.jsonl", RENDERINGS["openai-chat"](turns))
    (found,) = Importer(find_format("openai-chat"), [path], redactor=Redactor()).demonstrations()
    assert found.plan.calls[1].arguments == {
        "to": {"$ref": "1", "path": "/mail"},
        "t": "key [api-key]",
    }
    assert found.plan.calls[0].output == {"mail": "[email]", "part": "[api-key]"}


def test_descriptions_of_tools_are_scrubbed(tmp_path):
    records = RENDERINGS["openai-chat"](number([Turn("hi", [[Call("find", {})]])]))
    described = {"name": "find", "description": "Ask ann@corp.example"}
    records[0]["request"]["tools"] = [{"type": "function", "function": described}]
    path = write_lines(tmp_path / "log.jsonl", records[:1])
    importer = Importer(find_format("openai-chat"), [path], redactor=Redactor())
    list(importer.demonstrations())
    assert [tool.description for tool in importer.tools()] == ["Ask [email]"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rules.json", '{"employee": "E[0-9]{6}", "name": "name (?P<secret>\\\\w+)"}'),
        ("rules.toml", "employee = 'E[0-9]{6}'\nname = 'name (?P<secret>\\w+)'\n"),
    ],
)
def test_own_rules_are_read_from_a_file(name, text, tmp_path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    redactor = Redactor((*read_rules(path), *BUILT_IN))
    assert redactor.text("E123456, name Ann, ann@x.org") == "[employee], name [name], [email]"
    assert dict(redactor.counts) == {"employee": 1, "name": 1, "email": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "neither JSON nor"),
        ("[]", "must contain an object"),
        ('{"a": "("}', "rule 'a' is not a regular expression"),
        ('{"a": 3}', "rule 'a' is not a regular expression"),
        ('{"a": "x*"}', "matches the empty text"),
    ],
)
def test_rules_that_cannot_be_used_are_named(text, reason, tmp_path):
    path = tmp_path / "rules.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=reason):
        read_rules(path)


def test_secrets_of_150_formats_are_found():
    """At least 148; the share stands in docs/logs.md."""
    missed = [
        value
        for value, secret in FORMATS
        if secret in json.dumps(Redactor().value({"x": value}), ensure_ascii=False)
    ]
    assert len(FORMATS) == 150
    assert len(missed) <= 2, missed


def test_ordinary_values_and_what_only_looks_like_a_secret_stay():
    values = [*ordinary_values(10_000), *HARMLESS]
    assert [value for value in values if Redactor().value(value) != value] == []


def test_secrets_in_every_carrier_are_found():
    missed = [
        value
        for value, secret in SHAPES
        if secret in json.dumps(Redactor().value({"x": value}), ensure_ascii=False)
        or (isinstance(value, str) and secret in Redactor().text(value))
    ]
    assert missed == []


@pytest.mark.parametrize("part", ["", "_2"])
def test_most_secrets_of_templates_are_found_and_few_ordinary_texts_replaced(part):
    """``python tests/logs/redaction_battery.py -v`` shows each; the rates are in docs/logs.md."""
    shapes = f"secret_shapes{part}.txt"
    secrets = list(samples(shapes, templates(shapes), seed=1))
    assert len([sample for sample in secrets if leaked(sample)]) <= 0.03 * len(secrets)
    ordinary = list(samples(f"ordinary_texts{part}.txt", 2_000, seed=1))
    assert len(list(filter(is_replaced, ordinary))) <= 0.01 * len(ordinary)


@pytest.mark.parametrize(
    ("value", "scrubbed"),
    [
        ({"ssn": "154-91-2494"}, {"ssn": "[personal]"}),
        ({"iban": "DE12 3456 7890 1234 5678 90"}, {"iban": "[personal]"}),
        ({"account_number": 1234567890}, {"account_number": "[personal]"}),
        ({"account_id": 1234567890}, {"account_id": 1234567890}),
        (
            {"ssn": "X123", "passport_number": "99", "taxId": 7, "Kontonummer": "alt: 4"},
            dict.fromkeys(("ssn", "passport_number", "taxId", "Kontonummer"), "[personal]"),
        ),
        ({"customer": {"passport": ["X1", "99"]}}, {"customer": {"passport": ["[personal]"] * 2}}),
        # What is no number of a person stays: words about it, flags, counts, and other fields.
        *(
            (value, value)
            for value in (
                {"passport": "valid", "ssn": None, "tax_id": "", "iban": True, "dni": 1},
                {
                    "passport_count": 12,
                    "passports": 3,
                    "ssn_checks": "2 of 2",
                    "iban_country": "D3",
                },
                {"steuer": 19, "account": "99", "license": "GPL-3", "card": 7, "identity": 3},
            )
        ),
        ({"phone": ["5552671", "5552672"]}, {"phone": ["[personal]", "[personal]"]}),
        ({"ip_address": "some host 12"}, {"ip_address": "some host 12"}),
        ({"address": "1 Elm Court, Leeds"}, {"address": "[personal]"}),
        ("SSN 154-91-2494", "SSN [personal]"),
        ("Artikel 530-661-7677", "Artikel 530-661-7677"),
        ("Meine Telefonnummer lautet 030 12345678.", "Meine Telefonnummer lautet [personal]."),
        (
            "The order with the number 4111 1111 1111 1111",
            "The order with the number 4111 1111 1111 1111",
        ),
        ("credentials: none needed", "credentials: none needed"),
        ("sdk-550e8400-e29b-41d4-a716-446655440000", "sdk-550e8400-e29b-41d4-a716-446655440000"),
        ("SDK_KEY=sdk-550e8400-e29b-41d4-a716-446655440000", "SDK_KEY=[secret]"),
        ("user,password\nann,Hunter22\nbob,n/a", "user,password\nann,[secret]\nbob,n/a"),
        (
            "INSERT INTO u (n, password) VALUES ('a', 'x y'), ('b,c', 'z')",
            "INSERT INTO u (n, password) VALUES ('a', '[secret]'), ('b,c', '[secret]')",
        ),
    ],
)
def test_names_and_words_decide_what_a_value_is(value, scrubbed):
    assert Redactor().value(value) == scrubbed


PIECES = (
    st.sampled_from([value for value, _ in SHAPES if isinstance(value, str)])
    | st.sampled_from(
        ["password", "token", ": ", "=", '"', "\\", "\n", "<", "</", "{", "[", ",", "&"]
    )
    | st.text(max_size=8)
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@given(
    st.recursive(TEXTS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=3))
)
def test_scrubbed_values_stay_as_they_are(value):
    scrubbed = Redactor().value(value)
    assert Redactor().value(scrubbed) == scrubbed


GROWING = r"""
x@«a.» ¦ «a@» ¦ «a»@ ¦ @ «a.a+»:// ¦ http://«a:» ¦ «a_»= ¦ «pass-»word ¦ password=«\"» ¦ token« »:
«-----BEGIN PRIVATE KEY-----» ¦ -----BEGIN «A» PRIVATE KEY ¦ «1» ¦ «1 2-» ¦ «+1 (2) » ¦ «a:» ¦ «1.»
«sk-» ¦ «eyJaaaaaaaa.» ¦ «DE89 » ¦ «bearer basic token » ¦ «secret='» ¦ «--token » ¦ «mysql -u »
«curl -u a » ¦ «<a name="password" » ¦ «name="password" » ¦ «the password of a b » ¦ «{"password":»
«["token",» ¦ «password: |\n  a\n» ¦ «Authorization: Digest a="b", » ¦ «MIIEpAIBAAKCAQEA » ¦ «passtokenkey»
«AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n» ¦ «sid=» ¦ «==session»
«Cookie: a=b; » ¦ «pass:» ¦ «::auth» ¦ «pass:set » ¦ «jwtpass:» ¦ «curl -u » ¦ «http://::passwort» ¦ «密码»
"""  # noqa: E501
"""Texts in which a part is repeated."""
SIGNS = r"""
= == : :: := => ' " ` \ { [ ( , & ? < </ > | « ; * . _ - -- @ / :// &lt; &quot; %22 %3D
\n 1 12 a A +
"""


def seconds_of(before, repeated, after, size):
    """CPU time of the search of a text of that many characters, the least of two."""
    text = before + repeated * ((size - len(before + after)) // len(repeated)) + after
    assert len(text) <= MAX_TEXT

    def measure():
        started = time.process_time()
        Redactor().text(text)
        return time.process_time() - started

    return min(measure() for _ in range(2))


@pytest.fixture(scope="module")
def usual_seconds():
    """The CPU time of 10,000 characters of which each word names a secret."""
    return seconds_of("", "password ", "", 10_000)


def check_that_time_is_linear(before, repeated, after, size, usual):
    for _ in range(3):  # other work on the machine slows some measurements down
        large = seconds_of(before, repeated, after, size)
        if large <= 10 * usual * size / 10_000:  # the worst known takes 2 times as long
            return
        usual = max(usual, seconds_of("", "password ", "", 10_000))
    small = seconds_of(before, repeated, after, size // 8)
    raise AssertionError(f"{small:.3f} s of {size // 8} characters, {large:.3f} of {size}")


@pytest.mark.parametrize("growing", GROWING.strip().replace("\n", " ¦ ").split(" ¦ "))
def test_the_time_grows_with_the_text_and_no_faster(growing, usual_seconds):
    before, repeated, after = re.split("[«»]", growing.replace(r"\n", "\n"))
    check_that_time_is_linear(before, repeated, after, 40_000, usual_seconds)


@pytest.mark.parametrize("rule", BUILT_IN, ids=lambda rule: f"{rule.name}-{BUILT_IN.index(rule)}")
@given(parts=st.data())
def test_no_repetition_of_parts_of_a_rule_takes_longer_than_its_length(rule, parts, usual_seconds):
    literals = re.findall(r"[A-Za-z]{2,}(?![\w}\]*+?])", rule.pattern.pattern)
    pieces = st.sampled_from([*rule.hints, *literals]) | st.sampled_from(
        [*SIGNS.split(), " ", "\n"]
    )
    texts = st.lists(pieces, max_size=4).map("".join)
    before, repeated, after = (parts.draw(texts) for _ in range(3))
    check_that_time_is_linear(before, repeated or "a", after, 8_000, usual_seconds)


def test_many_keys_that_are_scrubbed_to_the_same_name_take_time_in_proportion():
    scrubbed = Redactor().value({f"ann{index}@corp.example": index for index in range(20_000)})
    assert list(scrubbed)[:2] == ["[email]", "[email]-2"]
    assert list(scrubbed)[-1] == "[email]-20000"


def test_what_follows_a_telling_option_of_a_command_is_replaced():
    command = ["mysql", "--user", "ann", "--password", "two words", "--api-key", "abc", "db"]
    scrubbed = ["mysql", "--user", "ann", "--password", "[secret]", "--api-key", "[secret]", "db"]
    assert Redactor().value({"args": command}) == {"args": scrubbed}


SECRET_NAMES = """
    apikey api_key api-keys secret secret_key secret_access_key password passwd passwort passphrase
    passcode pwd token access_token auth-token refresh_token bearer_token id_token session_token
    bot_token api_token private_key signing_key encryption_key account_key storage_key license_key
    service_key access_key master_key shared_access_key webhook_key subscription_key deploy_key
    admin_key credential credentials authorization pin_code pincode cvv cvc db_pass database_pass
    user_pass root_pass admin_pass smtp_pass mysql_pass pg_pass postgres_pass redis_pass ftp_pass
    mail_pass login_pass ssh_pass sudo_pass proxy_pass ldap_pass connection_string session_cookie
    set-cookie jwt
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_each_telling_name_hides_what_stands_under_it(name):
    first, *rest = name.replace("-", "_").split("_")
    camel = first + "".join(map(str.title, rest))
    for spelling in {name, name.upper(), camel, camel.lower(), f"my_{name}"}:
        assert Redactor().value({spelling: "two words 2"}) == {spelling: "[secret]"}
        assert "hunter2" not in Redactor().text(f'{spelling}="hunter2"')
        assert Redactor().value([f"--{spelling}", "two words"])[1] == "[secret]"


class CountingPattern:
    """Stands in for an expression: counts the characters that are searched."""

    groupindex: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        self.searched = 0

    def finditer(self, text):
        self.searched += len(text)
        return iter(())


@pytest.mark.parametrize("length", [10, 1_000, 10**5, 10**5 + 1, 10**7])
def test_what_is_searched_of_one_text_is_bounded(length):
    pattern = CountingPattern()
    redactor = Redactor([Rule("any", pattern)])  # type: ignore[arg-type]
    text = "ab" * (length // 2) + "a" * (length % 2)
    scrubbed = redactor.text(text)
    assert pattern.searched == min(length, 100_000)
    assert (scrubbed == text) == (length <= 100_000)
    if length > 100_000:
        assert scrubbed.endswith("[long-text]")
        assert len(scrubbed) < 100_000
        assert redactor.counts["long-text"] == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: ["x" * 50_000] * 400,
        lambda: {f"key {number}": "x" * 1_000 for number in range(20_000)},
        lambda: [[number] for number in range(500_000)],
        lambda: [{"password": {f"k {number} {'x' * 100}": "y" for number in range(100_000)}}],
        lambda: {"$ref": "1", "path": "".join(f"/{number:020}" for number in range(100_000))},
        lambda: ["10 000 000 000 " * 1_000] * 2_000,
        lambda: [10**12] * 500_000,
    ],
    ids=["texts", "keys", "values", "names under secrets", "path", "prose", "numbers"],
)
def test_what_is_searched_of_one_value_is_bounded(make):
    value = make()
    pattern = CountingPattern()
    redactor = Redactor([Rule("secret", pattern)])  # type: ignore[arg-type]
    scrubbed = redactor.value(value)
    assert pattern.searched <= 1_100_000
    if isinstance(value, list):
        assert len(scrubbed) <= 126_000
    assert redactor.counts["long-text"]


def test_a_secret_across_the_bound_is_not_written_in_part():
    secret = "4111 1111 1111 1111"
    for shift in range(25):
        text = "ab " * 33_327 + "." * shift + f" {secret} and more " * 3
        scrubbed = Redactor().text(text)
        assert "1111" not in scrubbed, shift

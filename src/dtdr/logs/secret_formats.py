"""How secrets are named, and how the keys of known providers look.

A name is read as words, split at case, digits and signs, so that ``PGPASSWORD``,
``db-password`` and ``userPassword1`` say the same, and ``password_length`` says something else.
"""

# ruff: noqa: SIM905 (lists of words are read more easily as text)
from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

PREFIXES = """
    1//0 AGE-SECRET-KEY- ATATT3 ATBB ATCTT3 ATTA CCIPAT_ CFPAT- CLOJARS_ FLWPUBK- FLWPUBK_
        FLWSECK- FLWSECK_ FlyV1 GOCSPX- GR1348941 HRKU- NRAA- NRAK- NRII- NRJS- NRRA- PMAK-
        SG. SWMTKN-1- aio_ api_org_ apify_api_ bb_live_ bkaa_ bkua_ cfut_ csk- dckr_oat_
        dckr_pat_ doo_v1_ dop_v1_ dor_v1_ dp.audit. dp.ct. dp.pt. dp.scim. dp.st. dtdr_
        duffel_live_ duffel_test_ e2b_ esecret_ fal_ fastly_ figd_ figo_ figu_ fio-u- fm1_
        fm1a_ fm1r_ fm2_ fo1_ fw_ gho_ ghp_ ghr_ ghs_ ghu_ github_pat_ glagent- glc_ glcbt-
        gldt- glffct- glft- glimt- gloas- glpat- glptt- glrt- glrtr- glsa_ glsoat- gsk_ hcaik_
        hf_ hvb. hvr. hvs. ico- jina_ lin_api_ lin_oauth_ llx- ls__ lsv2_ mdb_sa_sk_ mlsn.
        napi_ nfp_ npm_ ntn_ nvapi- ops_eyJ pat-eu1- pat-na1- pat-na2- pcsk_ phc_ phs_ phx_
        pk-lf- pk_live_ pk_test_ pnb_ pnu_ pplx- pscale_oauth_ pscale_pw_ pscale_tkn_ pul-
        pypi- r8_ rdme_ rk_live_ rk_test_ rnd_ rpa_ rubygems_ rzp_live_ rzp_test_
        sb_publishable_ sb_secret_ sbp_ sgp_ shippo_live_ shippo_test_ shpat_ shpca_ shppa_
        shpss_ shptka_ sk- sk_ sk_live_ sk_test_ sntryi_ sntrys_ sntryu_ sq0atp- sq0csp-
        sq0idp- sqa_ sqp_ squ_ syt_ tfp_ tgp_v1_ tk-us- tskey- tvly- vca_ vci_ vck_ vcp_ vcr_
        vercel_blob_rw_ wandb_v1_ whsec_ xaat- xai- xapp- xkeysib- xsmtpsib- xwfp- ya29.""".split()
"""What the keys of providers begin with; what follows must look as if it were drawn at random."""

SHAPES = (
    r"API-[A-Z0-9]{25,}|A3-[A-Z0-9]{6}(?:-[A-Z0-9]{5,11}){4,6}|key-[0-9a-z]{32}|pa-[\w-]{40,}",
    r"(?:ak|as)-[A-Za-z0-9]{22}|sl\.(?:u\.)?[\w-]{60,}|secret_[A-Za-z0-9]{43}|p8e-[\w-]{32}",
    r"re_[A-Za-z0-9]{8}_\w{20,}|LTAI[0-9A-Za-z]{12,}|AQVN[\w-]{35,}|cio[A-Za-z0-9]{32}(?!\w)",
    r"xox[a-z](?:\.xox[bp])?-[\w-]{8,}|gh[oprsu]_\w{36}|hf_[A-Za-z]{30,}",
    r"(?:AKC[a-zA-Z0-9]{70}|cmVmdGtu[\w-]{50}|dG9r[\w=+/]{40}|EAA[A-Za-z0-9]{60})[\w=+/-]*",
    r"(?:AKIA|ASIA|ABIA|ACCA|AKID)[0-9A-Za-z]{16,}|ABSK[A-Za-z0-9+/]{60,}={0,2}",
    r"(?:AIza|IQoJb3JpZ2lu|FwoGZXIvYXdz)[\w+/=-]{30,}|amzn\.mws\.[0-9a-f-]{36}",
    r"(?:dapi|dose|dkea)[0-9a-f]{32}(?:-\d)?|dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}",
    r"EZ[AT]K[A-Za-z0-9]{54}|EAAA[\w-]{56,}|pat\w{14}\.[0-9a-f]{64}|oy2[a-z0-9]{43}",
    r"[0-2]/\d{15,17}:[0-9a-f]{32}|v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}|sha256~[\w-]{43}",
    r"[\w~.]{3}\dQ~[\w.~-]{31,34}|[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}|t1\.[\w-]{60,}={0,2}",
    r"access_token\$\w{4,12}\$\w{16}\$[0-9a-f]{32}|access-\w{4,12}-[0-9a-f-]{36}",
    r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*){0,3}|[ps]k\.eyJ[\w.-]{40,}",
    r"(?:sdk|mob)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:live|test)_\w{30,40}",
    r"[0-9a-f]{32}-(?:us\d{1,2}|[0-9a-f]{8}-[0-9a-f]{8})|(?:AC|SK)[0-9a-f]{32}",
    r"\d{8,10}:AA[\w-]{33}|AAAA[\w-]{7}:[\w-]{100,}|[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}",
    r"[sb]\.[A-Za-z0-9]{24}|xprv[1-9A-HJ-NP-Za-km-z]{100,}|(?<!/)[5KL][1-9A-HJ-NP-Za-km-z]{50,51}(?![\w+/])",
    # What a password is stored as: crypt, Argon2 and the like.
    r"\$(?:apr1|[156y]|2[abxy]|argon2(?:id?|d)|scrypt)\$[\w./+,=$-]{20,}",
)
"""Keys that are told by more than what they begin with."""

_RUN = re.compile(r"[^\W_]{8,}")
_WORDS = re.compile(
    r"(?:[A-Z]?+[a-z]{2,}+|[A-Z]{2,}+)++[A-Za-z]?\d{0,4}|\d+[A-Za-z]{0,2}|\d+T\d+Z?"
)
_NO_KEY = re.compile(
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-f]{40}|[0-9a-f]{64}"
)
_NO_SECRET = re.compile(
    r"\[[\w -]+\]|\$\{[^}]*\}?|\$[A-Z_][A-Z0-9_]*|\$?\{\{.*|<[^<>]*>|%\w+%|%[(s].*|[*•.x?-]{3,}"
    r"|\$\(.*|(?:true|false|yes|no|on|off|null|none|nil|undefined|required|optional|(?:en|dis)abled"
    r"|redacted|hidden|masked|str(?:ing)?|integer|number|boolean|any|bearer|basic"
    r"|digest|password|secret|n/?a|your[\w -]+|include|omit|same-origin|scram-sha-\d+"
    r"|(?:is|must|should|cannot|can't|does|has) .*"
    r"|`?(?:bearer|basic|token) \$?\{.*|~?(?:/[\w.-]+){2,}/?)",
    re.IGNORECASE,
)
_MIXED_VALUE = re.compile(
    r"\d{4,8}\Z|(?!https?:|[./~]|[A-Za-z]+(?:_[A-Za-z0-9]+)+\Z|\d+[-.:/])(?=.{0,200}?[^\W\d_])(?=.{0,200}?[\d!@#$%^&*+~=?])[^\n]{4,}[\w=+/*#@$!]"
)


def is_random(text: str) -> bool:
    """Whether a part of a text, between its signs, is neither words nor a number."""
    return any(not _WORDS.fullmatch(run) for run in _RUN.findall(text))


class Secrecy(IntEnum):
    """How far a name tells that the value under it is secret."""

    NONE = 0
    RANDOM = 1
    """Where the value looks as if it were drawn at random."""
    MIXED = 2
    """Where the value is more than a word or a number."""
    SURE = 3

    def covers(self, value: str) -> bool:
        """Whether a text under such a name is a secret."""
        value = value.strip().rstrip(".,;!?")
        if not value or _NO_SECRET.fullmatch(value):
            return False
        if self is Secrecy.MIXED and _MIXED_VALUE.match(value):
            return True
        return self is Secrecy.SURE or (is_random(value) and not _NO_KEY.fullmatch(value))


_SURE = frozenset(
    """password passwords passwd passwds passwort passworte passwörter kennwort kennwörter
        kennworte passphrase passphrases passcode passcodes pwd pswd psw pword pw secret
        credential credentials cred creds apikey apikeys authorization jwt cvv cvc psk
        connectionstring mnemonic phpsessid jsessionid sessid aspsessionid contraseña
        contraseñas contrasena senha wachtwoord lösenord losenord salasana adgangskode hasło
        haslo heslo jelszó şifre пароль пароли 密码 密碼 口令 パスワード 비밀번호 mdp""".split()
)
TELLING = {  # a last word -> words before it that make it secret
    "key": """api app application secret private access signing sign encryption encrypt decryption
        account storage license licence service functions function master shared webhook
        subscription deploy admin auth client consumer server ssh rsa pgp gpg hmac aes jwt
        session fernet root bot integration ingestion ingest write live security activation
        recovery unlock pre preshared maps rapidapi host stripe openai""",
    "token": """access auth oauth refresh bearer id session bot api csrf xsrf secret personal
        private deploy registration github gitlab slack vault user app client login device push
        security x webhook verification admin service npm hf jwt sas""",
    "pass": """db database user root admin smtp mysql pg postgres redis ftp mail login ssh sudo
        proxy ldap key store become my app imap email mongo rabbitmq svn http basic""",
    "string": "connection secret",
    "cookie": "session set auth",
    "code": "pin security backup recovery",
    "codes": "backup recovery",
    "assertion": "client",
    "phrase": "pass seed recovery secret",
    "word": "pass",
    "passe": "de",
    "parole": "",
    "sid": "connect",
    "auth": "basic http proxy",
    "access": "shared",
}
_MIXED = frozenset("token pass pin otp totp cookie cookies".split())
_RANDOM = frozenset(
    "key keys tokens secrets auth auths sid pat sig signature session sessionid".split()
)
_HARMLESS = {  # a last word -> words before it that make it harmless
    "key": """public cache sort partition primary foreign idempotency object s routing shard issue
        project translation dedup deduplication row record document item group hash range map
        dict index unique composite natural surrogate join lookup bucket message event config
        setting hot arrow page answer i n known metric feature resource query grouping""",
    "token": """max min num n total prompt completion input output cached reasoning next page
        continuation stop eos bos pad unk sep cls mask special image audio used remaining avg
        mean generated per context thinking budget sync cursor lexer design nft game count
        previous key""",
}
_COUNTED = frozenset(
    "is get has show hide forgot use uses allow require requires min max num total no".split()
)
_ABOUT = frozenset(
    """length len count counts size type types url uri endpoint expires expiry expiration
        expired expire ttl age policy name names id ids field label hint placeholder required
        enabled disabled reset changed updated created at date time strength score file path
        dir arn ref version limit limits budget usage used per rate cost price index position
        offset header format prefix suffix algorithm alg manager provider store rotation days
        attempts retries error message status valid exists set mode scheme scope scopes
        audience issuer group class vault lifetime bucket buckets santa ring kind source
        location title description in seconds ms minutes hours window validity history
        complexity method checker validator generator bits reuse
        prevention encryption garden""".split()
)
_NEUTRAL = frozenset(
    """base value val string text plain plaintext raw prod production dev development staging
        stage test live main primary secondary default old new current confirm confirmation
        repeat again verify encoded hash hashed encrypted enc env backup next previous pem
        json data is digest base64 b""".split()
)
_SPLIT = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]")
_PARTS = {*" ".join(TELLING.values()).split(), *TELLING, *_SURE, *_MIXED}
_ENDING = re.compile(r"(.{1,30}?)(passw(?:or)?ds?|passwort|kennwort|passphrase)")


def _apart(word: str) -> tuple[str, ...]:
    """The known words that a word is run together from; none where it is not."""
    for end in range(2, len(word) - 1):
        if word[:end] in _PARTS:
            rest = word[end:]
            parts = (rest,) if rest in _PARTS else _apart(rest)
            if parts:
                return (word[:end], *parts)
    return ()


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in small letters, without digits; words that are run together apart."""
    words: list[str] = []
    for word in map(str.lower, _SPLIT.findall(name)):
        ending = _ENDING.fullmatch(word)
        if word in _SURE or word in TELLING:
            words.append(word)
        elif ending:
            words += ending.groups()
        else:
            words += (len(word) <= 30 and _apart(word)) or (word,)
    return tuple(words)


def secrecy(name: str) -> Secrecy:
    """How far a name tells that what stands under it is secret."""
    return _secrecy(name[-80:])


@lru_cache(maxsize=50_000)
def _secrecy(name: str) -> Secrecy:
    words = words_of(name)
    for last in reversed(range(len(words))):
        word, before, after = words[last], words[:last], words[last + 1 :]
        stem = word[:-1] if word in ("tokens", "keys") else word
        former = before[-1] if before else ""
        if word in _SURE or (former and former in TELLING.get(stem, "").split()):
            found = Secrecy.SURE
        elif former and former in _HARMLESS.get(stem, "").split():
            return Secrecy.NONE
        elif word in _MIXED:
            found = Secrecy.MIXED
        elif word in _RANDOM and (before or stem != "key"):
            found = Secrecy.RANDOM
        else:
            continue
        if not _ABOUT.isdisjoint(after) or not _COUNTED.isdisjoint(before):
            return Secrecy.NONE
        return found if _NEUTRAL.issuperset(after) else Secrecy(max(1, found - 1))
    return Secrecy.NONE

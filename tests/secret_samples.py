"""Made-up secrets in the forms that logs hold them in, and values that only look like them.

In the tables, " ¦ " separates samples, «…» marks the secret, and {w48} stands for random characters
of some kind.
"""

# ruff: noqa: SIM905, E501 (tables are read more easily as text)
import json
import random
import re
from typing import Any

P = "kR7vQ2mX9tLp4Wz8"
_KNOWN = {"P": P, "H": "9f86d081884c7d659a2feaa0c55ad015", "B": "dXNlcjpwYXNzd29yZDEyMw"}
_LETTERS = {
    "w": "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
    "l": "abcdefghijklmnopqrstuvwxyz0123456789",
    "u": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "h": "0123456789abcdef",
    "d": "123456789",
}
_RANDOM = random.Random(7)


def fill(text: str) -> str:
    """A sample with a value in place of each name or kind in braces; a 7 makes keys look like it."""

    def value_of(place: re.Match[str]) -> str:
        kind, length = place[1], place[2]
        if not length:
            return _KNOWN[kind]
        return "".join(_RANDOM.choices(_LETTERS[kind], k=int(length) - 1)) + "7"

    text = text.replace("{uuid}", "{h8}-{h4}-{h4}-{h4}-{h12}")
    return re.sub(r"\{([A-Za-z])(\d*)\}", value_of, text)


def samples(table: str) -> list[tuple[str, str]]:
    """``(value, secret)`` of each sample of a table of texts."""
    filled = [fill(text) for line in table.strip().splitlines() for text in line.split(" ¦ ")]
    return [(re.sub("[«»]", "", text), re.search("«(.*)»", text)[1]) for text in filled]  # type: ignore[index]


def json_samples(table: str) -> list[tuple[Any, str]]:
    """``(value, secret)`` of each sample of a table of JSON values."""
    return [(json.loads(text), secret) for text, secret in samples(table)]


KEYS = """
    sk-{w48} sk-proj-{w60} sk-svcacct-{w60} sk-ant-api03-{w90}AA sk-or-v1-{h64} sk-{h32} gsk_{w52}
    xai-{w80} pplx-{w48} r8_{w37} hf_{w34} api_org_{w34} fw_{w22} csk-{l48} tgp_v1_{w43}
    nvapi-{w64} pcsk_{w50} tvly-{w32} sk_{h48} lsv2_pt_{h32}_{h10} ls__{h32} sk-lf-{uuid}
    pk-lf-{uuid} dtdr_{w43} phc_{w43} ghp_{w36} gho_{w36} ghu_{w36} ghs_{w36} ghr_{w76}
    github_pat_{w22}_{w59} glpat-{w20} gldt-{w20} glrt-{w20} ATBB{w32} ATATT3xFfGF0{w180}
    AKIA{u16} ASIA{u16} ABSK{w108}= AIza{w35} ya29.{w60} GOCSPX-{w28} 1//0{w60} {w3}8Q~{w34}
    dop_v1_{h64} doo_v1_{h64} dapi{h32} dt0c01.{u24}.{u64} dp.pt.{w43} hvs.{w90} s.{w24}
    {w14}.atlasv1.{w67} pul-{h40} HRKU-{uuid} nfp_{w36} sbp_{h40} sb_secret_{w31} pscale_tkn_{w43}
    pscale_pw_{w43} fo1_{w43} tskey-auth-{w11}CNTRL-{w32} v1.0-{h24}-{h146} xoxb-{d12}-{w24}
    xoxp-{d12}-{h32} xapp-1-{u11}-{d13}-{h64} M{w23}.{w6}.{w38} {d10}:AA{w33} SK{h32} AC{h32}
    SG.{w22}.{w43} key-{h32} {h32}-us12 xkeysib-{h64}-{w16} re_{w8}_{w24} PMAK-{h24}-{h34}
    sk_live_{w24} sk_test_{w24} rk_live_{w24} whsec_{w32} sq0atp-{w22} EAAA{w60}
    access_token$production${l16}${h32} access-production-{uuid} rzp_live_{w14} FLWSECK-{h32}-X
    shpat_{h32} shpss_{h32} shippo_live_{h40} EZAK{l54} duffel_live_{w43} pat-na1-{uuid}
    pat{w14}.{h64} ntn_{w46} secret_{w43} lin_api_{w40} figd_{w40} 1/{d16}:{h32} tfp_{w59}
    CFPAT-{w43} sk.eyJ{w60}.{w22} sntrys_eyJ{w60} glsa_{w32}_{h8} NRAK-{u27} hvr.{w90} sqp_{h40}
    sgp_{h16}_{h40} npm_{w36} pypi-AgEIcHlwaS5vcmc{w60} rubygems_{h48} dckr_pat_{w27} AKCp{w69}
    CLOJARS_{l60} pnu_{l36} ops_eyJ{w250} AGE-SECRET-KEY-1{u58} sha256~{w43} LTAI{w20} AKID{w32}
    API-{u26} eyJ{w20}.eyJ{w40}.{w43}
""".split()
"""Keys of providers."""

L = "\n".join(fill("{w64}") for _ in range(6))
CONTEXTS: list[tuple[Any, str]] = [
    (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{L}\n-----END PGP PRIVATE KEY BLOCK-----", L[-64:]),
    (f"-----BEGIN OPENSSH PRIVATE KEY-----\n{L}\n-----END OPENSSH PRIVATE KEY-----", L[-64:]),
    (f"-----BEGIN EC PRIVATE KEY-----\n{L}", L[-64:]),
    *samples("""
password = "«correct horse battery»" ¦ passwd: '«correct horse battery»'
{"password": "«correct horse battery»"} ¦ DB_PASS=«{w28}» ¦ export SMTP_PASSWORD=«{w28}»
aws_secret_access_key = «{w40}/+» ¦ "dbPassword": "«{w28}»" ¦ mysql --password «{w28}» -u bob
curl --api-key=«{w28}» x ¦ Authorization: Bearer «{w28}» ¦ curl -H 'Authorization: Basic «{w28}»=='
postgres://bob:«{w28}»@db.corp.example/x ¦ redis://:«{w28}»@cache:6379
https://hooks.slack.com/services/«T00000000/B00000000/{w24}»
https://discord.com/api/webhooks/12345678901/«{w28}»
DefaultEndpointsProtocol=https;AccountKey=«{w86}==»;
https://x.blob.core.windows.net/c?se=1&sig=«{w43}%3D» ¦ :password => '«correct horse battery»'
api_key: «{w28}» ¦ DD_API_KEY=«{h32}»
"""),
    *json_samples("""
{"api_keys": ["{w28}", "«second one»"]} ¦ {"credentials": {"user": "bob", "key": "«{w28}»"}}
{"clientSecret": "«{w28}»"} ¦ {"accessToken": "«{w28}»"} ¦ {"X-Api-Key": "«{w28}»"}
{"spring.datasource.password": "«{w28}»"} ¦ ["login", "--password", "«correct horse battery»"]
"""),
]

FORMATS: list[tuple[Any, str]] = [
    *samples("\n".join(f"use «{key}» now" for key in KEYS)),
    *CONTEXTS,
]
"""What logs hold, and what must not be left of it."""


def ordinary_values(count: int) -> list[str]:
    """Values of arguments and outputs that hold no secret."""
    source = random.Random(11)
    words = ["order", "invoice", "token", "budget", "secret", "garden", "passport", "key"]
    words += ["figures", "session", "pass"]
    makers = [
        lambda: " ".join(source.choices(words, k=6)),
        lambda: f"{source.choice(words)}_{source.randrange(10**6)}",
        lambda: f"2026-{source.randrange(1, 13):02}-11T10:{source.randrange(60):02}:00Z",
        lambda: f"/home/docs/{source.choice(words)}-{source.randrange(99)}.pdf",
        lambda: f"https://corp.example/{source.choice(words)}?page={source.randrange(99)}",
        lambda: f"{source.randrange(1, 9999)}.{source.randrange(99):02} EUR",
        lambda: "-".join(f"{source.getrandbits(4 * n):0{n}x}" for n in (8, 4, 4, 4, 12)),
        lambda: f"{source.getrandbits(160):040x}",
        lambda: f"usr_{source.randrange(10**5)}",
        lambda: f"max_tokens: {source.randrange(9999)}, page {source.randrange(99)}",
        lambda: f"HAT{source.randrange(300)} at {source.randrange(24)}:{source.randrange(60):02}",
        lambda: f"The {source.choice(words)} is {source.choice(words)}: {source.choice(words)}s.",
    ]
    return [makers[number % len(makers)]() for number in range(count)]


NAMES = """
    PGPASSWORD ROOTPASSWORD SECRET_KEY_BASE APP_KEY DB_PW _auth passwords password1 userpassword
    basic_auth PHPSESSID JSESSIONID connect.sid X-Auth-Key X-Functions-Key Kennwort Passwort
    X-API-KEY Ocp-Apim-Subscription-Key x-amz-security-token GITHUB_PAT SLACK_SIGNING_SECRET
    HMAC_KEY hmacSecret ENCRYPTION_KEY jwt_secret_key bindPassword ldapBindPw sshPassphrase
    keystorePassword storepass keypass tokenSecret consumerSecret consumer_key refreshToken
    csrf_token sessionToken mysql_root_password REDIS_PASS wifi_psk wpa-psk preSharedKey
    masterPassword new_password password_confirmation oldPassword2 privateKeyPem client_assertion
    DATADOG_API_KEY MAPS_API_KEY sentryAuthToken NPM_TOKEN fernetKey cookie_secret
    FLASK_SECRET_KEY rails_master_key DJANGO_SECRET webhookSecret deploy-token botToken apiToken
    api_token_v2 passwd2 pass_word userPass pwdHash otpSecret totp_seed seed_phrase
""".split()

SHAPES: list[tuple[Any, str]] = [
    *(({name: P}, P) for name in NAMES),
    *((f"{name}={P}", P) for name in NAMES[:14]),
    *samples('''
//registry.npmjs.org/:_authToken=«{P}» ¦ Kennwort: «hunter2»! ¦ Das Passwort lautet «Sommer2024»!
mot de passe : «Soleil99» ¦ Passwort：«hunter2x» ¦ password： «S3cr3tPw» ¦ 密码：«abc12345»
您的密码是«abc12345» ¦ The password for bob is «Hunter2024» ¦ my password is '«opensesame»'
Le mot de passe est «Soleil99» ¦ La contraseña es «Verano2024» ¦ Authorization: ApiKey «{P}»
Authorization: token «{P}» ¦ authorization: Digest username="bob", response="«{H}»"
Authorization: AWS4-HMAC-SHA256 Credential=AKIAX/2020, Signature=«{H}»
Proxy-Authorization: Basic «{B}»== ¦ curl -H 'Authorization: GenieKey «{P}»' x
https://x.io/a?b=1&token=«{P}»&c=2 ¦ https://x.io/a?access_token=«{P}» ¦ https://x.io/?key=«{H}»
https://x.io/?api_key=«abcd1234» ¦ https://x.io/?sig=«{P}»
https://x.io/?X-Amz-Signature={H}«{H}» ¦ https://x.io/?password=«hunter2»
https://x.io/?auth=«{P}» ¦ Cookie: sessionid=«{P}»; theme=dark
Set-Cookie: PHPSESSID=«{P}»; Path=/ ¦ cookie: a=b; connect.sid=s%3A«{P}»
curl -b 'PHPSESSID=«{P}»' x ¦ curl --cookie JSESSIONID=«{H}» ¦ DB_PASSWORD="«two words»"
export SECRET='«x y z»' ¦ set PASSWORD=«hunter2» ¦ $env:API_KEY='«abc»'
mysql -u root -p«Hunter22» db ¦ mysql -u root -p «Hunter22» db ¦ sshpass -p «hunter» ssh x@y
curl -u bob:«hunter2» https://x ¦ tool --token=«{P}» ¦ tool --token «{P}»
tool --password '«a b c»' ¦ docker login -u bob -p «hunter2» reg ¦ redis-cli -a «hunter2» ping
java -Dpassword=«hunter2» -jar ¦ openssl rsa -passin pass:«hunter2» -in x
net use /password:«hunter2» ¦ keytool -storepass «changeit2» -x
psql 'host=x password=«hunter2» user=y' ¦ api_key: '«a b»'
machine github.com login bob password «hunter2» ¦ machine x password «hunter2x» login bob
<password>«hunter»</password> ¦ <db:Password type='x'>«two words»</db:Password>
<add key="ApiKey" value="«{P}»"/> ¦ <property name="password">«hunter»</property>
<property name="password" value="«hunter»"/> ¦ <RSAKeyValue><D>«{P}»</D></RSAKeyValue>
&lt;password&gt;«hunter2»&lt;/password&gt; ¦ <user password='«hunter»'/>
<apiKey><![CDATA[«{P}»]]></apiKey> ¦ {"credentials": {"user": "bob", "k": "«vv ww»"}}
[{"name": "password", "value": "«a b»"}] ¦ Server=x;Database=y;User Id=sa;Password=«p@ss»,1;
Server=x;Uid=sa;Pwd=«hunter2»; ¦ mongodb+srv://bob:«hunter2»@c.x.net/db
amqp://bob:hun@«ter2»@h:5672 ¦ bob:«hunter2»@tcp(127.0.0.1:3306)/db
jdbc:mysql://h/db?user=x&password=«hunter2» ¦ jdbc:oracle:thin:scott/«tiger22»@h:1521:x
Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=«{P}»= ¦ redis://:«hunter2»@h:1
DefaultEndpointsProtocol=https;AccountName=x;AccountKey=«{P}»==; ¦ {"kty": "EC", "d": "«{P}»"}
config['password'] = '«hunter»' ¦ {:password=>"«hunter»"} ¦ define('DB_PASSWORD', '«hunter2»');
setPassword("«hunter2»") ¦ password := "«hunter»" ¦ password = """«hunter2x»"""
**Password:** «hunter2» ¦ | password | «hunter2» | ¦ API key: «{P}» ¦ Secret access key: «{P}»
Access Token - «{P}» ¦ CREATE USER bob IDENTIFIED BY '«hunter»'
ALTER ROLE x WITH PASSWORD '«hunter»' ¦ userPassword:: «aHVudGVyMg»== ¦ PIN: «4711»
root:$6$saltsalt${P}{P}{P}«{P}»:1 ¦ %22password%22%3A%22«hunter2»%22 ¦ password%3D«hunter2»
&quot;password&quot;:&quot;«hunter»&quot; ¦ ConvertTo-SecureString '«hunter»' -AsPlainText
ANTHROPIC_API_KEY=sk-ant-api03-«{P}» ¦ Bearer «{P}» ¦ basic «{B}»== ¦ x-api-key:«{P}»
HTTP_X_API_KEY=«{P}» ¦ password=«hunter2»&user=bob
'''),
    *json_samples(r"""
{"name": "DB_PASSWORD", "value": "«{P}»"} ¦ {"key": "api_key", "value": "«correct horse battery»"}
{"Name": "Authorization", "Value": "Foo «abc»"} ¦ {"header": "X-Auth-Key", "val": "«{P}»"}
{"headers": [["Authorization", "Custom «{P}»"]]} ¦ ["password", "«hunter2»"]
{"h": [["Cookie", "sid=«{P}»"]]} ¦ {"e": [["DB_PASSWORD", "«correct horse battery»"]]}
{"Authorization": "Splunk «{P}»"} ¦ {"Cookie": "JSESSIONID=«{P}»"}
{"cookies": {"session": "«{P}»"}} ¦ {"cookies": {"PHPSESSID": "«{H}»"}}
"DB_PASSWORD=p@ss,«w0rd;x»\nA=1" ¦ ["mysql", "-u", "root", "-p«Hunter22»"]
["mysql", "-p", "«Hunter22»"] ¦ ["curl", "-u", "bob:«hunter2»"] ¦ ["x", "--token", "«abc»"]
["x", "--api-key=«abcdef»"] ¦ ["sshpass", "-p", "«hunter»", "ssh"]
"db:\n  password: «correct horse»\n  port: 1" ¦ "- name: DB_PASSWORD\n  value: «hunter»"
"password: |\n  line one\n  «line two»\nx: 1" ¦ "stringData:\n  password: «hunter2»"
"machine h\n  login bob\n  password «hunter»\n" ¦ "<key>Password</key>\n<string>«hunter»</string>"
"{\"a\": \"{\\\"password\\\": \\\"«two words»\\\"}\"}"
{"b": "{\"a\": \"{\\\"x\\\": \\\"{\\\\\\\"client_secret\\\\\\\": \\\\\\\"«two words»\\\\\\\"}\\\"}\"}"}
"log: {\"m\": \"{\\\"password\\\": \\\"«two words»\\\"}\"}"
"\"{\\\"api_key\\\": \\\"«a b»\\\"}\"" ¦ {"kty": "RSA", "n": "abc", "d": "«{P}»"}
{"keys": [{"kty": "oct", "k": "«{P}»"}]} ¦ "Password:\n  «hunter2»"
"Content-Disposition: form-data; name=\"password\"\r\n\r\n«hunter2»\r\n"
{"auth": {"username": "b", "password": "«zz»"}} ¦ {"auths": {"r": {"auth": "«{B}»=="}}}
"{\\\"password\\\":\\\"hun\\\\\\\"«ter2»\\\"}" ¦ "password=\"a\\\"«b c»\""
"""),
    ("MIIEpAIBAAKCAQEA" + L[16:], L[-64:]),
    ("MIIEpAIBAAKCAQEA" + L[16:].replace("\n", "\\n"), L[-64:]),
    (L + "\n-----END RSA PRIVATE KEY-----", L[:64]),
    ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" + L[32:], L[-64:]),
    ("b3BlbnNzaC1rZXktdjEAAAAABG5vbmU" + L[31:], L[-64:]),
    ({"k": "MHcCAQEEI" + L[9:64]}, L[20:60]),
    (
        "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nComment: x\nPublic-Lines: 1\nAAAA\n"
        f"Private-Lines: 6\n{L}\nPrivate-MAC: {_KNOWN['H']}",
        L[-64:],
    ),
    ("-----BEGIN PRIVATE KEY-----\\n" + L, L[-64:]),
    ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n" + L + "\n---- END", L[-64:]),
]
"""What a log may hold, and the secret in it."""

HARMLESS: list[Any] = [
    *"""
    npm_config_registry_url hf_tokenizer_max_length sk-learn-pipeline-v2
    re_compile_pattern_cache_size fw_update_server_hostname_prod glpat-nothing-here-to-see
    xai-explainability-dashboard-v2 shippo_live_rates_enabled vcr_cassette_library_directory
    tfp_distributions_normal_v2 pat-na1-customer-segment sk_buff_alloc_failures_total
    npm_package_dependencies_react_dom hf_hub_download_timeout_seconds gsk_scheduler_worker_count
    key-value-store-metrics s.ThisIsALongIdentifierName std::vector<std::string> a::b cafe::babe
    dead::beef Foo::Bar::baz token::Kind abc::def::ghi password_length_min
    http_requests_total{code=200} max_tokens=4096 prompt_tokens:128 token_bucket_rate=100
    secret_rotation_days=90 session_timeout=3600 auth_method=oauth2 password_policy=strict
    api_key_count=12 primary_key=user_id sort_key=created_at cache_key=user:123:profile author=Ann
    keyboard=qwerty tokenizer=gpt2 passport_number=missing public_key_algorithm=rsa2048
    access_key_id=none key_id=alias/app-prod compass=north monkey=george hotkey=ctrl+shift+p
    token_type=bearer expires_in=3600 oauth_callback_url=https://x.io/cb secret_name=prod/db
    password_reset_url=https://x.io/reset2 123-456-7890 100-200-3000 4006381333931 5901234123457
    9783161484100 1234567812345678 2.14.0.1 v1.2.3.4 1.2.3.4-beta 120.0.6099.109 +52.520008
    +13.404954 52.5200,13.4050 2026-11-11T10:20:30Z 20261111T102030Z 12:30:45 10:20:30:40
    00:1a:2b:3c:4d:5e git@github.com:org/repo.git icon@2x.png getty@tty1.service lodash@4.17.21
    s3://bucket/key=abc/part-0001.parquet ssh://git@github.com/org/repo.git ART-0049-2211-33
    api-550e8400-e29b-41d4-a716-446655440000 ORD-2024-000123 INV20240001234 0x1f4a3b2c
    DE89370400440532013001 1700000000000000000 api_key=YOUR_API_KEY token=$TOKEN pass=42
    chrome/120.0.0.0 lib.so.1.2.33.4 +49 x@y @types/node@20.1.2 https://medium.com/@user1/post-2
    user.name@ foo_token_count=12
    """.split(),
    *"""
Basic understanding of bearer instruments ¦ at 12:30:45 on 2024-05-01, version 3.11.2
order 1234567890123 of 99 items, id usr_8841 ¦ std::vector, a:b, x@y ¦ 4111 1111 1111 1112
max_tokens: 4096 ¦ version: 10.0.2.15 ¦ Please reset your password: click the link below.
The token is invalid: try again ¦ Your password must be changed ¦ secret: patience
Forgot password? Click here ¦ The pass was intercepted at 12:30 ¦ the key: be kind
Password: required ¦ token: string ¦ password: ${DB_PASSWORD} ¦ password: <your password>
password = os.environ['DB_PASSWORD'] ¦ password = get_password() ¦ token = self.token
if password == confirm: ¦ def login(user, password): ¦ password: str = Field(...) ¦ tokens: 4096
{"token": " the", "logprob": -0.1} ¦ usage: 1200 tokens ¦ the secret ingredient is 2 eggs
Tokens per second: 45.2 ¦ Bearer of bad news arrived ¦ Basic authentication2 is used
basic understanding-of-internationalization ¦ token classification_results_v2 ¦ pin 13 is HIGH
key: value ¦ answer key: b ¦ PASS: test_login_2 ¦ pass rate: 97.5% ¦ auth: oauth2
authentication: none ¦ authorization_endpoint: https://x.io/authorize ¦ session: spring-2024
signature: def f(x) ¦ the credentials are stored in vault ¦ password-protected file 2024.zip
token-based auth v2 ¦ mkdir -p /tmp/x1 ¦ ssh -p 2222 host1 ¦ docker run -p 8080:80 nginx
psql -p 5432 ¦ cp -p a1 b2 ¦ order 4929-1234-5678-9012x ¦ article 415-555-0123
Part No. 415-555-0123 ¦ SKU 212-867-5309 ¦ ID 10.0.0 ¦ sentence. 1.1.1.1.1 ¦ OID 1.3.6.1.4.1.311
Section 4.2.1.3 says ¦ release 10.4.200.1 ¦ tel 112 ¦ ratio 1:2:3:4:5:6:7:8 ¦ JetBrains 2023.3.4
code: E11000 ¦ status code: 404 ¦ postal code: 10115 ¦ zip code: 90210-1234 ¦ csv: a;b;c
secret santa list 2024 ¦ passphrase length 12 ¦ password strength: strong2 ¦ secretary: Ann
token ring 802.5 ¦ keys: a1,b2,c3 ¦ partition_key: 2024-11-11 ¦ issue key: PROJ-1234
""".strip()
    .replace("\n", " ¦ ")
    .split(" ¦ "),
    *map(
        json.loads,
        """
{"token": " the", "logprob": -0.5} ¦ {"tokens": ["a", "cat"]} ¦ {"columns": ["token", "count"]}
{"required": ["username", "password"]} ¦ {"required": ["password", "token"]}
{"name": "password", "type": "string", "value": null} ¦ {"max_tokens": 4096}
{"key": "Enter", "code": "KeyA"} ¦ {"key": "user-profile-42", "value": "x1"} ¦ {"pin": 13}
{"password": true} ¦ {"secret": null} ¦ {"auth": "oauth2"} ¦ {"token_count": 123456}
{"pass": true} ¦ {"primary_key": "id"} ¦ {"keys": ["a", "b"]} ¦ {"secretName": "tls-cert-2024"}
{"cursor": "eyJpZCI6MTIzfQ"} ¦ {"nextToken": "AbCdEf123456789"} ¦ {"cookie": true}
{"id": 4006381333931} ¦ {"lat": 52.5, "lon": 13.4}
""".strip()
        .replace("\n", " ¦ ")
        .split(" ¦ "),
    ),
]
"""What looks like a secret, and is none."""

"""Made-up secrets in the forms that logs hold them in, and values that only look like them."""

# ruff: noqa: SIM905, UP031, E501 (tables are read more easily as text)
import json
import random
from typing import Any

_RANDOM = random.Random(7)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def word(length: int, letters: str = _LETTERS) -> str:
    """Characters of a key, a digit among them."""
    text = "".join(_RANDOM.choices(letters, k=length - 1))
    return text + ("7" if "7" in letters else letters[0])


def hexadecimal(length: int) -> str:
    """Characters of a hexadecimal key."""
    return word(length, "0123456789abcdef")


def upper(length: int) -> str:
    """Capital letters and digits."""
    return word(length, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


def uuid() -> str:
    """An identifier of 32 digits in five groups."""
    return "-".join(map(hexadecimal, (8, 4, 4, 4, 12)))


KEYS = {
    "OpenAI": f"sk-{word(48)}",
    "OpenAI project": f"sk-proj-{word(60)}",
    "OpenAI service account": f"sk-svcacct-{word(60)}",
    "Anthropic": f"sk-ant-api03-{word(90)}AA",
    "OpenRouter": f"sk-or-v1-{hexadecimal(64)}",
    "DeepSeek": f"sk-{hexadecimal(32)}",
    "Groq": f"gsk_{word(52)}",
    "xAI": f"xai-{word(80)}",
    "Perplexity": f"pplx-{word(48)}",
    "Replicate": f"r8_{word(37)}",
    "Hugging Face": f"hf_{word(34)}",
    "Hugging Face organisation": f"api_org_{word(34)}",
    "Fireworks": f"fw_{word(22)}",
    "Cerebras": f"csk-{word(48).lower()}",
    "Together": f"tgp_v1_{word(43)}",
    "NVIDIA": f"nvapi-{word(64)}",
    "Pinecone": f"pcsk_{word(50)}",
    "Tavily": f"tvly-{word(32)}",
    "ElevenLabs": f"sk_{hexadecimal(48)}",
    "LangSmith": f"lsv2_pt_{hexadecimal(32)}_{hexadecimal(10)}",
    "LangSmith old": f"ls__{hexadecimal(32)}",
    "Langfuse secret": f"sk-lf-{uuid()}",
    "Langfuse public": f"pk-lf-{uuid()}",
    "dtdr": f"dtdr_{word(43)}",
    "PostHog": f"phc_{word(43)}",
    "GitHub personal": f"ghp_{word(36)}",
    "GitHub OAuth": f"gho_{word(36)}",
    "GitHub user": f"ghu_{word(36)}",
    "GitHub server": f"ghs_{word(36)}",
    "GitHub refresh": f"ghr_{word(76)}",
    "GitHub fine-grained": f"github_pat_{word(22)}_{word(59)}",
    "GitLab personal": f"glpat-{word(20)}",
    "GitLab deploy": f"gldt-{word(20)}",
    "GitLab runner": f"glrt-{word(20)}",
    "Bitbucket": f"ATBB{word(32)}",
    "Atlassian": f"ATATT3xFfGF0{word(180)}",
    "AWS access key": f"AKIA{upper(16)}",
    "AWS temporary": f"ASIA{upper(16)}",
    "AWS Bedrock": f"ABSK{word(108)}=",
    "Google API": f"AIza{word(35)}",
    "Google OAuth": f"ya29.{word(60)}",
    "Google client": f"GOCSPX-{word(28)}",
    "Google refresh": f"1//0{word(60)}",
    "Azure AD": f"{word(3)}8Q~{word(34)}",
    "DigitalOcean": f"dop_v1_{hexadecimal(64)}",
    "DigitalOcean OAuth": f"doo_v1_{hexadecimal(64)}",
    "Databricks": f"dapi{hexadecimal(32)}",
    "Dynatrace": f"dt0c01.{upper(24)}.{upper(64)}",
    "Doppler": f"dp.pt.{word(43)}",
    "Vault": f"hvs.{word(90)}",
    "Vault old": f"s.{word(24)}",
    "Terraform": f"{word(14)}.atlasv1.{word(67)}",
    "Pulumi": f"pul-{hexadecimal(40)}",
    "Heroku": f"HRKU-{uuid()}",
    "Netlify": f"nfp_{word(36)}",
    "Supabase": f"sbp_{hexadecimal(40)}",
    "Supabase secret": f"sb_secret_{word(31)}",
    "PlanetScale": f"pscale_tkn_{word(43)}",
    "PlanetScale password": f"pscale_pw_{word(43)}",
    "Fly.io": f"fo1_{word(43)}",
    "Tailscale": f"tskey-auth-{word(11)}CNTRL-{word(32)}",
    "Cloudflare origin": f"v1.0-{hexadecimal(24)}-{hexadecimal(146)}",
    "Slack bot": f"xoxb-{word(12, '0123456789')}-{word(24)}",
    "Slack user": f"xoxp-{word(12, '0123456789')}-{hexadecimal(32)}",
    "Slack app": f"xapp-1-{upper(11)}-{word(13, '0123456789')}-{hexadecimal(64)}",
    "Discord bot": f"M{word(23)}.{word(6)}.{word(38)}",
    "Telegram bot": f"{word(10, '123456789')}:AA{word(33)}",
    "Twilio": f"SK{hexadecimal(32)}",
    "Twilio account": f"AC{hexadecimal(32)}",
    "SendGrid": f"SG.{word(22)}.{word(43)}",
    "Mailgun": f"key-{hexadecimal(32)}",
    "Mailchimp": f"{hexadecimal(32)}-us12",
    "Brevo": f"xkeysib-{hexadecimal(64)}-{word(16)}",
    "Resend": f"re_{word(8)}_{word(24)}",
    "Postman": f"PMAK-{hexadecimal(24)}-{hexadecimal(34)}",
    "Stripe secret": f"sk_live_{word(24)}",
    "Stripe test": f"sk_test_{word(24)}",
    "Stripe restricted": f"rk_live_{word(24)}",
    "Stripe webhook": f"whsec_{word(32)}",
    "Square": f"sq0atp-{word(22)}",
    "Square access": f"EAAA{word(60)}",
    "Braintree": f"access_token$production${word(16).lower()}${hexadecimal(32)}",
    "Plaid": f"access-production-{uuid()}",
    "Razorpay": f"rzp_live_{word(14)}",
    "Flutterwave": f"FLWSECK-{hexadecimal(32)}-X",
    "Shopify": f"shpat_{hexadecimal(32)}",
    "Shopify app": f"shpss_{hexadecimal(32)}",
    "Shippo": f"shippo_live_{hexadecimal(40)}",
    "EasyPost": f"EZAK{word(54).lower()}",
    "Duffel": f"duffel_live_{word(43)}",
    "HubSpot": f"pat-na1-{uuid()}",
    "Airtable": f"pat{word(14)}.{hexadecimal(64)}",
    "Notion": f"ntn_{word(46)}",
    "Notion old": f"secret_{word(43)}",
    "Linear": f"lin_api_{word(40)}",
    "Figma": f"figd_{word(40)}",
    "Asana": f"1/{word(16, '123456789')}:{hexadecimal(32)}",
    "Typeform": f"tfp_{word(59)}",
    "Contentful": f"CFPAT-{word(43)}",
    "Mapbox": f"sk.eyJ{word(60)}.{word(22)}",
    "Sentry": f"sntrys_eyJ{word(60)}",
    "Grafana": f"glsa_{word(32)}_{hexadecimal(8)}",
    "New Relic": f"NRAK-{upper(27)}",
    "LaunchDarkly": f"sdk-{uuid()}",
    "SonarQube": f"sqp_{hexadecimal(40)}",
    "Sourcegraph": f"sgp_{hexadecimal(16)}_{hexadecimal(40)}",
    "npm": f"npm_{word(36)}",
    "PyPI": f"pypi-AgEIcHlwaS5vcmc{word(60)}",
    "RubyGems": f"rubygems_{hexadecimal(48)}",
    "Docker": f"dckr_pat_{word(27)}",
    "Artifactory": f"AKCp{word(69)}",
    "Clojars": f"CLOJARS_{word(60).lower()}",
    "Prefect": f"pnu_{word(36).lower()}",
    "1Password": f"ops_eyJ{word(250)}",
    "age": f"AGE-SECRET-KEY-1{upper(58)}",
    "OpenShift": f"sha256~{word(43)}",
    "Alibaba": f"LTAI{word(20)}",
    "Tencent": f"AKID{word(32)}",
    "Octopus": f"API-{upper(26)}",
    "JSON web token": f"eyJ{word(20)}.eyJ{word(40)}.{word(43)}",
}
"""Provider -> a key in its form."""

PLAIN = word(28)
PHRASE = "correct horse battery"
PEM = "\\n".join(word(60) for _ in range(3))

CONTEXTS: dict[str, tuple[Any, str]] = {
    "list under a secret name": ({"api_keys": [PLAIN, "second one"]}, "second one"),
    "object under a secret name": ({"credentials": {"user": "bob", "key": PLAIN}}, PLAIN),
    "quoted password with spaces": (f'password = "{PHRASE}"', PHRASE),
    "single quotes": (f"passwd: '{PHRASE}'", PHRASE),
    "password in JSON text": (f'{{"password": "{PHRASE}"}}', PHRASE),
    "PGP key": (
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{PEM}\n-----END PGP PRIVATE KEY BLOCK-----",
        PEM,
    ),
    "OpenSSH key": (
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PEM}\n-----END OPENSSH PRIVATE KEY-----",
        PEM,
    ),
    "EC key that is cut off": (f"-----BEGIN EC PRIVATE KEY-----\n{PEM}", PEM),
    "environment variable": (f"DB_PASS={PLAIN}", PLAIN),
    "exported variable": (f"export SMTP_PASSWORD={PLAIN}", PLAIN),
    "AWS secret by name": (f"aws_secret_access_key = {word(40)}/+", "/+"),
    "camel case": ({"clientSecret": PLAIN}, PLAIN),
    "camel case token": ({"accessToken": PLAIN}, PLAIN),
    "camel case in text": (f'"dbPassword": "{PLAIN}"', PLAIN),
    "dotted name": ({"spring.datasource.password": PLAIN}, PLAIN),
    "option and value in a list": (["login", "--password", PHRASE], PHRASE),
    "option in a command": (f"mysql --password {PLAIN} -u bob", PLAIN),
    "option with equals": (f"curl --api-key={PLAIN} x", PLAIN),
    "bearer header": (f"Authorization: Bearer {PLAIN}", PLAIN),
    "basic header": (f"curl -H 'Authorization: Basic {PLAIN}=='", PLAIN),
    "header object": ({"X-Api-Key": PLAIN}, PLAIN),
    "database address": (f"postgres://bob:{PLAIN}@db.corp.example/x", PLAIN),
    "redis address": (f"redis://:{PLAIN}@cache:6379", PLAIN),
    "Slack webhook": (f"https://hooks.slack.com/services/T00000000/B00000000/{word(24)}", "T0000"),
    "Discord webhook": (f"https://discord.com/api/webhooks/12345678901/{PLAIN}", PLAIN),
    "Azure storage": (f"DefaultEndpointsProtocol=https;AccountKey={word(86)}==;", "=="),
    "signed address": (f"https://x.blob.core.windows.net/c?se=1&sig={word(43)}%3D", "%3D"),
    "Ruby hash": (f":password => '{PHRASE}'", PHRASE),
    "YAML": (f"api_key: {PLAIN}", PLAIN),
    "Datadog by name": (f"DD_API_KEY={hexadecimal(32)}", "KEY=0"),
}
"""Context -> a value as logs hold it, and what must not be left of it."""

FORMATS: dict[str, tuple[Any, str]] = {
    **{name: (f"use {key} now", key) for name, key in KEYS.items()},
    **CONTEXTS,
}


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


P = "kR7vQ2mX9tLp4Wz8"
H = "9f86d081884c7d659a2feaa0c55ad015"
B = "dXNlcjpwYXNzd29yZDEyMw=="
L = "\n".join(word(64) for _ in range(6))
RSA = "MIIEpAIBAAKCAQEA" + L[16:]
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
    # names
    *[({name: P}, P) for name in NAMES],
    *[(f"{name}={P}", P) for name in NAMES[:14]],
    (f"//registry.npmjs.org/:_authToken={P}", P),
    ("Kennwort: hunter2!", "hunter2"),
    ("Das Passwort lautet Sommer2024!", "Sommer2024"),
    ("mot de passe : Soleil99", "Soleil99"),
    ("Passwort：hunter2x", "hunter2x"),
    ("password： S3cr3tPw", "S3cr3tPw"),
    ("密码：abc12345", "abc12345"),
    ("您的密码是abc12345", "abc12345"),
    ("The password for bob is Hunter2024", "Hunter2024"),
    ("my password is 'opensesame'", "opensesame"),
    ("Le mot de passe est Soleil99", "Soleil99"),
    ("La contraseña es Verano2024", "Verano2024"),
    ({"name": "DB_PASSWORD", "value": P}, P),
    ({"key": "api_key", "value": PHRASE}, PHRASE),
    ({"Name": "Authorization", "Value": "Foo abc"}, "abc"),
    ({"header": "X-Auth-Key", "val": P}, P),
    ({"headers": [["Authorization", "Custom " + P]]}, P),
    (["password", "hunter2"], "hunter2"),
    ({"h": [["Cookie", "sid=" + P]]}, P),
    ({"e": [["DB_PASSWORD", PHRASE]]}, PHRASE),
    ("Authorization: ApiKey " + P, P),
    ("Authorization: token " + P, P),
    ('authorization: Digest username="bob", response="%s"' % H, H),
    ("Authorization: AWS4-HMAC-SHA256 Credential=AKIAX/2020, Signature=" + H, H),
    ("Proxy-Authorization: Basic " + B, B[:-2]),
    ("curl -H 'Authorization: GenieKey %s' x" % P, P),
    ({"Authorization": "Splunk " + P}, P),
    ("https://x.io/a?b=1&token=%s&c=2" % P, P),
    ("https://x.io/a?access_token=%s" % P, P),
    ("https://x.io/?key=%s" % H, H),
    ("https://x.io/?api_key=abcd1234", "abcd1234"),
    ("https://x.io/?sig=%s" % P, P),
    ("https://x.io/?X-Amz-Signature=%s" % (H + H), H),
    ("https://x.io/?password=hunter2", "hunter2"),
    ("https://x.io/?auth=%s" % P, P),
    ("Cookie: sessionid=%s; theme=dark" % P, P),
    ("Set-Cookie: PHPSESSID=%s; Path=/" % P, P),
    ("cookie: a=b; connect.sid=s%%3A%s" % P, P),
    ({"Cookie": "JSESSIONID=" + P}, P),
    ({"cookies": {"session": P}}, P),
    ({"cookies": {"PHPSESSID": H}}, H),
    ("curl -b 'PHPSESSID=%s' x" % P, P),
    ("curl --cookie JSESSIONID=%s" % H, H),
    ("DB_PASSWORD=p@ss,w0rd;x\nA=1", "w0rd;x"),
    ('DB_PASSWORD="two words"', "two words"),
    ("export SECRET='x y z'", "x y z"),
    ("set PASSWORD=hunter2", "hunter2"),
    ("$env:API_KEY='abc'", "abc"),
    ("mysql -u root -pHunter22 db", "Hunter22"),
    ("mysql -u root -p Hunter22 db", "Hunter22"),
    ("sshpass -p hunter ssh x@y", "hunter"),
    ("curl -u bob:hunter2 https://x", "hunter2"),
    ("tool --token=%s" % P, P),
    ("tool --token %s" % P, P),
    ("tool --password 'a b c'", "a b c"),
    ("docker login -u bob -p hunter2 reg", "hunter2"),
    ("redis-cli -a hunter2 ping", "hunter2"),
    ("java -Dpassword=hunter2 -jar", "hunter2"),
    ("openssl rsa -passin pass:hunter2 -in x", "hunter2"),
    ("net use /password:hunter2", "hunter2"),
    ("keytool -storepass changeit2 -x", "changeit2"),
    ("psql 'host=x password=hunter2 user=y'", "hunter2"),
    (["mysql", "-u", "root", "-pHunter22"], "Hunter22"),
    (["mysql", "-p", "Hunter22"], "Hunter22"),
    (["curl", "-u", "bob:hunter2"], "hunter2"),
    (["x", "--token", "abc"], "abc"),
    (["x", "--api-key=abcdef"], "abcdef"),
    (["sshpass", "-p", "hunter", "ssh"], "hunter"),
    ("db:\n  password: correct horse\n  port: 1", "correct horse"),
    ("- name: DB_PASSWORD\n  value: hunter", "hunter"),
    ("password: |\n  line one\n  line two\nx: 1", "line two"),
    ("api_key: 'a b'", "a b"),
    ("stringData:\n  password: hunter2", "hunter2"),
    ("machine github.com login bob password hunter2", "hunter2"),
    ("machine h\n  login bob\n  password hunter\n", "hunter"),
    ("machine x password hunter2x login bob", "hunter2x"),
    ("<password>hunter</password>", "hunter"),
    ("<db:Password type='x'>two words</db:Password>", "two words"),
    ('<add key="ApiKey" value="%s"/>' % P, P),
    ('<property name="password">hunter</property>', "hunter"),
    ('<property name="password" value="hunter"/>', "hunter"),
    ("<key>Password</key>\n<string>hunter</string>", "hunter"),
    ("<RSAKeyValue><D>%s</D></RSAKeyValue>" % P, P),
    ("&lt;password&gt;hunter2&lt;/password&gt;", "hunter2"),
    ("<user password='hunter'/>", "hunter"),
    ("<apiKey><![CDATA[%s]]></apiKey>" % P, P),
    (json.dumps({"a": json.dumps({"password": "two words"})}), "two words"),
    (
        {"b": json.dumps({"a": json.dumps({"x": json.dumps({"client_secret": "two words"})})})},
        "two words",
    ),
    (json.dumps({"credentials": {"user": "bob", "k": "vv ww"}}), "vv ww"),
    (json.dumps([{"name": "password", "value": "a b"}]), "a b"),
    ("log: " + json.dumps({"m": json.dumps({"password": "two words"})}), "two words"),
    (json.dumps(json.dumps({"api_key": "a b"})), "a b"),
    ("Server=x;Database=y;User Id=sa;Password=p@ss,1;", "p@ss"),
    ("Server=x;Uid=sa;Pwd=hunter2;", "hunter2"),
    ("mongodb+srv://bob:hunter2@c.x.net/db", "hunter2"),
    ("amqp://bob:hun@ter2@h:5672", "ter2"),
    ("bob:hunter2@tcp(127.0.0.1:3306)/db", "hunter2"),
    ("jdbc:mysql://h/db?user=x&password=hunter2", "hunter2"),
    ("jdbc:oracle:thin:scott/tiger22@h:1521:x", "tiger22"),
    ("Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=%s=" % P, P),
    ("redis://:hunter2@h:1", "hunter2"),
    ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=%s==;" % P, P),
    (RSA, L[-64:]),
    (RSA.replace("\n", "\\n"), L[-64:]),
    (L + "\n-----END RSA PRIVATE KEY-----", L[:64]),
    ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" + L[32:], L[-64:]),
    ("b3BlbnNzaC1rZXktdjEAAAAABG5vbmU" + L[31:], L[-64:]),
    ({"k": "MHcCAQEEI" + L[9:64]}, L[20:60]),
    (
        "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nComment: x\nPublic-Lines: 1\nAAAA\nPrivate-Lines: 6\n"
        + L
        + "\nPrivate-MAC: "
        + H,
        L[-64:],
    ),
    ("-----BEGIN PRIVATE KEY-----\\n" + L, L[-64:]),
    ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n" + L + "\n---- END", L[-64:]),
    ({"kty": "RSA", "n": "abc", "d": P}, P),
    (json.dumps({"kty": "EC", "d": P}), P),
    ({"keys": [{"kty": "oct", "k": P}]}, P),
    ("config['password'] = 'hunter'", "hunter"),
    ('{:password=>"hunter"}', "hunter"),
    ("define('DB_PASSWORD', 'hunter2');", "hunter2"),
    ('setPassword("hunter2")', "hunter2"),
    ('password := "hunter"', "hunter"),
    ('password = """hunter2x"""', "hunter2x"),
    ("**Password:** hunter2", "hunter2"),
    ("| password | hunter2 |", "hunter2"),
    ("Password:\n  hunter2", "hunter2"),
    ("API key: %s" % P, P),
    ("Secret access key: %s" % P, P),
    ("Access Token - %s" % P, P),
    ("CREATE USER bob IDENTIFIED BY 'hunter'", "hunter"),
    ("ALTER ROLE x WITH PASSWORD 'hunter'", "hunter"),
    ("userPassword:: aHVudGVyMg==", "aHVudGVyMg"),
    ("PIN: 4711", "4711"),
    ("root:$6$saltsalt$%s:1" % (P * 4), P),
    ("%22password%22%3A%22hunter2%22", "hunter2"),
    ("password%3Dhunter2", "hunter2"),
    ("&quot;password&quot;:&quot;hunter&quot;", "hunter"),
    ('Content-Disposition: form-data; name="password"\r\n\r\nhunter2\r\n', "hunter2"),
    ("ConvertTo-SecureString 'hunter' -AsPlainText", "hunter"),
    ({"auth": {"username": "b", "password": "c"}}, '"c"'),
    ("ANTHROPIC_API_KEY=sk-ant-api03-" + P, P),
    ({"auths": {"r": {"auth": B}}}, B),
    ("Bearer " + P, P),
    ("basic " + B, B[:-2]),
    ("x-api-key:%s" % P, P),
    ("HTTP_X_API_KEY=%s" % P, P),
    ("password=hunter2&user=bob", "hunter2"),
    ('{\\"password\\":\\"hun\\\\\\"ter2\\"}', "ter2"),
    ('password="a\\"b c"', "b c"),
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
    """.split(),
    "Basic understanding of bearer instruments",
    "at 12:30:45 on 2024-05-01, version 3.11.2",
    "order 1234567890123 of 99 items, id usr_8841",
    "std::vector, a:b, x@y",
    "4111 1111 1111 1112",
    "DE89370400440532013001",
    "max_tokens: 4096",
    "1700000000000000000",
    "version: 10.0.2.15",
    "Please reset your password: click the link below.",
    "The token is invalid: try again",
    "Your password must be changed",
    "secret: patience",
    "Forgot password? Click here",
    "The pass was intercepted at 12:30",
    "the key: be kind",
    "Password: required",
    "token: string",
    "password: ${DB_PASSWORD}",
    "password: <your password>",
    "api_key=YOUR_API_KEY",
    "password = os.environ['DB_PASSWORD']",
    "password = get_password()",
    "token=$TOKEN",
    "token = self.token",
    "if password == confirm:",
    "def login(user, password):",
    "password: str = Field(...)",
    "tokens: 4096",
    '{"token": " the", "logprob": -0.1}',
    "usage: 1200 tokens",
    "the secret ingredient is 2 eggs",
    "Tokens per second: 45.2",
    "Bearer of bad news arrived",
    "Basic authentication2 is used",
    "basic understanding-of-internationalization",
    "token classification_results_v2",
    "pin 13 is HIGH",
    "key: value",
    "answer key: b",
    "PASS: test_login_2",
    "pass=42",
    "pass rate: 97.5%",
    "auth: oauth2",
    "authentication: none",
    "authorization_endpoint: https://x.io/authorize",
    "session: spring-2024",
    "signature: def f(x)",
    "the credentials are stored in vault",
    "password-protected file 2024.zip",
    "token-based auth v2",
    "mkdir -p /tmp/x1",
    "ssh -p 2222 host1",
    "docker run -p 8080:80 nginx",
    "psql -p 5432",
    "cp -p a1 b2",
    "order 4929-1234-5678-9012x",
    "article 415-555-0123",
    "Part No. 415-555-0123",
    "SKU 212-867-5309",
    "ID 10.0.0",
    "sentence. 1.1.1.1.1",
    "OID 1.3.6.1.4.1.311",
    "Section 4.2.1.3 says",
    "release 10.4.200.1",
    "chrome/120.0.0.0",
    "lib.so.1.2.33.4",
    "tel 112",
    "+49",
    "ratio 1:2:3:4:5:6:7:8",
    "JetBrains 2023.3.4",
    "code: E11000",
    "status code: 404",
    "postal code: 10115",
    "zip code: 90210-1234",
    "csv: a;b;c",
    "secret santa list 2024",
    "passphrase length 12",
    "password strength: strong2",
    "x@y",
    "@types/node@20.1.2",
    "https://medium.com/@user1/post-2",
    "user.name@",
    "foo_token_count=12",
    "secretary: Ann",
    "token ring 802.5",
    "keys: a1,b2,c3",
    "partition_key: 2024-11-11",
    "issue key: PROJ-1234",
    {"token": " the", "logprob": -0.5},
    {"tokens": ["a", "cat"]},
    {"columns": ["token", "count"]},
    {"required": ["username", "password"]},
    {"required": ["password", "token"]},
    {"name": "password", "type": "string", "value": None},
    {"max_tokens": 4096},
    {"key": "Enter", "code": "KeyA"},
    {"key": "user-profile-42", "value": "x1"},
    {"pin": 13},
    {"password": True},
    {"secret": None},
    {"auth": "oauth2"},
    {"token_count": 123456},
    {"pass": True},
    {"primary_key": "id"},
    {"keys": ["a", "b"]},
    {"secretName": "tls-cert-2024"},
    {"cursor": "eyJpZCI6MTIzfQ"},
    {"nextToken": "AbCdEf123456789"},
    {"cookie": True},
    {"id": 4006381333931},
    {"lat": 52.5, "lon": 13.4},
]
"""What looks like a secret, and is none."""

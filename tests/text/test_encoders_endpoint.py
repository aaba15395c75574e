"""Against a real HTTP server on the loopback interface that can misbehave in many ways."""

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

import dtdr
from dtdr.cli import run
from dtdr.errors import DtdrError, EncoderError, InputError
from dtdr.text import encoders
from dtdr.text.encoders.endpoint import EndpointEncoder
from tests import small_data
from tests.embeddings_server import embeddings_server, good, vector
from tests.helpers import change_config

KEY = "sk-a-very-secret-key"


def changed(change):
    return lambda handler, body: good(handler, body, change)


def status(code, content=b"", **headers):
    return lambda handler, body: handler.answer(code, content, **headers)


def drop(handler, body):
    handler.close_connection = True


def truncated(handler, body):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.close_connection = True


@pytest.fixture
def server():
    with embeddings_server() as running:
        yield running


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("DTDR_CACHE", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("DTDR_ENCODER_API_KEY", raising=False)
    monkeypatch.setenv("DTDR_ALLOW_ENDPOINT", "")


@pytest.fixture
def waits(monkeypatch):
    """Seconds that were waited between tries, without waiting."""
    seconds: list[float] = []
    sleep = asyncio.sleep

    async def note(pause):
        if threading.current_thread().name == "dtdr-loop":  # of the transport
            seconds.append(pause)
        else:
            await sleep(pause)

    monkeypatch.setattr(asyncio, "sleep", note)
    return seconds


def encoder_for(server, **options):
    return EndpointEncoder(url=server.url, model="small", **options)


def expected(texts):
    rows = np.array([vector(text) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_vectors_come_back_in_the_order_of_the_texts(server):
    server.script = [changed(lambda data: data[::-1])]
    texts = ["one", "two two", "Köln 🙂", "half \ud800"]
    vectors = encoder_for(server).encode(texts)
    np.testing.assert_allclose(
        vectors, expected([text.replace("\ud800", "?") for text in texts]), rtol=1e-6
    )
    assert vectors.dtype == np.float32
    path, _, body = server.requests[0]
    assert path == "/v1/embeddings"
    assert body["model"] == "small"
    assert body["encoding_format"] == "float"


def test_texts_go_in_batches_without_blank_ones_which_get_zeros(server):
    texts = ["", *(f"text {'x' * number}" for number in range(10)), " \n"]
    vectors = encoder_for(server, batch_size=4).encode(texts)
    np.testing.assert_allclose(vectors[1:-1], expected(texts[1:-1]), rtol=1e-6)
    np.testing.assert_array_equal(vectors[[0, -1]], 0)
    assert [len(body["input"]) for _, _, body in server.requests] == [4, 4, 2]


def test_dimension_is_asked_for_only_when_it_is_not_known(server):
    assert encoder_for(server).dimension == 4
    assert len(server.requests) == 1
    assert encoder_for(server, dimension=4).encode([""]).shape == (1, 4)
    assert len(server.requests) == 1
    with pytest.raises(EncoderError, match="4 dimensions, expected 3"):
        encoder_for(server, dimension=3).encode(["text"])


def test_passing_failures_are_tried_again_after_the_time_that_the_server_asks_for(server, waits):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    server.script = [
        drop,
        truncated,
        status(429, Retry_After="7"),
        status(503, Retry_After=later),
        status(503, Retry_After="soon"),
        status(503, Retry_After="-5"),
        status(503),
    ]
    vectors = encoder_for(server, backoff=0, retries=7).encode(["text"])
    np.testing.assert_allclose(vectors, expected(["text"]), rtol=1e-6)
    assert waits[:3] == [0, 0, 7]
    assert 50 < waits[3] <= 60
    assert waits[4:] == [0, 0, 0]


def test_giving_up_says_how_often_it_was_tried(server, waits):
    server.script = [status(429, b'{"error": {"message": "quota used up"}}', Retry_After="7200")]
    with pytest.raises(
        EncoderError, match=r"429 \(quota used up\) and asks to wait 7200 seconds; tried once"
    ):
        encoder_for(server).encode(["text"])
    assert not waits
    server.script = [status(500, b"<h1>no  luck</h1>")] * 3
    with pytest.raises(EncoderError, match=r"with status 500 \(<h1>no luck</h1>\); tried 3 times"):
        encoder_for(server, retries=2).encode(["text"])


def test_the_key_is_sent_but_never_shown_or_kept(server, monkeypatch):
    monkeypatch.setenv("DTDR_ENCODER_API_KEY", f"{KEY}\r\n")  # as from a file
    encoder = encoder_for(server)
    encoder.encode(["text"])
    assert server.requests[0][1]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(encoder.config()) + encoder.fingerprint() + repr(vars(encoder))
    server.script = [status(401, f"wrong key {KEY}".encode())]
    with pytest.raises(
        EncoderError, match=r"wrong key \*\*\*.*check the key in DTDR_ENC"
    ) as caught:
        encoder.encode(["text"])
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_key_of_openai_goes_to_openai_alone(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    encoder_for(server).encode(["text"])
    assert "Authorization" not in server.requests[0][1]
    server.script = [status(401)]
    with pytest.raises(EncoderError, match="the key in DTDR_ENCODER_API_KEY, which is not set"):
        encoder_for(server).encode(["text"])
    for url, variable in (
        ("https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("http://api.openai.com/v1", "DTDR_ENCODER_API_KEY"),
        ("https://api.openai.com.example/v1", "DTDR_ENCODER_API_KEY"),
    ):
        assert EndpointEncoder(url=url, model="m").find_key()[0] == variable
    monkeypatch.setenv("DTDR_ENCODER_API_KEY", "first")
    encoder = EndpointEncoder(url="https://api.openai.com/v1", model="m")
    assert encoder.find_key() == ("DTDR_ENCODER_API_KEY", "first")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (status(200, b'{"data": ['), "cannot be read"),
        (status(200, b"\xff\xfe"), "cannot be read"),
        (status(200, b"[]"), "cannot be read"),
        (status(200, b'{"data": 7}'), "cannot be read"),
        (status(200, b'{"data": ["a", "b"]}'), "cannot be read"),
        (changed(lambda data: data[:1]), "1 vectors for 2 texts"),
        (changed(lambda data: [data[0], data[0]]), "index 0 is given twice"),
        (changed(lambda data: [data[0], {**data[1], "index": 5}]), "index 5"),
        (changed(lambda data: [data[0], {**data[1], "embedding": [1.0]}]), "cannot be read"),
        (changed(lambda data: [{**item, "embedding": []} for item in data]), "no length"),
        (changed(lambda data: [{**item, "embedding": [None] * 4} for item in data]), "finite|read"),
        (changed(lambda data: [{**item, "embedding": [1e300] * 4} for item in data]), "finite"),
    ],
)
def test_answers_that_cannot_be_used_are_explained(server, answer, reason):
    server.script = [answer]
    with pytest.raises(EncoderError, match=reason):
        encoder_for(server).encode(["one", "two"])


@pytest.mark.parametrize(
    ("url", "final"),
    [
        ("http://localhost:1/v1/", "http://localhost:1/v1/embeddings"),
        ("https://a.example/v1/embeddings", "https://a.example/v1/embeddings"),
        ("https://a.example/d?api-version=3", "https://a.example/d/embeddings?api-version=3"),
    ],
)
def test_the_path_is_completed(url, final):
    assert EndpointEncoder(url=url, model="m").url == final


@pytest.mark.parametrize("url", ["", "localhost:80", "file:///etc/passwd", "http://", "http://[::"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(InputError, match="url must be"):
        EndpointEncoder(url=url, model="m")


@pytest.mark.parametrize(
    "url", [f"https://me:{KEY}@a.example/v1", f"https://a.example/v1?api_key={KEY}"]
)
def test_a_url_with_a_secret_is_refused_without_showing_it(url):
    with pytest.raises(InputError, match=r"a\.example has a password or key") as caught:
        EndpointEncoder(url=url, model="m")
    assert KEY not in str(caught.value)


def test_create_says_what_it_needs():
    for name in ("endpoint", "endpoint:", "endpoint:small", "endpoint:@http://x"):
        with pytest.raises(InputError, match="endpoint:MODEL@URL"):
            encoders.create(name)
    with pytest.raises(InputError, match="url"):
        encoders.create("endpoint", model="small")
    with pytest.raises(InputError, match="takes nothing after its name"):
        encoders.create("lexical:x")


def test_the_command_line_names_model_and_address(server, tmp_path, capsys, monkeypatch):
    data = small_data.write(tmp_path)
    name = f"endpoint:small@{server.url}"
    model = tmp_path / "model"
    arguments = ["fit", str(data), "-o", str(model), "--retriever", "lr", "--set"]
    arguments += [f"encoder={name}"]
    assert run(arguments) == 0
    assert server.requests[0][2]["model"] == "small"
    command = ["rank", str(model), "Text Ann the weather", "--json"]
    asked = len(server.requests)
    assert run(command) == 2
    assert "DTDR_ALLOW_ENDPOINT=127.0.0.1" in capsys.readouterr().err
    assert len(server.requests) == asked
    monkeypatch.setenv("DTDR_ALLOW_ENDPOINT", "127.0.0.1")
    assert run(command) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["tools"]) == 5


def test_restored_endpoint_uses_the_cache_and_asks_nothing_twice(server):
    first = encoders.create("endpoint", url=encoder_for(server).url, model="small")
    vectors = first.encode(["one", "two"])
    asked = len(server.requests)
    config = json.loads(json.dumps(first.config()))
    restored = encoders.restore(config, first.arrays(), allow_endpoint="127.0.0.1")
    np.testing.assert_array_equal(restored.encode(["two", "one"]), vectors[::-1])
    assert restored.dimension == 4
    assert len(server.requests) == asked


@pytest.mark.parametrize("wrong", ["”", "\nkey", "\x7f"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(server, monkeypatch, wrong):
    monkeypatch.setenv("DTDR_ENCODER_API_KEY", KEY + wrong)
    with pytest.raises(InputError, match="DTDR_ENCODER_API_KEY") as raised:
        encoder_for(server).encode(["text"])
    assert KEY not in str(raised.value)
    assert server.requests == []


def folder_config(server, **changes):
    return {**encoder_for(server, dimension=4).config(), **changes}


@pytest.mark.parametrize("allowed", ["", "localhost", ["127.0.0.1:1"], ["0.0.1", "127.0.0"]])
def test_a_folder_does_not_choose_a_host(server, allowed):
    with pytest.raises(InputError, match=r"sends its queries to the server 127\.0\.0\.1") as raised:
        encoders.restore(folder_config(server), {}, allow_endpoint=allowed)
    assert "\n" not in str(raised.value)


def test_a_host_is_allowed_by_name_with_or_without_its_port(server, monkeypatch):
    config = folder_config(server)
    for allowed in ("127.0.0.1", [f"127.0.0.1:{server.server_port}"]):
        encoders.restore(config, {}, allow_endpoint=allowed)
    monkeypatch.setenv("DTDR_ALLOW_ENDPOINT", "a.example, 127.0.0.1")
    assert encoders.restore(config, {}).encode(["text"]).shape == (1, 4)
    shouted = folder_config(server, url="https://A.Example/v1")
    assert encoders.restore(shouted, {}, allow_endpoint="a.exAMPLE").name == "endpoint"


@pytest.mark.parametrize(
    "variable", ["AWS_SECRET_ACCESS_KEY", "DTDR_SESSIONS", "OPENAI_API_KEY", "", 7, None]
)
def test_a_folder_chooses_no_variable_that_is_sent(server, monkeypatch, variable):
    for name in ("AWS_SECRET_ACCESS_KEY", "DTDR_SESSIONS", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    config = folder_config(server, key_variable=variable)
    encoders.restore(config, {}, allow_endpoint="127.0.0.1").encode(["text"])
    assert "Authorization" not in server.requests[0][1]
    monkeypatch.setenv("DTDR_ENCODER_API_KEY", "own")
    encoders.restore(config, {}, allow_endpoint="127.0.0.1").encode(["another text"])
    assert server.requests[-1][1]["Authorization"] == "Bearer own"


@pytest.mark.parametrize("url", ["", "ftp://a/b", None, 7, ["http://a"]])
def test_a_folder_without_an_address_is_refused(server, url):
    with pytest.raises(InputError, match="for the address of a server"):
        encoders.restore(folder_config(server, url=url), {}, allow_endpoint="a")


def test_no_edit_of_a_folder_sends_a_query_or_a_secret_away(server, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("DTDR_ENCODER_API_KEY", KEY)
    data = small_data.dataset()
    dtdr.fit(data.demonstrations, data.tools, ranker="qts").save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    written = json.loads(path.read_text())
    for edit in (
        {"encoder": folder_config(server, key_variable="AWS_SECRET_ACCESS_KEY")},
        {"encoder": folder_config(server)},
        {"encoder": None, "parameters": {"encoder": f"endpoint:m@{server.url}"}},
        {"parameters": {"encoder": f"endpoint:m@{server.url}"}},
    ):
        change_config(tmp_path / "model", **{**written, **edit})
        with pytest.raises(DtdrError):
            dtdr.load(tmp_path / "model").rank("Text Ann the weather")
    assert server.requests == []

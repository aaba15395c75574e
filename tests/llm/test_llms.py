import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest

from dtdr.errors import InputError, MissingExtraError
from dtdr.llm import backends
from dtdr.llm.backends import LLMError, PromptTooLongError
from dtdr.llm.backends.server import OpenAIServer
from tests import llm_battery
from tests.fake_llm_server import fake_server
from tests.llm_battery import PROMPT


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("DTDR_LLM_API_KEY", raising=False)
    with fake_server() as found:
        yield found


def connect(server, **options) -> OpenAIServer:
    return OpenAIServer("m", server.url, **{"pause": 0.001, "timeout": 20, **options})


def test_an_openai_server_passes_the_battery(server):
    with connect(server) as llm:
        llm_battery.run(llm, context=server.context)


def test_a_server_that_fails_is_asked_again(server):
    llm = connect(server)
    server.faults = ["half", "not json", "array"]
    assert llm.complete(PROMPT, max_tokens=4).text == "send_mail"
    assert server.faults == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("drop", "cannot be reached"),
        ("half", "middle of an answer"),
        ("429", "status 429"),
        ("500", "status 500"),
        ("array", "not an object"),
    ],
)
def test_a_server_that_keeps_failing_is_given_up_with_the_reason(server, fault, said):
    llm = connect(server, tries=2)
    llm.complete(PROMPT, max_tokens=4)
    server.faults = [fault] * 2
    with pytest.raises(LLMError, match=f"{said}.*tried 2 times"):
        llm.complete(PROMPT, max_tokens=4)


def test_the_key_comes_from_the_environment_and_is_in_no_message(server, monkeypatch):
    monkeypatch.setenv("DTDR_LLM_API_KEY", "s3cret-key\r\n")  # as from a file
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai-only")
    llm = connect(server, tries=1)
    server.faults = ["401"]
    with pytest.raises(LLMError, match="DTDR_LLM_API_KEY") as raised:
        llm.complete(PROMPT, max_tokens=4)
    assert server.headers == ["Bearer s3cret-key"]
    assert "s3cret" not in f"{raised.value!r} {llm!r} {llm.name} {raised.value.__cause__!r}"
    monkeypatch.delenv("DTDR_LLM_API_KEY")
    connect(server).complete(PROMPT, max_tokens=4)
    assert server.headers[-1] is None


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_server_that_does_not_say_what_it_is_yet_is_asked_again_later(server, status):
    llm = connect(server, tries=1)
    server.pages = [status]
    with pytest.raises(LLMError, match=str(status)):
        llm.count_tokens("x")
    assert llm.count_tokens("four") == 1
    assert not llm.is_llama_cpp


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_server_without_llama_cpps_page_is_another_one(server, status):
    server.pages = [status]
    assert not connect(server, tries=1).is_llama_cpp


def test_models_are_told_not_to_think_where_the_server_takes_that(server):
    llm = connect(server)
    llm.complete(PROMPT, max_tokens=4)
    assert server.requests[-1]["chat_template_kwargs"] == {"enable_thinking": False}
    strict = connect(server)
    server.faults = ["strict"]
    assert strict.complete(PROMPT, max_tokens=4).text == "send_mail"
    strict.complete(PROMPT, max_tokens=5)
    fields = ["chat_template_kwargs" in request for request in server.requests]
    assert fields == [True, True, False, False]


def test_odd_answers_of_servers_are_read_as_far_as_they_go(server):
    llm = connect(server)
    server.faults = ["flat"]
    with pytest.raises(PromptTooLongError, match="maximum context length is 9"):
        llm.complete(PROMPT, max_tokens=4)
    server.faults = ["odd"]
    answer = llm.complete(PROMPT, max_tokens=4)
    assert (answer.text, answer.prompt_tokens, answer.cached_tokens) == ("? end", 3, None)
    server.faults = ["no message"]
    with pytest.raises(LLMError, match="answered without a message"):
        llm.complete(PROMPT, max_tokens=4)


def test_two_hundred_concurrent_choices_lose_none_and_keep_to_the_limit(server):
    llm = connect(server, concurrency=8, tries=16)
    server.faults = ["429", "500", "drop"] * 5  # fewer than one request's tries
    server.faults += ["slow"] * 2  # others run meanwhile

    with ThreadPoolExecutor(32) as threads:
        asked = [
            threads.submit(llm.complete, PROMPT, max_tokens=1, choices=[f"tool_{number}", "end"])
            for number in range(200)
        ]
    assert [one.result().text for one in asked] == [f"tool_{number}" for number in range(200)]
    assert 1 < server.most_running <= 8


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen", "unknown LLM"),
        ("gguf:", "unknown LLM"),
        ("magic:x", "unknown kind of LLM 'magic'; choose one of gguf, hf, openai"),
        ("openai:model", "names no model and server"),
        ("openai:m@ftp://host", "is not a server address"),
        ("openai:m@http://user:pass@host/v1", "has a user name or password"),
        ("openai:m@http://[::1/v1", "is not a server address"),
        ("openai:m@http://host:port/v1", "is not a server address"),
        ("openai:m@http://host/ü/v1", "is not a server address"),
        ("gguf:/does/not/exist.gguf", "cannot read the model .* no such file"),
    ],
)
def test_names_that_lead_nowhere_say_what_to_write(name, said):
    with pytest.raises(InputError, match=said) as raised:
        backends.create(name)
    assert "pass@" not in str(raised.value)


def test_a_file_that_is_not_gguf_is_refused_before_anything_is_loaded(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(InputError, match="is not a GGUF file"):
        backends.create(f"gguf:{path}")


@pytest.mark.parametrize(
    ("package", "extra"),
    [("xllamacpp", "llm"), ("torch", "transformers"), ("transformers", "transformers")],
)
def test_a_missing_package_names_its_extra(package, extra, tmp_path, monkeypatch):
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, package, None)
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF....")
    model = f"gguf:{path}" if extra == "llm" else "hf:some/model"
    with pytest.raises(MissingExtraError, match=rf"'{package}'.*pip install 'dtdr\[{extra}\]'"):
        backends.create(model)


def test_an_hf_model_of_an_unknown_dtype_is_refused():
    with pytest.raises(InputError, match="dtype is 'int3'; choose one of bfloat16"):
        backends.create("hf:some/model", dtype="int3")


def test_an_hf_model_takes_its_precision_in_its_name(monkeypatch):
    given: dict[str, object] = {}

    def made(kind, *arguments, **parameters):
        given.update(kind=kind, arguments=arguments, parameters=parameters)

    monkeypatch.setattr("dtdr.llm.backends._REGISTRY.create", made)
    backends.create("hf:Qwen/Qwen3-0.6B?dtype=float16&device=cpu")
    assert given == {
        "kind": "hf",
        "arguments": ("Qwen/Qwen3-0.6B",),
        "parameters": {"dtype": "float16", "device": "cpu"},
    }
    with pytest.raises(InputError, match="sets 'size'; an hf: model takes dtype and device"):
        backends.create("hf:Qwen/Qwen3-0.6B?size=3")

from importlib import import_module
from pathlib import Path

import pytest

from dtdr.llm import backends
from dtdr.llm.backends import LLMError
from dtdr.llm.backends.server import OpenAIServer
from dtdr.llm.prompting import Prompt
from tests import llm_battery
from tests.llm_battery import PROMPT

CONTEXT = 1024
KEY = "loopback-test-key"


@pytest.fixture(scope="module")
def embedded(gguf: Path):
    with backends.create(f"gguf:{gguf}", context=CONTEXT, threads=1) as llm:
        yield llm


@pytest.fixture(scope="module")
def served(gguf: Path):
    """llama.cpp's HTTP server on a free loopback port, reached as any other server is."""
    xllamacpp = import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(gguf)
    parameters.n_ctx, parameters.n_parallel = 4 * CONTEXT, 4
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.api_keys = [KEY]
    parameters.verbosity = -1
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server


def connect(url: str, **options) -> OpenAIServer:
    return OpenAIServer("any", url, key=KEY, **options)


def test_llama_cpp_in_process_passes_the_battery(embedded):
    llm_battery.run(embedded, context=CONTEXT)


def test_a_llama_cpp_server_passes_the_battery(served):
    with connect(served) as llm:
        assert llm.is_llama_cpp
        llm_battery.run(llm, context=4 * CONTEXT)


def test_its_openai_side_passes_the_battery(served):
    with connect(served) as llm:
        llm._dialect = False  # as a server that has OpenAI's requests only
        llm_battery.run(llm, context=4 * CONTEXT)


def test_a_server_with_another_key_is_one_clear_error(served):
    with (
        OpenAIServer("any", served, key="wrong") as llm,
        pytest.raises(LLMError, match="refused the key"),
    ):
        llm.complete(PROMPT, max_tokens=1)


def test_a_choice_is_what_greedy_decoding_reaches_among_the_names(embedded):
    free = embedded.complete(PROMPT, max_tokens=12).text
    others = ["append_note_content_to_the_end", "zebra"]
    assert embedded.complete(PROMPT, max_tokens=1, choices=[*others, free]).text == free
    # A name that another begins with can be chosen, and so can the other.
    pair = ["send", "send_mail"]
    assert embedded.complete(PROMPT, max_tokens=1, choices=pair).text in pair


def test_two_prompts_in_turn_both_keep_their_prefix(embedded):
    """As selecting and filling do."""
    kinds = ["Choose a function from the list. " * 20, "Fill in the parameters of a call. " * 20]
    reads = [
        embedded.complete(Prompt(kind, f"Request {turn}.", "Function:"), max_tokens=1)
        for turn in range(3)
        for kind in kinds
    ]
    assert all(read.cached_tokens > 0.8 * read.prompt_tokens for read in reads[2:])


def test_a_repeated_prefix_is_not_read_again_unless_it_is_forgotten(embedded):
    prompt = Prompt("Constant part. " * 30, "First.", "Function:")
    later = Prompt("Constant part. " * 30, "Second.", "Function:")
    embedded.forget()
    cold = embedded.complete(prompt, max_tokens=1)
    warm = embedded.complete(later, max_tokens=1)
    assert cold.cached_tokens == 0
    assert warm.cached_tokens > 0.8 * warm.prompt_tokens
    embedded.forget()
    assert embedded.complete(later, max_tokens=1).cached_tokens == 0


def test_a_truncated_model_is_one_clear_error(gguf: Path, tmp_path):
    path = tmp_path / "cut.gguf"
    with gguf.open("rb") as stream:
        path.write_bytes(stream.read(3_000_000))
    with pytest.raises(LLMError, match=r"cannot load .* truncated"):
        backends.create(f"gguf:{path}")

"""Every line of Python of README and docs runs, in a fresh interpreter with its imports alone."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest
from examples.hotel.tools import TOOLS

import dtdr
from dtdr.logs import open_demonstrations
from tests.conftest import PROJECT
from tests.fake_llm_server import fake_server
from tests.warm_python import WarmPython

LOG = PROJECT / "examples" / "hotel" / "openai-chat.jsonl"
PAGES = {
    path.name: path for path in (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")))
}
BLOCKS = {
    name: blocks
    for name, path in PAGES.items()
    if (blocks := re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL))
}
ELSEWHERE = {
    "server.md": "tests/server/test_docs.py",
    "gateway.md": "tests/gateway/test_from_log_to_client.py",
    "without-log.md": "tests/gateway/test_without_log_page.py",
}
"""Pages that need another process, whose code runs in other tests, also in a new interpreter."""

LOGGERS = {"dtdr.agents", "dtdr.mcp", "dtdr.server"}

AGENT = """
from types import SimpleNamespace as _Namespace
import json as _json

_definitions = _json.load(open("tools.json"))
messages = [{"role": "user", "content": "Emi Patel is checking out"}]
request = {"model": "m", "messages": [*messages], "tools": [*_definitions]}
tools = _definitions
names = [tool["function"]["name"] for tool in _definitions]
client = _Namespace(
    chat=_Namespace(completions=_Namespace(create=lambda **request: request)),
    messages=_Namespace(create=lambda **request: request),
)
"""
"""What the user has anyway, on every page: no name of dtdr."""

STUBS = {
    "anthropic.md": """
tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
""",
    "integrations.md": """
_steps = iter(["find_guest", None])
choose, use = lambda shown: next(_steps), lambda tool: "fine"
execute, ask_llm = (lambda tool, arguments: "fine"), lambda run: (None, None)

def ask(request):
    call = {"name": "search_tools", "arguments": '{"query": "invoice"}'}
    made = [{"id": "c1", "type": "function", "function": call}]
    return {"role": "assistant", "content": None, "tool_calls": made}
""",
}
FRAMEWORKS = {
    "langchain.md": ("langchain", "from tests.integrations.scripted_chat_model import *"),
    "integrations.md": ("langchain", "from tests.integrations.scripted_chat_model import *"),
    "pydantic-ai.md": ("pydantic_ai", "model, tools = pydantic_ai_model(_script), []"),
    "openai-agents.md": ("agents", "model, tools = openai_agents_model(_script), []"),
    "llama-index.md": ("llama_index", "llm, tools = llama_index_model(_script), []"),
}
"""By page: its package, and a model of it. A block of a package that is missing is left out."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder: a log, its demonstrations, and a model."""
    place = tmp_path_factory.mktemp("pages")
    lines = LOG.read_bytes().splitlines(keepends=True)[:12]  # a fifth of the time of 60
    (place / "openai-chat.jsonl").write_bytes(b"".join(lines))
    (place / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
    demonstrations = list(open_demonstrations([place / "openai-chat.jsonl"]))[:40]
    dtdr.data.demonstration_files.save_demonstrations(
        place / "demonstrations.jsonl", demonstrations
    )
    dtdr.fit(demonstrations, TOOLS).save(place / "model")
    return place


@pytest.fixture(scope="module")
def python():
    with WarmPython() as warm:
        yield warm


def script(page):
    """The code of a page, after what its user has; blocks of missing packages are left out."""
    text = AGENT + STUBS.get(page, "")
    if page in FRAMEWORKS:
        package, code = FRAMEWORKS[page]
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
        if "scripted_chat_model" in code:
            text += "from tests.integrations.frameworks import Script as _Script\n"
            text += code + "\nmodel, tools = ScriptedModel(script=_Script()), tools(_Script())\n"
            text += "_lists = tools\n"
        else:
            text += "from tests.integrations.frameworks import *\n_script = Script()\n"
            text += code + "\n"
    for block in BLOCKS[page]:
        imported = {
            name.split(".")[0] for name in re.findall(r"^(?:import|from) (\S+)", block, re.M)
        }
        if all(importlib.util.find_spec(name) for name in imported):
            text += block
    return text


@pytest.mark.parametrize("page", sorted(BLOCKS.keys() - ELSEWHERE))
def test_a_page_runs_in_a_fresh_interpreter(page, folder, python):
    code = script(page)
    with fake_server() as server:
        server.context, server.script = 10**6, lambda body: "end"
        if page == "planning.md":
            pytest.importorskip("httpx2", reason="httpx2 is not installed")
            code = code.replace("gguf:qwen.gguf", f"openai:m@{server.url}")
        paths = os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])
        done = python.run(code, cwd=folder, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    for promised in re.findall(r"^print\(.*\)  # (\w+)$", "".join(BLOCKS[page]), re.MULTILINE):
        assert promised in printed, (promised, printed)


def test_pages_that_run_elsewhere_do():
    for page, test in ELSEWHERE.items():
        text = (PROJECT / test).read_text(encoding="utf-8")
        assert page in text, test
        assert 'sys.executable, "-c"' in text, test


def test_every_name_of_dtdr_in_a_text_is_there_after_importing_dtdr(folder):
    texts = "".join(path.read_text("utf-8") for path in PAGES.values())
    names = set(re.findall(r"(?:`|:: )(dtdr(?:\.\w+)+)", texts)) - LOGGERS
    code = "import dtdr\n" + "".join(f"{name}\n" for name in sorted(names))
    paths = os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(names) > 20
    assert done.returncode == 0, done.stderr

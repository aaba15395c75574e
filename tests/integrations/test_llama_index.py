import pytest

from tests.integrations.frameworks import (
    FRAMEWORKS,
    Script,
)
from tests.integrations.tools import NEW, QUERY, best, mask
from tests.mask_strategies import outline

# LlamaIndex's own workflows inspect deprecated attributes of pydantic.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SCRIPT = [("read_file",), ("summarize", "find_contact"), ("send_mail",)]

run = FRAMEWORKS["llama-index"]


@pytest.fixture(autouse=True)
def _framework():
    """Imported where its tests run, since that takes seconds."""
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")


def test_an_agent_with_a_state_is_ranked_by_the_users_own_words():
    script = Script(SCRIPT)
    run(script, mask(), initial_state={"mood": "good, and the weather in Rome is too"})
    history: list[str] = []
    for shown, calls in zip(script.seen, (*SCRIPT, ()), strict=True):
        assert shown == best(history) | set(history) | {NEW}
        history += calls


def test_calls_in_the_keywords_of_a_message_are_read():
    from llama_index.core.base.llms.types import ChatMessage

    from dtdr.agents.llama_index import transcript

    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        ChatMessage(role="user", content=QUERY),
        ChatMessage(role="assistant", additional_kwargs={"tool_calls": [call]}),
    ]
    assert outline(transcript(messages)) == [(QUERY, [("weather",)])]

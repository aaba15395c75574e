"""Checks that every LLM backend passes: ``run`` takes any backend."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from dtdr.errors import InputError
from dtdr.llm.backends import LLM, PromptTooLongError
from dtdr.llm.prompting import Prompt

PROMPT = Prompt("You name functions.", "Request: mail Ann.\nFunctions: send_mail, end", "Function:")
OTHER = Prompt("You name functions.", "Request: nothing.\nFunctions: send_mail, end", "Function:")
ONE_MESSAGE = replace(PROMPT, is_one_message=True)
WITH_EXAMPLE = replace(PROMPT, example=("Request: wait.", "end"))
CHOICES = ("send_mail", "send_mail_later", 'odd "name".x', "發郵件")


def run(llm: LLM, *, context: int | None = None) -> None:
    """All checks; ``context`` is the model's, where there is one to exceed."""
    first = llm.complete(PROMPT, max_tokens=6)
    assert first.text == llm.complete(PROMPT, max_tokens=6).text
    assert first.prompt_tokens is None or first.prompt_tokens > 5

    for prompt in (PROMPT, OTHER, ONE_MESSAGE, WITH_EXAMPLE):
        assert llm.complete(prompt, max_tokens=1, choices=CHOICES).text in CHOICES
    for only in CHOICES:
        assert llm.complete(PROMPT, max_tokens=1, choices=[only]).text == only
    with pytest.raises(InputError, match="at least one choice"):
        llm.complete(PROMPT, max_tokens=1, choices=[])

    assert llm.count_tokens("") == 0
    assert 0 < llm.count_tokens("send mail") < llm.count_tokens("send mail to Ann and to Bob")

    with ThreadPoolExecutor(5) as threads:
        asked = [
            threads.submit(llm.complete, PROMPT, max_tokens=1, choices=CHOICES) for _ in range(5)
        ]
    assert {one.result().text for one in asked} <= set(CHOICES)

    if context is not None:
        with pytest.raises(PromptTooLongError, match="too long"):
            llm.complete(Prompt("x", "word " * 2 * context, "Function:"), max_tokens=1)
        assert llm.complete(PROMPT, max_tokens=6).text == first.text

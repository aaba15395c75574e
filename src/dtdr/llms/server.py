"""``openai:name@url``: any OpenAI-compatible server; llama.cpp's own requests where it is one."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from dtdr.errors import InputError
from dtdr.llms.base import LLM, CannotScoreError, Completion, LLMError
from dtdr.llms.http import GaveUpError, JsonClient
from dtdr.prompting import Prompt

BYTES_PER_TOKEN = 4
"""English text of the prompts here has 3.5 to 4.5 bytes a token in common vocabularies; used only
where a server has no tokenizer to ask."""


class OpenAIServer(LLM):
    """A server that speaks OpenAI's chat completions.

    A choice among given names is made with a grammar where the server is llama.cpp's, and with a
    JSON schema elsewhere. Only llama.cpp's server scores given texts.

    Args:
        model: the model's name on the server.
        url: the server's address up to ``/v1``.
        key: a bearer token. Default: the environment variable ``DTDR_LLM_API_KEY``, or
            ``OPENAI_API_KEY`` where the server is api.openai.com.
        concurrency: how many requests are sent at a time.
        timeout: seconds for one try of one request.
        tries: how often one request is sent at most.
        pause: seconds before the second try; doubled each time.

    Raises:
        InputError: the address is no URL, or a number is out of range.
    """

    kind: ClassVar[str] = "openai"

    def __init__(
        self,
        model: str,
        url: str,
        *,
        key: str | None = None,
        concurrency: int = 8,
        timeout: float = 120.0,
        tries: int = 4,
        pause: float = 0.5,
    ) -> None:
        if concurrency < 1 or tries < 1 or timeout <= 0:
            raise InputError("concurrency and tries must be at least 1, and timeout above 0")
        self.name = f"openai:{model}@{url}"
        self.model = model
        self.concurrency = concurrency
        client = JsonClient(url, key=None, timeout=timeout, tries=tries, pause=pause)
        if key is None:
            key = os.environ.get("DTDR_LLM_API_KEY")
        if key is None and client.host == "api.openai.com":
            key = os.environ.get("OPENAI_API_KEY")
        self._client = JsonClient(url, key=key, timeout=timeout, tries=tries, pause=pause)
        self._root = self._client.url.removesuffix("/v1")
        self._dialect: bool | None = None
        self._dialect_lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(concurrency)
        self._reuse = True

    def complete(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """See ``LLM.complete``."""
        if self.is_llama_cpp:
            body: dict[str, Any] = {"n_predict": max_tokens, "stop": list(stop)}
            if choices is not None:
                body |= {"grammar": choice_grammar(choices), "n_predict": _longest(choices)}
            found = self._native(self._templated(prompt), body)
            timings = found.get("timings", {})
            return Completion(
                _text(found.get("content")),
                found.get("tokens_evaluated"),
                timings.get("cache_n"),
                found.get("tokens_predicted"),
            )
        return self._chat(prompt, max_tokens=max_tokens, choices=choices, stop=stop)

    def score(self, prompt: Prompt, continuations: Sequence[str]) -> list[float]:
        """See ``LLM.score``; one request for each text, which a grammar spells out."""
        if not self.is_llama_cpp:
            raise CannotScoreError(
                f"the server at {self._client.host} gives no likelihoods of given texts; use "
                "select greedy or constrained, a gguf: model, or a llama.cpp server"
            )
        text = self._templated(prompt)
        scores: list[float] = []
        for continuation in continuations:
            body = {
                "grammar": choice_grammar([continuation]),
                "n_predict": _longest([continuation]),
                "n_probs": 1,
            }
            found = self._native(text, body)
            tokens = found.get("completion_probabilities")
            if not isinstance(tokens, list) or not tokens or found.get("stop_type") != "eos":
                raise LLMError(f"the server at {self._client.host} told no probabilities")
            scores.append(math.fsum(_logprob(token) for token in tokens))
        return scores

    def count_tokens(self, text: str) -> int:
        """Tokens of a text; estimated from its bytes where the server has no tokenizer to ask."""
        if not self.is_llama_cpp:
            return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)
        found = self._post_root("/tokenize", {"content": text, "add_special": False})
        tokens = found.get("tokens")
        if not isinstance(tokens, list):
            raise LLMError(f"the server at {self._client.host} could not count tokens")
        return len(tokens)

    @property
    def can_score(self) -> bool:
        """Only llama.cpp's server scores texts."""
        return self.is_llama_cpp

    def forget(self) -> None:
        """Have the next request read its whole prompt anew."""
        self._reuse = False

    @property
    def is_llama_cpp(self) -> bool:
        """Whether the server is llama.cpp's, which scores texts and takes grammars; asked once."""
        with self._dialect_lock:
            if self._dialect is None:
                try:
                    found = self._client.get(f"{self._root}/props")
                except LLMError as error:
                    if isinstance(error, GaveUpError) and not error.reached:
                        raise
                    found = {}
                self._dialect = "default_generation_settings" in found
                self.counts_exactly = self._dialect
            return self._dialect

    def _native(self, text: str, body: dict[str, Any]) -> dict[str, Any]:
        reuse, self._reuse = self._reuse, True
        with self._turns:
            return self._post_root(
                "/completion",
                {"prompt": text, "temperature": 0, "cache_prompt": reuse, **body},
            )

    def _templated(self, prompt: Prompt) -> str:
        """The prompt in the model's own chat template; plain text for a model without one."""
        try:
            # Models that think first, such as Qwen3, are told not to: an answer is one name.
            found = self._post_root(
                "/apply-template",
                {
                    "messages": prompt.messages,
                    "chat_template_kwargs": {"enable_thinking": False},
                },
            )
        except LLMError as error:
            if "status 4" not in str(error):
                raise
            return prompt.text
        return _text(found.get("prompt")) or prompt.text

    def _post_root(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._client.post(self._root + path, body)

    def _chat(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] | None,
        stop: Sequence[str],
    ) -> Completion:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": prompt.messages,
            "temperature": 0,
            "max_tokens": max_tokens,
        }
        if stop:
            body["stop"] = list(stop)
        if choices is not None:
            body["response_format"] = _choice_schema(choices)
            body["max_tokens"] = _longest(choices) + 32
        with self._turns:
            found = self._client.post(f"{self._client.url}/chat/completions", body)
        try:
            text = _text(found["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError) as error:
            raise LLMError(
                f"the LLM server at {self._client.host} answered without a message"
            ) from error
        usage = found.get("usage") or {}
        return Completion(
            text if choices is None else _chosen(text),
            usage.get("prompt_tokens"),
            (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            usage.get("completion_tokens"),
        )


def choice_grammar(choices: Sequence[str]) -> str:
    """A grammar (GBNF) that allows exactly these texts."""
    return "root ::= " + " | ".join(_literal(choice) for choice in dict.fromkeys(choices))


def _literal(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'


def _longest(choices: Sequence[str]) -> int:
    """Tokens that the longest choice takes at most: one a byte, and the end.

    Raises:
        InputError: there is no choice, or an empty one.
    """
    if not choices or not all(choices):
        raise InputError("an LLM needs at least one choice, and none that is empty")
    return max(len(choice.encode("utf-8", "replace")) for choice in choices) + 2


def _choice_schema(choices: Sequence[str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"function": {"type": "string", "enum": list(dict.fromkeys(choices))}},
        "required": ["function"],
        "additionalProperties": False,
    }
    return {
        "type": "json_schema",
        "json_schema": {"name": "next_function", "strict": True, "schema": schema},
    }


def _chosen(text: str) -> str:
    """The name inside ``{"function": name}``; the text itself where a server ignored the schema."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _text(found.get("function")) if isinstance(found, dict) else text


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


LOWEST = -1e4
"""Stands for log 0, so that sums stay finite."""


def _logprob(token: Any) -> float:
    value = token.get("logprob") if isinstance(token, dict) else None
    return max(LOWEST, float(value)) if isinstance(value, (int, float)) else LOWEST

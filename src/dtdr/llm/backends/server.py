"""``openai:name@url``: any OpenAI-compatible server; llama.cpp's own requests where it is one."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from dtdr.errors import InputError
from dtdr.llm.backends.backend import LLM, CannotScoreError, Completion, Decoding, LLMError
from dtdr.llm.backends.http import OPENAI_HOST, GaveUpError, JsonClient, RefusedError
from dtdr.llm.backends.tree import (
    NO_TOKEN,
    Enough,
    NextTokens,
    Tree,
    get_object,
    likelihoods,
    most_probable,
)
from dtdr.llm.prompting import Prompt
from dtdr.rankers.selection import count_tokens


class OpenAIServer(LLM):
    """A server with OpenAI's chat completions API.

    A choice among given names is made token by token along the names where the server is
    llama.cpp's, and with a JSON schema elsewhere; the form of other answers is held by a grammar
    there, and by a schema elsewhere. Only llama.cpp's server scores given texts.

    Args:
        model: the model's name on the server.
        url: the server's address up to ``/v1``.
        key: a bearer token. Default: the environment variable ``DTDR_LLM_API_KEY``, or
            ``OPENAI_API_KEY`` where the server is api.openai.com.
        concurrency: how many requests are sent at a time.
        timeout: seconds for one try of one request, from connecting to the last byte.
        tries: how often one request is sent at most.
        pause: seconds before the second try; doubled each time.

    Raises:
        InputError: the address is not a URL, the key has characters that no key has, or a number is
            out of range.
        MissingExtraError: httpx2 or tenacity is not installed.
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
        self._client = JsonClient(url, key=key, timeout=timeout, tries=tries, pause=pause)
        self._root = self._client.url.removesuffix("/v1")
        self._dialect: bool | None = None
        self._dialect_lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(concurrency)
        self._reuse = True
        self._takes_schemas = True
        self._may_think = self._client.host == OPENAI_HOST  # takes no field that it does not know
        self._end = NO_TOKEN
        self._answers: dict[str, tuple[int, ...]] = {}

    def _complete(self, prompt: Prompt, decoding: Decoding) -> Completion:
        if not self.is_llama_cpp:
            return self._chat(prompt, decoding)
        if decoding.choices is not None:
            return self._choose(prompt, decoding.choices)
        body = {"n_predict": decoding.max_tokens, "stop": list(decoding.stop)}
        if decoding.form is not None:
            body["grammar"] = decoding.form.grammar
        answer = self._native(self._apply_template(prompt), body)
        return Completion(
            _text(answer.get("content")),
            answer.get("tokens_evaluated"),
            get_object(answer, "timings").get("cache_n"),
            answer.get("tokens_predicted"),
        )

    def score(self, prompt: Prompt, continuations: Sequence[str]) -> list[float]:
        """See ``LLM.score``; one short request for each token, shared where texts begin alike."""
        if not self.is_llama_cpp:
            raise CannotScoreError(
                f"the server at {self._client.host} gives no likelihoods of given texts; use "
                "select greedy or constrained, a gguf: model, or a llama.cpp server"
            )
        if not continuations:
            return []
        return likelihoods(self._tree(continuations), self._next_tokens(prompt, all))

    def count_tokens(self, text: str) -> int:
        """Tokens of a text; estimated from its bytes where the server has no tokenizer to ask."""
        if not self.is_llama_cpp:
            return count_tokens(text)
        return len(self._tokens(text))

    @property
    def can_score(self) -> bool:
        """Only llama.cpp's server scores texts."""
        return self.is_llama_cpp

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._client.close()

    def forget(self) -> None:
        """Have the next request read its whole prompt anew."""
        self._reuse = False

    @property
    def is_llama_cpp(self) -> bool:
        """Whether the server is llama.cpp's, which scores texts and takes grammars; asked once."""
        with self._dialect_lock:
            if self._dialect is None:
                try:
                    properties = self._client.get(f"{self._root}/props")
                except LLMError as error:
                    if _says_nothing(error):
                        raise
                    properties = {}
                native = "default_generation_settings" in properties
                if native and _text(properties.get("eos_token")):
                    self._end = self._tokens(properties["eos_token"], prompt=True)[-1]
                self._dialect = self.counts_exactly = native
            return self._dialect

    def _choose(self, prompt: Prompt, choices: Sequence[str]) -> Completion:
        next_tokens = self._next_tokens(prompt, any)
        chosen = most_probable(self._tree(choices), next_tokens)
        if not next_tokens.requests:
            next_tokens((), ())  # one choice: asked all the same, to notice a prompt too long
        return Completion(
            choices[chosen],
            next_tokens.prompt_tokens,
            next_tokens.cached_tokens,
            next_tokens.requests,
        )

    def _next_tokens(self, prompt: Prompt, enough: Enough) -> NextTokens:
        tokens = self._tokens(self._apply_template(prompt), prompt=True)
        return NextTokens(self._native, tokens, self._line_break[-1], enough)

    def _tree(self, texts: Sequence[str]) -> Tree:
        return Tree.of((*self._answer_tokens(text), self._end) for text in texts)

    @cached_property
    def _line_break(self) -> list[int]:
        return self._tokens("\n")

    def _answer_tokens(self, text: str) -> tuple[int, ...]:
        """Tokens of a text at the beginning of an answer, which follows a line break."""
        if text not in self._answers:
            tokens = self._tokens("\n" + text)
            split = len(self._line_break)
            # Where the break and the text melt into one token, the text is taken alone.
            alone = tokens[:split] == self._line_break
            self._answers[text] = tuple(tokens[split:] if alone else self._tokens(text))
        return self._answers[text]

    def _tokens(self, text: str, *, prompt: bool = False) -> list[int]:
        """Tokens of plain text, or of a whole prompt with its control tokens."""
        answer = self._post_root(
            "/tokenize", {"content": text, "add_special": prompt, "parse_special": prompt}
        )
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(one, int) for one in tokens):
            raise LLMError(f"the server at {self._client.host} could not count tokens")
        return tokens

    def _native(self, text: str | Sequence[int], body: dict[str, Any]) -> dict[str, Any]:
        reuse, self._reuse = self._reuse, True
        with self._turns:
            return self._post_root(
                "/completion",
                {"prompt": text, "temperature": 0, "cache_prompt": reuse, **body},
            )

    def _apply_template(self, prompt: Prompt) -> str:
        """The prompt in the model's own chat template; plain text for a model without one."""
        try:
            # Models that think first, such as Qwen3, are told not to: an answer is one name.
            answer = self._post_root(
                "/apply-template",
                {
                    "messages": prompt.messages,
                    "chat_template_kwargs": {"enable_thinking": False},
                },
            )
        except RefusedError as error:
            if not 400 <= error.status < 500:
                raise
            return prompt.text
        return _text(answer.get("prompt")) or prompt.text

    def _post_root(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._client.post(self._root + path, body)

    def _chat(self, prompt: Prompt, decoding: Decoding) -> Completion:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": prompt.messages,
            "temperature": 0,
            "max_tokens": decoding.max_tokens,
        }
        if decoding.stop:
            body["stop"] = list(decoding.stop)
        if decoding.choices is not None:
            body["response_format"] = choice_schema(decoding.choices)
            body["max_tokens"] = _longest(decoding.choices) + 32
        elif decoding.form is not None and self._takes_schemas:
            body["response_format"] = json_schema("arguments", decoding.form.schema)
        try:
            answer = self._post_chat(body)
        except RefusedError as error:
            is_of_schema = decoding.form is not None and "response_format" in body
            if not is_of_schema or error.status not in (400, 422):
                raise
            # Not every server knows schemas, and an answer without one is read as well.
            self._takes_schemas = False
            return self._chat(prompt, decoding)
        try:
            text = _text(answer["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError) as error:
            raise LLMError(
                f"the LLM server at {self._client.host} answered without a message"
            ) from error
        usage = get_object(answer, "usage")
        return Completion(
            text if decoding.choices is None else chosen_name(text),
            usage.get("prompt_tokens"),
            get_object(usage, "prompt_tokens_details").get("cached_tokens"),
            usage.get("completion_tokens"),
        )

    def _post_chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a chat; models that think first are told not to, where that is taken."""
        address = f"{self._client.url}/chat/completions"
        with self._turns:
            if not self._may_think:
                try:
                    return self._client.post(
                        address, {**body, "chat_template_kwargs": {"enable_thinking": False}}
                    )
                except RefusedError as error:
                    if error.status not in (400, 422):
                        raise
            answer = self._client.post(address, body)
            self._may_think = True  # it was the field that was refused
            return answer


def _says_nothing(error: LLMError) -> bool:
    """Whether a failure leaves open which server it is: it may answer later, or to another key."""
    if isinstance(error, GaveUpError):
        return error.is_passing
    # llama.cpp's server guards the address that tells with its key.
    return isinstance(error, RefusedError) and error.status == 401


def _longest(choices: Sequence[str]) -> int:
    """Tokens that the longest choice takes at most: one a byte, and the end."""
    return max(len(choice.encode("utf-8", "replace")) for choice in choices) + 2


def _text(value: object) -> str:
    """The text that a server sent; half a character, where it cut one, becomes a question mark."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def choice_schema(choices: Sequence[str]) -> dict[str, Any]:
    """The ``response_format`` of a choice: an object with the one key ``function``."""
    schema = {
        "type": "object",
        "properties": {"function": {"type": "string", "enum": list(dict.fromkeys(choices))}},
        "required": ["function"],
        "additionalProperties": False,
    }
    return json_schema("next_function", schema)


def json_schema(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The ``response_format`` of a JSON schema."""
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "strict": True, "schema": schema},
    }


def chosen_name(text: str) -> str:
    """The name inside ``{"function": name}``; the text itself where a server ignored the schema."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    name = value.get("function") if isinstance(value, dict) else text
    return name if isinstance(name, str) else ""

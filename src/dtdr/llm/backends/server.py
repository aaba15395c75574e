"""``openai:name@url``: any OpenAI-compatible server; llama.cpp's server by its own requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dtdr.errors import InputError
from dtdr.llm.backends.backend import LLM, Completion, Decoding, LLMError
from dtdr.llm.backends.http import OPENAI_HOST, GaveUpError, JsonClient, RefusedError
from dtdr.llm.prompting import Prompt
from dtdr.rankers.selection import count_tokens


class OpenAIServer(LLM):
    """A server with OpenAI's chat completions API.

    A grammar on llama.cpp's server, and a JSON schema elsewhere, limits answers to a choice among
    names, or to a form.

    Args:
        model: the model's name on the server.
        url: the server's address up to ``/v1``.
        key: a bearer token. Default: the environment variable ``DTDR_LLM_API_KEY``, or
            ``OPENAI_API_KEY`` for api.openai.com.
        concurrency: limit of requests at a time.
        timeout: seconds for one try of one request, from connecting to the last byte.
        tries: limit of tries per request.
        pause: seconds before the second try; doubled each time.

    Raises:
        InputError: the address is not a URL, the key has impossible characters, or a number is out
            of range.
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
        self._may_think = self._client.host == OPENAI_HOST  # refuses unknown fields

    def _complete(self, prompt: Prompt, decoding: Decoding) -> Completion:
        if not self.is_llama_cpp:
            return self._chat(prompt, decoding)
        body = {"n_predict": decoding.max_tokens, "stop": list(decoding.stop)}
        if decoding.choices is not None:
            body["n_predict"] = _longest(decoding.choices)
            body["grammar"] = choice_grammar(decoding.choices)
        elif decoding.form is not None:
            body["grammar"] = decoding.form.grammar
        answer = self._native(self._apply_template(prompt), body)
        return Completion(
            _text(answer.get("content")),
            answer.get("tokens_evaluated"),
            get_object(answer, "timings").get("cache_n"),
        )

    def count_tokens(self, text: str) -> int:
        """Tokens of a text; estimated from its bytes if the server does not count them."""
        if not self.is_llama_cpp:
            return count_tokens(text)
        options = {"content": text, "add_special": False, "parse_special": False}
        tokens = self._client.ask(f"{self._root}/tokenize", options).get("tokens")
        if not isinstance(tokens, list):
            raise LLMError(f"the server at {self._client.host} could not count tokens")
        return len(tokens)

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._client.close()

    def forget(self) -> None:
        """Have the next request read its whole prompt again."""
        self._reuse = False

    @property
    def is_llama_cpp(self) -> bool:
        """Whether this is llama.cpp's server, with grammars and a token counter; asked once."""
        with self._dialect_lock:
            if self._dialect is None:
                try:
                    properties = self._client.ask(f"{self._root}/props")
                except LLMError as error:
                    if _says_nothing(error):
                        raise
                    properties = {}
                self._dialect = "default_generation_settings" in properties
            return self._dialect

    def _native(self, text: str, body: dict[str, Any]) -> dict[str, Any]:
        reuse, self._reuse = self._reuse, True
        with self._turns:
            return self._client.ask(
                f"{self._root}/completion",
                {"prompt": text, "temperature": 0, "cache_prompt": reuse, **body},
            )

    def _apply_template(self, prompt: Prompt) -> str:
        """The prompt in the model's own chat template; plain text for a model without one."""
        try:
            # No thinking, which models such as Qwen3 do first: an answer is one name.
            answer = self._client.ask(
                f"{self._root}/apply-template",
                {"messages": prompt.messages, "chat_template_kwargs": {"enable_thinking": False}},
            )
        except RefusedError as error:
            if not 400 <= error.status < 500:
                raise
            return prompt.text
        return _text(answer.get("prompt")) or prompt.text

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
            # Not every server supports schemas, and answers without one can be read.
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
        )

    def _post_chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a chat, without thinking if the server accepts that field."""
        address = f"{self._client.url}/chat/completions"
        with self._turns:
            if not self._may_think:
                try:
                    return self._client.ask(
                        address, {**body, "chat_template_kwargs": {"enable_thinking": False}}
                    )
                except RefusedError as error:
                    if error.status not in (400, 422):
                        raise
            answer = self._client.ask(address, body)
            self._may_think = True  # the server refused the field
            return answer


def _says_nothing(error: LLMError) -> bool:
    """Whether a failure leaves open which server this is: it may answer later, or another key."""
    if isinstance(error, GaveUpError):
        return error.is_passing
    # llama.cpp's server protects this address with its key.
    return isinstance(error, RefusedError) and error.status == 401


def _longest(choices: Sequence[str]) -> int:
    """Limit of tokens of the longest choice: one per byte, and the end."""
    return max(len(choice.encode("utf-8", "replace")) for choice in choices) + 2


def _text(value: object) -> str:
    """The text from a server; half a character becomes a question mark."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def choice_grammar(choices: Sequence[str]) -> str:
    """The GBNF of an answer that is one of the choices."""
    return "root ::= " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)


def get_object(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under a name of a server's answer; an empty one if there is none."""
    value = answer.get(name)
    return value if isinstance(value, dict) else {}


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
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


def chosen_name(text: str) -> str:
    """The name inside ``{"function": name}``; the text itself if a server ignored the schema."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    name = value.get("function") if isinstance(value, dict) else text
    return name if isinstance(name, str) else ""

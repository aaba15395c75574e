"""``hf:name``: a causal language model of the Hugging Face hub, or of a folder, for GPUs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from typing import Any, ClassVar

from dtdr.errors import InputError, MissingExtraError, check_at_least
from dtdr.llm.backends.backend import LLM, Completion, Decoding, LLMError, PromptTooLongError
from dtdr.llm.prompting import Prompt


class TransformersLLM(LLM):
    """A model run by the package transformers; weights are read from safetensors only.

    A choice among names is the most probable of them as a whole answer.

    Args:
        model: a name on the hub, or a folder.
        device: such as ``cuda`` or ``cpu``. Default: cuda if available.
        dtype: ``bfloat16``, ``float16`` or ``float32``. Default: bfloat16 on cuda, else float32.
        batch_size: texts scored at once.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        InputError: the dtype is unknown, or the batch size is below 1.
        LLMError: the model cannot be loaded.
    """

    kind: ClassVar[str] = "hf"

    def __init__(
        self,
        model: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        batch_size: int = 16,
    ) -> None:
        if dtype not in (None, "bfloat16", "float16", "float32"):
            raise InputError(f"dtype is {dtype!r}; choose one of bfloat16, float16, float32")
        check_at_least(1, batch_size=batch_size)
        modules: list[Any] = []
        for package in ("torch", "transformers"):
            try:
                modules.append(import_module(package))
            except ImportError as error:
                raise MissingExtraError("an hf: model", "transformers", package) from error
        self._torch, library = modules
        self.name = f"hf:{model}"
        self._batch_size = batch_size
        self._device = device or ("cuda" if self._torch.cuda.is_available() else "cpu")
        kind = dtype or ("bfloat16" if self._device.startswith("cuda") else "float32")
        try:
            self._tokenizer: Any = library.AutoTokenizer.from_pretrained(model)
            self._model: Any = library.AutoModelForCausalLM.from_pretrained(
                model, dtype=getattr(self._torch, kind), use_safetensors=True
            )
            self._model.to(self._device).eval()
        except Exception as error:  # each library has its own errors
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise LLMError(f"cannot load the model {model!r}: {reason}") from error
        self._end = self._tokenizer.eos_token_id
        if self._end is None:
            raise LLMError(f"the tokenizer of {model!r} has no end-of-text token")
        self._context = getattr(self._model.config, "max_position_embeddings", None)
        # Logits of a whole prompt would take gigabytes with a vocabulary of 150,000.
        self._keeps_few = "logits_to_keep" in signature(self._model.forward).parameters
        self._turn = threading.Lock()

    def _complete(self, prompt: Prompt, decoding: Decoding) -> Completion:
        ids = self._ids(prompt)
        if decoding.choices is not None:
            scores = self._score_all(ids, decoding.choices)
            best = decoding.choices[max(range(len(scores)), key=scores.__getitem__)]
            return Completion(best, len(ids), 0)
        self._check(len(ids) + decoding.max_tokens)
        tensor = self._torch.tensor([ids], device=self._device)
        with self._turn, self._torch.inference_mode():
            written = self._model.generate(
                tensor,
                attention_mask=self._torch.ones_like(tensor),
                max_new_tokens=decoding.max_tokens,
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                pad_token_id=self._end,
            )[0, len(ids) :].tolist()
        text: str = self._tokenizer.decode(written, skip_special_tokens=True)
        for ending in decoding.stop:
            text = text.partition(ending)[0]
        return Completion(text, len(ids), 0)

    def _score_all(self, ids: list[int], choices: Sequence[str]) -> list[float]:
        """Log-probability of each choice as the whole answer, its end included."""
        answers = [[*self._encode(text), self._end] for text in choices]
        self._check(len(ids) + max((len(answer) for answer in answers), default=0))
        scores: list[float] = []
        for start in range(0, len(answers), self._batch_size):
            scores += self._score(ids, answers[start : start + self._batch_size])
        return scores

    def count_tokens(self, text: str) -> int:
        """See ``LLM.count_tokens``."""
        return len(self._encode(text))

    def close(self) -> None:
        """Free the model."""
        super().close()
        self._model = None

    def _score(self, ids: list[int], answers: list[list[int]]) -> list[float]:
        longest = max(map(len, answers))
        rows = [ids + answer + [self._end] * (longest - len(answer)) for answer in answers]
        mask = [[1] * (len(ids) + len(a)) + [0] * (longest - len(a)) for a in answers]
        torch = self._torch
        with self._turn, torch.inference_mode():
            logits = self._model(
                torch.tensor(rows, device=self._device),
                attention_mask=torch.tensor(mask, device=self._device),
                use_cache=False,
                **({"logits_to_keep": longest + 1} if self._keeps_few else {}),
            ).logits
            # The logits before each answer token give that token's probability.
            before = logits[:, -longest - 1 : -1].float().log_softmax(-1)
            wanted = torch.tensor([row[len(ids) :] for row in rows], device=self._device)
            of_answers = before.gather(2, wanted.unsqueeze(2)).squeeze(2).cpu().tolist()
        return [
            float(sum(row[: len(answer)])) for row, answer in zip(of_answers, answers, strict=True)
        ]

    def _ids(self, prompt: Prompt) -> list[int]:
        ids = self._encode(self._apply_template(prompt)) or [self._end]
        self._check(len(ids))
        return ids

    def _apply_template(self, prompt: Prompt) -> str:
        """The prompt in the model's own chat template; plain text for a model without one."""
        if not self._tokenizer.chat_template:
            return prompt.text
        forms = [prompt.messages]
        if prompt.messages[0]["role"] == "system" and len(prompt.messages) > 1:
            # Some templates, such as Gemma's, have no system role: the user message contains it.
            first, second, *others = prompt.messages
            merged = {**second, "content": f"{first['content']}\n\n{second['content']}"}
            forms.append([merged, *others])
        for messages in forms:
            try:
                text: str = self._tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
                )
            except Exception:  # noqa: BLE001, S112  # templates raise anything
                continue
            return text
        return prompt.text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _check(self, tokens: int) -> None:
        if self._context is not None and tokens > self._context:
            raise PromptTooLongError(
                f"prompt too long: {tokens} tokens with the answer, the model takes {self._context}"
            )

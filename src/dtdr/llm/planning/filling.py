"""Filling the parameters of a selected function: by learned values, an LLM, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dtdr.data.calls import ToolCall
from dtdr.data.json_codec import safe
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError, check_choice
from dtdr.llm.backends import LLM, PromptTooLongError
from dtdr.llm.prompting import FillingPrompts, filling_form
from dtdr.llm.prompting.arguments import ReadArguments, read_arguments
from dtdr.predict.arguments.prediction import CallPrediction, ValueSource
from dtdr.predict.session import NO_ARGUMENTS

MAX_TOKENS = 768
"""Limit of tokens in an answer: the arguments of one call have up to 479 bytes in TinyAgent and
2,631 in 99.9 % of T-Eval, about 120 and 660 tokens."""

METHODS = ("both", "learned", "llm", "none")

MIN_PROBABILITY = 0.5
"""Probability from which ``both`` takes a learned value without asking. On TinyAgent, 39 % of the
values below it are right, and 88 % of those above (a fifth of the training side held out)."""


@dataclass(frozen=True, slots=True)
class FilledParameters:
    """Arguments of one call.

    Attributes:
        arguments: the known ones.
        problems: one sentence for each that could not be read, after the repair round.
        answers: of the LLM: none if it was not asked, two after a repair.
        prompt_tokens: of all prompts together, as the backend counts them; None if it does not.
        unknown: parameters that you have to write.
        sources: where learned values come from, by parameter.
    """

    arguments: Mapping[str, Any]
    problems: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    prompt_tokens: int | None = 0
    unknown: tuple[str, ...] = ()
    sources: Mapping[str, tuple[ValueSource, ...]] = field(default_factory=dict)

    @property
    def llm_calls(self) -> int:
        """How often the LLM was asked."""
        return len(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object without arguments and problems, which a step has."""
        return {
            "unknown": list(self.unknown),
            "sources": {
                name: [source.to_dict() for source in sources]
                for name, sources in self.sources.items()
            },
            "llm_calls": self.llm_calls,
            "prompt_tokens": self.prompt_tokens,
        }


class Filler:
    """Fills the parameters of calls with one of the methods.

    - ``learned``: the values that the model predicts; the others are ``unknown``.
    - ``llm`` (the paper): the LLM fills all parameters of each call.
    - ``both``: the model fills values with at least ``MIN_PROBABILITY``; the LLM sees these and
      fills the others. If its value is unusable, a less probable predicted one replaces it.
    - ``none``: no parameter is filled.

    Args:
        tools: every tool, with its parameters.
        method: its name; None: the most complete one that the LLM and the model allow.
        llm: fills what the model does not.
        prompts: writes the prompts.
        is_learned: whether the model learned arguments.
        retry: ask once more after an unusable answer, with the reason.

    Raises:
        InputError: there is no such method, or the LLM or the arguments that it needs are missing.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        method: str | None = None,
        *,
        llm: LLM | None = None,
        prompts: FillingPrompts | None = None,
        is_learned: bool = False,
        retry: bool = True,
    ) -> None:
        if method is None and llm is not None:
            method = "both" if is_learned else "llm"
        elif method is None:
            method = "learned" if is_learned else "none"
        check_choice("filling method", method, METHODS)
        if method in ("both", "llm") and llm is None:
            raise InputError(f"fill {method!r} asks an LLM; give one, or fill learned or none")
        if method in ("both", "learned") and not is_learned:
            raise InputError(NO_ARGUMENTS)
        self.method = method
        self._tools = {tool.name: tool for tool in tools}
        self._llm = llm
        self._prompts = prompts or FillingPrompts(tools)
        self._retry = retry

    @property
    def uses_learned(self) -> bool:
        """Whether predicted calls are used."""
        return self.method in ("both", "learned")

    def fill(
        self,
        query: str,
        calls: Sequence[ToolCall],
        tool: str,
        prediction: CallPrediction | None = None,
    ) -> FilledParameters:
        """Arguments of a call of ``tool``.

        Args:
            query: what the user asked for.
            calls: the plan so far.
            tool: its name.
            prediction: the predicted call, if ``uses_learned``.

        Raises:
            LLMError: the LLM gave no answer.
        """
        if self.method == "none":
            return FilledParameters({})
        definition = self._tools.get(tool, Tool(tool))
        if prediction is None:
            if self._llm is None:
                return FilledParameters({})
            return fill(self._llm, self._prompts, query, calls, definition, retry=self._retry)
        if self._llm is None or self.method == "learned":
            return FilledParameters(
                prediction.arguments, unknown=prediction.unknown, sources=prediction.sources
            )
        sure = {
            name: value
            for name, value in prediction.arguments.items()
            if prediction.probabilities[name] >= MIN_PROBABILITY
        }
        names = [name for name in prediction.arguments if name not in sure] + [*prediction.unknown]
        filled = FilledParameters({})
        if names:
            declared = {parameter.name: parameter for parameter in definition.parameters}
            asked = tuple(declared.get(name, Parameter(name)) for name in names)
            rest = replace(definition, parameters=asked)
            filled = fill(self._llm, self._prompts, query, calls, rest, sure, retry=self._retry)
        filled_now = {**sure, **filled.arguments}
        # Less probable values replace those that the LLM did not give.
        left = {name: item for name, item in prediction.arguments.items() if name not in filled_now}
        arguments = {**filled_now, **left}
        taken = {*sure, *left}
        return replace(
            filled,
            arguments=arguments,
            unknown=tuple(name for name in prediction.unknown if name not in arguments),
            sources={name: of for name, of in prediction.sources.items() if name in taken},
        )


def fill(
    llm: LLM,
    prompts: FillingPrompts,
    query: str,
    calls: Sequence[ToolCall],
    tool: Tool,
    known: Mapping[str, Any] | None = None,
    *,
    retry: bool = True,
) -> FilledParameters:
    """Ask for the arguments of ``tool``, and once more if the answer is unusable.

    Args:
        llm: to ask.
        prompts: writes the prompt.
        query: what the user asked for.
        calls: the plan so far.
        tool: whose parameters to fill.
        known: arguments that are already known. With them, a grammar or a schema fixes the form of
            the answer if the backend has one.
        retry: whether to ask once more.

    Returns:
        The arguments without the known ones.

    Raises:
        LLMError: the LLM gave no answer.
    """
    if not tool.parameters:
        return FilledParameters({})
    prompt = prompts.prompt(query, calls, tool, known)
    form = None if known is None else filling_form(tool.parameters, len(calls))
    answers: list[str] = []
    tokens: int | None = 0
    best = ReadArguments({}, ())
    for attempt in range(1 + retry):
        try:
            answer = llm.complete(
                prompt, max_tokens=MAX_TOKENS, stop=["\n\n", "\nRequest:"], form=form
            )
        except PromptTooLongError:
            return FilledParameters(
                best.arguments, (*best.problems, "prompt too long"), tuple(answers)
            )
        answers.append(answer.text)
        read = answer.prompt_tokens
        tokens = None if tokens is None or read is None else tokens + read
        again = read_arguments(answer.text, tool, calls)
        if form is not None:  # with a schema, an answer has every key
            values = {name: item for name, item in again.arguments.items() if item is not None}
            again = replace(again, arguments=values)
        if attempt == 0 or len(again.problems) <= len(best.problems):
            best = again
        if not best.problems:
            break
        remark = (
            f"It cannot be used: {'; '.join(map(safe, best.problems))}.\n"
            "Answer again with corrected name=value pairs on one line, and nothing else."
        )
        prompt = prompt.add_remark(safe(answer.text)[:1000], remark)
    return FilledParameters(best.arguments, best.problems, tuple(answers), tokens)

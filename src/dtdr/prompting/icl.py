"""ICL methods: how a ranking is written into the function-selection prompt."""

from __future__ import annotations

from dataclasses import dataclass

from dtdr.errors import unknown_choice


@dataclass(frozen=True, slots=True)
class IclMethod:
    """One way to show what was retrieved (paper, Section Experimental Setup, "ICL Methods").

    Attributes:
        name: what users type.
        masks: whether tools that were not retrieved are left out of the list of choices.
        lists_all: whether the prompt lists every tool, with its description.
        suggests: whether the prompt names the retrieved tools as those to prefer.
        shows_plans: whether demonstrations that use the retrieved tools are shown.
        weighted: whether probabilities stand beside retrieved tools.
        summary: one line for people.
    """

    name: str
    masks: bool
    lists_all: bool
    suggests: bool
    shows_plans: bool
    weighted: bool
    summary: str


_ALL = (
    IclMethod("none", False, True, False, False, False, "all tools, nothing retrieved"),
    IclMethod("raw", False, True, False, True, False, "all tools, and plans that use those found"),
    IclMethod("hard", True, False, False, False, False, "only the tools found"),
    IclMethod("hard-weighted", True, False, False, False, True, "only those found, with weights"),
    IclMethod("soft", False, True, True, False, False, "all tools, those found to be preferred"),
    IclMethod("soft-weighted", False, True, True, False, True, "the same, with weights"),
    IclMethod("cached", True, True, False, False, False, "all tools in the constant part, the"
              " names found last"),
    IclMethod("cached-weighted", True, True, False, False, True, "the same, with weights"),
)  # fmt: skip

METHODS = {method.name: method for method in _ALL}
"""Every ICL method by the name that users type."""

DEFAULT = "hard"


def icl_method(name: str) -> IclMethod:
    """The ICL method behind a name.

    Raises:
        InputError: there is none.
    """
    if name not in METHODS:
        raise unknown_choice("ICL method", name, METHODS)
    return METHODS[name]

"""More tools than the bundled set has: kinds of service under many invented brands."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from random import Random
from typing import NamedTuple

from dtdr.data.tools import Parameter, Tool
from dtdr.evaluate.datasets.synthetic import words
from dtdr.evaluate.datasets.synthetic.scene import Scene

_SYLLABLES = [
    syllables.split()
    for syllables in (
        "ka ve lo mi zu bre ta no qui sa dra pe flo gi hu ja xe ro ci wy",
        "l m r n v s d t nd rk lt st mb x p",
        "a o i u e ia io ea",
        "ra ly no ta zi mo via go ne ko dex sy lin per zen",
    )
]


class Flow(NamedTuple):
    """Calls that use each other's outputs, and the ways to ask for them."""

    verbs: tuple[str, ...]
    templates: tuple[str, ...]


class _Family(NamedTuple):
    """A kind of service: its tools, what can be asked for, and of what."""

    tools: tuple[tuple[str, str, str], ...]
    flows: tuple[Flow, ...]
    subjects: tuple[str, ...]

    def first_parameter(self, verb: str) -> str:
        """The parameter that takes what is asked for, or what the call before gave."""
        specification = next(names for name, _, names in self.tools if name == verb)
        return specification.partition(" ")[0]


class Service(NamedTuple):
    """A brand, and those of its flows whose tools are all there."""

    brand: str
    family: _Family
    flows: tuple[Flow, ...]


def _family(text: str) -> _Family:
    tools: list[tuple[str, str, str]] = []
    flows: list[Flow] = []
    subjects: list[str] = []
    for line in text.replace("\n|", " |").splitlines():
        cells = [cell.strip() for cell in line.lstrip(">= ").split("|")]
        if line.startswith(">"):
            flows.append(Flow(tuple(cells[0].split()), tuple(cells[1:])))
        elif line.startswith("="):
            subjects += cells
        else:
            tools.append((cells[0], cells[1], cells[2]))
    return _Family(tuple(tools), tuple(flows), tuple(subjects))


_FAMILIES = tuple(
    map(_family, (files(__package__) / "services.txt").read_text("utf-8").split("\n\n")[1:])
)


def parameters(specification: str) -> tuple[Parameter, ...]:
    """Parameters from ``"to* subject body?"``: ``*`` marks a list, ``?`` an optional one."""
    return tuple(
        Parameter(
            item.rstrip("*?"), "array" if "*" in item else "string", "", not item.endswith("?")
        )
        for item in specification.split()
    )


def services(count: int, seed: int) -> Iterator[tuple[Service, tuple[Tool, ...]]]:
    """Brands and their tools, ``count`` tools in all; the last brand may have fewer than its kind.

    The same seed gives the same brands in the same order, whatever the count.
    """
    rng = Random(f"brands {seed}")
    taken: set[str] = set()
    number = 0
    while count > 0:
        brand = "".join(part[int(rng.random() * len(part))] for part in _SYLLABLES)
        if brand in taken:
            continue
        taken.add(brand)
        family = _FAMILIES[number % len(_FAMILIES)]
        number += 1
        kept = family.tools[:count]
        count -= len(kept)
        verbs = {verb for verb, _, _ in kept}
        flows = tuple(flow for flow in family.flows if verbs.issuperset(flow.verbs))
        title = brand.capitalize()
        yield (
            Service(title, family, flows),
            tuple(
                Tool(f"{brand}_{verb}", about.format(title), parameters(specification))
                for verb, about, specification in kept
            ),
        )


def errand(scene: Scene, service: Service, flow: Flow) -> str:
    """Ask something of a service; the first call gets the subject, each later one what came out."""
    subject = f"{scene.pick(service.family.subjects)}{_detail(scene)}"
    prefix = service.brand.lower()
    value: object = subject
    for verb in flow.verbs:
        first = service.family.first_parameter(verb)
        value = scene.call(f"{prefix}_{verb}", **({first: value} if first else {}))
    scene.labels.append(f"{prefix}>{flow.verbs[-1]}")
    return scene.pick(flow.templates).format(b=service.brand, s=subject)


def _detail(scene: Scene) -> str:
    draw = scene.rng.random()
    if draw < 0.45:
        return f" for {words.person(scene.rng)}"
    if draw < 0.75:
        return f" for {words.person(scene.rng)} by {words.day(scene.rng)}"
    if draw < 0.9:
        return f" by {words.day(scene.rng)} {words.clock(scene.rng)}"
    return ""

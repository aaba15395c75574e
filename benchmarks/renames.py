"""How many renames that nobody announced does ``dtdr advise`` find, and how many does it invent?

    python benchmarks/renames.py [--datasets tinyagent t_eval ultratool tau_airline] [--test]
    python benchmarks/renames.py --fit
    python benchmarks/renames.py --smoke

Half of the tools of a set are changed, in equal parts: renamed in another ``style``
(``create_note`` to ``notes.createNote``), renamed by other ``words`` (``fetch_memo``), renamed to
something ``opaque`` (``op_17``), ``gone`` without another in their place, and ``new``, which the
model never saw. Where tools declare parameters, half of those of a renamed tool are written in
another style; descriptions of half of the renamed tools are taken away. A model learns from runs
without the new tools, and is shown runs without the gone ones, under the other names.

``listed`` gives the list of tools too, ``runs alone`` nothing but the runs. Found: of the renames
of tools that some run calls (all, where they are listed), by the way of renaming. False: suggested
pairs that are not a rename. By ``name`` alone: pairs matched by the similarity of their names, from
the threshold on that is best on the training sides.

A half of the training side's groups is learned, the rest shown, by two seeds; with ``--test``,
the training side and the test side. ``--fit`` learns the weights on the training sides of the sets
that are named; UltraTool's was not among them.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from dtdr.calls import ToolCall
from dtdr.datasets.base import Dataset
from dtdr.demonstrations import Demonstration
from dtdr.evaluation.tables import Column, count, share
from dtdr.integrations.renames import (
    MIN_PROBABILITY,
    Rename,
    describe_pairs,
    features,
    suggest_renames,
)
from dtdr.plan import Plan
from dtdr.retrievers import create
from dtdr.tools import Parameter, Tool
from printing import print_rows
from sets import load_sets, make_parser

WAYS = ("style", "words", "opaque")
SYNONYMS = {
    "get": "fetch", "create": "make", "open": "show", "send": "dispatch", "search": "look_up",
    "find": "locate", "list": "enumerate", "update": "modify", "delete": "remove", "add": "append",
    "append": "extend", "compose": "write", "reply": "answer", "forward": "relay",
    "book": "reserve", "cancel": "revoke", "calculate": "compute", "note": "memo",
    "email": "mail", "user": "customer",
    "details": "info", "information": "data", "file": "document", "weather": "forecast",
    "location": "place", "summarize": "condense", "reservation": "booking", "flight": "trip",
    "set": "put", "query": "ask", "check": "verify", "download": "pull", "movie": "film",
}  # fmt: skip
NAME_ALONE = 0.65
"""Similarity of names from which pairs are matched by names alone."""


@dataclass(frozen=True)
class Case:
    """A set whose tools changed.

    Attributes:
        known: what the model learns from.
        shown: runs under the new names.
        before: tools of the model.
        listed: tools there are now.
        renamed: new names by old ones.
        ways: how each old name was changed.
    """

    known: list[Demonstration]
    shown: list[Demonstration]
    before: list[Tool]
    listed: list[Tool]
    renamed: Mapping[str, str]
    ways: Mapping[str, str]


def rename(name: str, way: str, number: int) -> str:
    """Another name for the same tool."""
    parts = name.replace("-", "_").replace(".", "_").split("_")
    if way == "style":
        camel = parts[0] + "".join(part.capitalize() for part in parts[1:])
        return f"{parts[-1].lower()}s.{camel}"
    if way == "opaque":
        return f"op_{number}"
    changed = [SYNONYMS.get(part.casefold(), part) for part in parts]
    return "_".join(reversed(changed) if changed == parts else changed) + "_v2" * (
        changed == parts and len(parts) == 1
    )


def make_case(dataset: Dataset, split: Any, seed: int, *, test: bool) -> Case:
    """Change half of the tools that are called in both parts of a set."""
    rng = random.Random(seed)
    known = split.training(dataset.demonstrations)
    shown = split.testing(dataset.demonstrations)
    if not test:
        groups = list(dict.fromkeys(item.group or item.id for item in known))
        early = set(rng.sample(groups, len(groups) // 2))
        shown = [item for item in known if (item.group or item.id) not in early]
        known = [item for item in known if (item.group or item.id) in early]
    calls = [Counter(t for item in side for t in item.plan.tools) for side in (known, shown)]
    both = sorted(name for name in calls[0] if name in calls[1])
    rng.shuffle(both)
    changed = both[: max(5, len(both) // 2)]
    parts = dict(
        zip((*WAYS, "gone", "new"), (changed[start::5] for start in range(5)), strict=True)
    )
    ways = {name: way for way in WAYS for name in parts[way]}
    renamed = {name: rename(name, way, at) for at, (name, way) in enumerate(ways.items())}
    known = [item for item in known if not {*item.plan.tools} & {*parts["new"]}]
    shown = [item for item in shown if not {*item.plan.tools} & {*parts["gone"]}]
    definitions = {tool.name: tool for tool in dataset.tools}
    styled = {name: rng.random() < 0.5 for name in renamed}
    bare = {name: rng.random() < 0.5 for name in renamed}

    def other(name: str, old: str) -> str:
        return f"{name}Value" if styled.get(old) and len(name) % 2 else name

    listed = []
    for name, tool in definitions.items():
        if name in parts["gone"]:
            continue
        if name in renamed:
            parameters = tuple(
                Parameter(other(one.name, name), one.type, one.description, one.required)
                for one in tool.parameters
            )
            description = "" if bare[name] else tool.description
            tool = Tool(renamed[name], description, parameters)
        listed.append(tool)
    runs = [
        replace(
            item,
            plan=Plan(
                tuple(
                    ToolCall(
                        call.id,
                        renamed.get(call.tool, call.tool),
                        {other(key, call.tool): value for key, value in call.arguments.items()},
                        call.output,
                        call.status,
                        call.step,
                    )
                    for call in item.plan.calls
                ),
                item.plan.links,
                item.plan.earlier,
            ),
        )
        for item in shown
    ]
    before = [tool for name, tool in definitions.items() if name not in parts["new"]]
    return Case(known, runs, before, listed, renamed, ways)


def by_name(pairs: Sequence[Rename], least: float) -> list[Rename]:
    """Pairs matched by names alone."""
    olds, news = sorted({pair.old for pair in pairs}), sorted({pair.new for pair in pairs})
    similar = np.zeros((len(olds), len(news)))
    place = {(pair.old, pair.new): pair for pair in pairs}
    for (old, new), pair in place.items():
        similar[olds.index(old), news.index(new)] = pair.name
    rows, columns = linear_sum_assignment(-similar)
    matched = zip(rows.tolist(), columns.tolist(), strict=True)
    return [
        place[olds[row], news[column]]
        for row, column in matched
        if similar[row, column] >= max(least, 1e-9)
    ]


def cases(given: argparse.Namespace, *, test: bool) -> Iterator[tuple[str, Case, Any]]:
    """Every set changed by every seed, and a model of what was before."""
    for dataset, split in load_sets(given):
        for seed in range(given.seeds):
            case = make_case(dataset, split, seed, test=test)
            model = create("dtdr-f", seed=seed).fit(case.known, case.before)
            yield dataset.name, case, model


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line a set, what is given, and method."""
    found: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for name, case, model in cases(given, test=given.test):
        used = {tool for item in case.shown for tool in item.plan.tools}
        for form, tools in (("listed", case.listed), ("runs alone", [])):
            pairs = describe_pairs(model, case.shown, tools)
            wanted = {
                (old, new)
                for old, new in case.renamed.items()
                if new in used or (tools and any(tool.name == new for tool in tools))
            }
            for method, suggested in (
                ("name", by_name(pairs, NAME_ALONE)),
                ("advise", suggest_renames(model, case.shown, tools)),
            ):
                counts = found[name, form, method]
                right = {(pair.old, pair.new) for pair in suggested} & wanted
                counts["suggested"] += len(suggested)
                counts["false"] += len(suggested) - len(right)
                for old, new in wanted:
                    counts[f"of {case.ways[old]}"] += 1
                    counts[case.ways[old]] += (old, new) in right
    for (name, form, method), counts in found.items():
        renames = sum(counts[f"of {way}"] for way in WAYS)
        found_of_them = sum(counts[way] for way in WAYS)
        yield {
            "dataset": name,
            "given": form,
            "method": method,
            "renames": renames,
            "found": found_of_them / renames if renames else None,
            **{
                way: counts[way] / counts[f"of {way}"] if counts[f"of {way}"] else None
                for way in WAYS
            },
            "suggested": counts["suggested"],
            "false": counts["false"],
        }


def fit(given: argparse.Namespace) -> None:
    """Learn the weights of pairs, and the threshold of names alone, on the training sides."""
    from sklearn.linear_model import LogisticRegression

    rows, targets, names = [], [], []
    for _, case, model in cases(given, test=False):
        for tools in (case.listed, []):
            pairs = describe_pairs(model, case.shown, tools)
            mean = 1 / max(1, len({pair.old for pair in pairs}))
            weight = 1 / max(1, len(pairs))
            for pair in pairs:
                is_right = case.renamed.get(pair.old) == pair.new
                described = features(pair.name, pair.parameters, pair.description, pair.use, mean)
                rows.append(described)
                targets.append(is_right)
                names.append((pair.name, is_right, weight))
    keys = [key for key in rows[0] if key != "constant"]
    values = np.array([[row[key] for key in keys] for row in rows])
    model = LogisticRegression(C=1.0, max_iter=5000).fit(values, targets)
    weights = dict(zip(keys, model.coef_[0].round(2).tolist(), strict=True))
    print({"constant": round(float(model.intercept_[0]), 2), **weights})
    best = max(
        np.arange(0.1, 1, 0.05),
        key=lambda least: sum(1 if right else -1 for value, right, _ in names if value >= least),
    )
    print("names alone from", round(float(best), 2))


def main() -> None:
    """Print a table, or one JSON object a line."""
    parser = make_parser(__doc__, ["tinyagent", "t_eval", "ultratool", "tau_airline"])
    parser.add_argument("--fit", action="store_true", help="learn the weights instead")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    if given.smoke:
        given.seeds = 1
    if given.fit:
        fit(given)
        return
    columns = [
        Column("Set", "dataset"),
        Column("Given", "given"),
        Column("By", "method"),
        Column("Renames", "renames", count, numeric=True),
        *(Column(way.capitalize(), way, _share, numeric=True) for way in ("found", *WAYS)),
        Column("Suggested", "suggested", count, numeric=True),
        Column("False", "false", count, numeric=True),
    ]
    side = "test" if given.test else "training"
    caption = (
        f"{side} sides, {given.seeds} seeds; suggested from a probability of {MIN_PROBABILITY} on"
    )
    print_rows(measure(given), columns, as_json=given.json, caption=caption)


def _share(value: float | None) -> str:
    return "" if value is None else share(value)


if __name__ == "__main__":
    main()

"""Made-up runs of an insurance agent with hidden rules, and how often a ranker obeys each rule.

    python benchmarks/insurance.py [--rankers dtdr-f forest ...] [--runs 300] [--folds 3]

The agent settles claims. A rule looks at a value that a call returned one to eight calls before, in
this turn or an earlier one: a number, a date, a category, a count over a list, two values compared,
or a value against the query. A run is right at a rule if the call that the rule asks for is ranked
first at the step where it is due. Runs of one customer stay in one fold.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import numpy as np

from dtdr.data.calls import END, Status, ToolCall
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.predict import create
from dtdr.rankers.folds import assign_folds

ASSESSMENTS = {
    "glass": "assess_glass",
    "theft": "request_police_report",
    "water": "order_plumber",
    "fire": "order_fire_report",
    "storm": "check_weather",
}
CHANNELS = {
    "email": "send_email",
    "phone": "call_customer",
    "letter": "send_letter",
    "app": "push_message",
}
NAMES = ("Ann Weber", "Bo Lindt", "Cem Kaya", "Dora Pohl", "Eva Ruiz", "Finn Berg", "Gil Mora")
OPENINGS = ("Please settle claim {}.", "Can you handle claim {} now?", "Claim {} is still open.")
EXPECTED = " The customer, {}, expects {} euros."
RULES = (
    *("unread", "identity", "lapsed", "not_covered", "fraud", "late", "amount", "limit"),
    *("type", "expected", "open_claims", "tier", "channel"),
)


@dataclass
class _Conversation:
    """Writes the calls of one conversation, and the rule behind each call."""

    rng: np.random.Generator
    before: list[Message | ToolCall] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)

    def call(self, tool: str, arguments: dict[str, Any], output: Any, rule: str = "") -> None:
        number = len(self.calls) + sum(isinstance(item, ToolCall) for item in self.before) + 1
        status: Status = "ok" if output is not None else "unknown"
        self.calls.append(
            ToolCall(str(number), tool, arguments, output, status, len(self.calls) + 1)
        )
        self.rules.append(rule)

    def next_turn(self, query: str, answer: str) -> None:
        self.before += [Message("user", query), *self.calls, Message("assistant", answer)]
        self.calls, self.rules = [], []


def conversation(number: int, rng: np.random.Generator) -> tuple[Demonstration, list[str]]:
    """A demonstration and, for each of its calls, the rule that asked for it, or nothing."""
    talk = _Conversation(rng)
    claim_id, policy_id = f"C-{10_000 + number}", f"P-{int(rng.integers(100_000))}"
    kind, channel = str(rng.choice([*ASSESSMENTS])), str(rng.choice([*CHANNELS]))
    amount = round(float(np.exp(rng.normal(8.2, 1.0))), 2)
    incident = date(2025, 1, 1) + timedelta(days=int(rng.integers(300)))
    filed = incident + timedelta(
        days=int(rng.choice([rng.integers(1, 31), rng.integers(31, 80)], p=[0.8, 0.2]))
    )
    limit = round(float(amount * np.exp(rng.normal(0.7, 0.8))), -2) + 100
    documents = [
        {
            "name": f"scan-{number}-{at}.pdf",
            "state": str(rng.choice(["read", "unread"], p=[0.75, 0.25])),
        }
        for at in range(int(rng.integers(1, 4)))
    ]
    name = str(rng.choice(NAMES))
    claim = {
        "claim": {"id": claim_id, "type": kind, "amount": amount},
        "dates": {"incident": incident.isoformat(), "filed": filed.isoformat()},
        "fraud_score": round(float(rng.beta(2.5, 3)), 2),
        "documents": documents,
        "policy": policy_id,
    }
    others = [other for other in ASSESSMENTS if other != kind]
    covered = [*rng.choice(others, 2, replace=False), *([kind] if rng.random() > 0.12 else [])]
    policy = {
        "id": policy_id,
        "status": str(rng.choice(["active", "lapsed"], p=[0.9, 0.1])),
        "covers": sorted(map(str, covered)),
        "limit": limit,
        "deductible": int(rng.choice([0, 150, 300])),
    }
    customer = {
        "name": name,
        "tier": str(rng.choice(["basic", "silver", "gold"])),
        "contact": {"preferred": channel, "language": str(rng.choice(["en", "de"]))},
        "open_claims": int(rng.integers(0, 5)),
    }
    asked = name if rng.random() > 0.15 else str(rng.choice(NAMES))
    expected = int(amount * rng.uniform(0.5, 1.5))
    query = str(rng.choice(OPENINGS)).format(claim_id) + EXPECTED.format(asked, expected)
    first = [("get_claim", claim), ("get_policy", policy), ("get_customer", customer)]
    if rng.random() < 0.4:
        for tool, output in first[: int(rng.integers(1, 4))]:
            talk.call(tool, {"id": output.get("id", claim_id)}, output)
        first = first[len(talk.calls) :]
        talk.next_turn(f"What is the state of claim {claim_id}?", "It is open. What shall I do?")
    for tool, output in first:
        talk.call(tool, {"id": output.get("id", claim_id)}, output)
    for tool in ("search_notes", "get_weather_archive"):
        if rng.random() < 0.3:
            talk.call(tool, {"claim": claim_id}, {"hits": int(rng.integers(4))})
    _settle(talk, claim, policy, customer, asked, expected)
    calls = tuple(talk.calls)
    earlier = tuple(item for item in talk.before if isinstance(item, ToolCall))
    item = Demonstration(
        str(number), query, Plan(calls, (), earlier), group=name, before=tuple(talk.before)
    )
    return item, talk.rules


def _settle(
    talk: _Conversation,
    claim: dict[str, Any],
    policy: dict[str, Any],
    customer: dict[str, Any],
    asked: str,
    expected: int,
) -> None:
    """The rules, in the order in which the agent obeys them."""
    done, amount = {"done": True}, claim["claim"]["amount"]
    arguments = {"claim": claim["claim"]["id"]}
    for document in claim["documents"]:
        if document["state"] == "unread":
            talk.call("read_document", {"name": document["name"]}, "Two pages.", "unread")
    if asked != customer["name"]:
        talk.call("verify_identity", arguments, done, "identity")
    days = date.fromisoformat(claim["dates"]["filed"]) - date.fromisoformat(
        claim["dates"]["incident"]
    )
    if policy["status"] == "lapsed":
        talk.call("reject_claim", arguments, done, "lapsed")
    elif claim["claim"]["type"] not in policy["covers"]:
        talk.call("reject_not_covered", arguments, done, "not_covered")
    elif claim["fraud_score"] >= 0.7:
        talk.call("open_investigation", arguments, done, "fraud")
    else:
        if days.days > 30:
            talk.call("note_late_report", arguments, done, "late")
        if amount > 10_000:
            talk.call("request_approval", arguments, done, "amount")
        if amount > policy["limit"]:
            talk.call("cap_payment", arguments, done, "limit")
        talk.call(ASSESSMENTS[claim["claim"]["type"]], arguments, done, "type")
        talk.call("pay_claim", arguments, {"paid": min(amount, policy["limit"])})
        if expected > min(amount, policy["limit"]):
            talk.call("explain_difference", arguments, done, "expected")
    if customer["open_claims"] >= 3:
        talk.call("alert_manager", arguments, done, "open_claims")
    if customer["tier"] == "gold":
        talk.call("add_bonus", arguments, done, "tier")
    talk.call(CHANNELS[customer["contact"]["preferred"]], arguments, done, "channel")


def generate(runs: int, seed: int = 0) -> tuple[list[Demonstration], dict[str, list[str]]]:
    """Demonstrations, and by their ids the rules behind their calls."""
    rng = np.random.default_rng(seed)
    made = [conversation(number, rng) for number in range(runs)]
    # A group of many customers is a fold of its own, so that names do not decide.
    items = [
        Demonstration(item.id, item.query, item.plan, group=str(at // 4), before=item.before)
        for at, (item, _) in enumerate(made)
    ]
    return items, {item.id: rules for item, rules in made}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each rule, and the mean over all steps."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rankers", nargs="+", default=["dtdr-f"], metavar="RANKER")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few conversations, by counting")
    given = parser.parse_args(arguments)
    if given.smoke:
        given.rankers, given.runs, given.folds = ["markov-1"], 30, 2
    items, rules = generate(given.runs, given.seed)
    fold = assign_folds(items, folds=given.folds, seed=0)
    right: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    ranks: dict[str, list[float]] = defaultdict(list)
    for ranker in given.rankers:
        for number in range(given.folds):
            train = [item for item, own in zip(items, fold, strict=True) if own != number]
            test = [item for item, own in zip(items, fold, strict=True) if own == number]
            model = create(ranker).fit(train, arguments=False, plans=False)
            for item in test:
                run, wanted = Run(item.query, item.before, item.plan.calls), [*item.plan.tools, END]
                rankings = model.rank_batch([run.first(done) for done in range(len(wanted))])
                for ranking, tool, rule in zip(
                    rankings, wanted, [*rules[item.id], ""], strict=True
                ):
                    place = (
                        ranking.tools.index(tool) if tool in ranking.tools else len(ranking.tools)
                    )
                    ranks[ranker].append(1 / (1 + place))
                    right[rule][ranker].append(place == 0)
    head = " ".join(f"{ranker:>8}" for ranker in given.rankers)
    sys.stdout.write(f"{'rule':14} {'n':>5} {head}\n")
    for rule in RULES:
        means = " ".join(f"{np.mean(right[rule][ranker]):8.3f}" for ranker in given.rankers)
        sys.stdout.write(f"{rule:14} {len(right[rule][given.rankers[0]]):5} {means}\n")
    for label, values in (
        ("all steps, MRR", {ranker: np.mean(ranks[ranker]) for ranker in given.rankers}),
        ("all steps, top-1", {r: np.mean(np.array(ranks[r]) == 1) for r in given.rankers}),
    ):
        means = " ".join(f"{values[ranker]:8.3f}" for ranker in given.rankers)
        sys.stdout.write(f"{label:20} {means}\n")


if __name__ == "__main__":
    main()

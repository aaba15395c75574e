"""Logs of a CI assistant: parallel calls, retries, and rules that outputs decide.

A red pipeline is a right answer of a right call: what comes next depends on its job log.
"""

import random
from collections.abc import Iterator

from examples.hotel.log_formats import Call, Turn, number

PARAMETERS = {
    "check_freeze": "project",
    "get_approvals": "iid",
    "get_pipeline": "project",
    "list_jobs": "pipeline_id",
    "get_job_log": "job_id",
    "retry_job": "job_id",
    "scale_runner": "runner",
    "git_blame": "path",
    "create_issue": "title",
    "assign_issue": "issue_id",
    "rebase_branch": "branch",
    "post_comment": "iid",
    "clear_cache": "project",
    "request_review": "iid",
    "merge_request": "iid",
    "notify_channel": "text",
}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name.replace("_", " "),
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string"}},
                "required": [parameter],
            },
        },
    }
    for name, parameter in PARAMETERS.items()
]

RETRY = ("retry_job", "test", {"status": "pending"})
RED_LOGS: dict[str, list[tuple[str, str, object]]] = {
    "connection reset by peer while fetching a package": [RETRY],
    "killed: out of memory in the test step": [("scale_runner", "large", {"runner": "l"}), RETRY],
    "AssertionError: expected 3 rows, got 2": [
        ("git_blame", "tests/test_rows.py", {"author": "ann"}),
        ("create_issue", "rows are missing", {"issue_id": "issue-12345"}),
        ("assign_issue", "issue-12345", {"assignee": "ann"}),
    ],
    "merge conflict in src/app.py": [
        ("rebase_branch", "app", {"status": "rebased"}),
        ("post_comment", "!1", {"id": "note-1"}),
    ],
    "no space left on device": [("clear_cache", "all", {"freed": "12 GB"}), RETRY],
}
"""What the log of a red job says, and what the agent does then."""

FAILURES = ("Error: 502 upstream timed out", "Error: the service did not answer in time")
PROJECTS = ("billing", "search", "mobile", "gateway", "docs", "ledger")


class Agent:
    """Makes the calls of one query, batch by batch; some time out and are made again."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.project = rng.choice(PROJECTS)
        self.batches: list[list[Call]] = []

    def name(self, prefix: str) -> str:
        return f"{prefix}-{self.rng.randrange(10_000, 99_999)}"

    def call(self, *asked: tuple[str, str, object]) -> None:
        """Make calls in parallel, each of a tool with its argument and what it returns."""
        for _ in range(2):
            if len(asked) > 1 or self.rng.random() >= 0.06:
                break
            tool, argument, _ = asked[0]
            error = self.rng.choice(FAILURES)
            self.batches.append([Call(tool, {PARAMETERS[tool]: argument}, error, failed=True)])
        self.batches.append(
            [Call(tool, {PARAMETERS[tool]: argument}, output) for tool, argument, output in asked]
        )

    def pipeline(self, *, is_red: bool) -> tuple[str, str, object]:
        pipeline = {"id": self.name("pipeline"), "status": "failed" if is_red else "success"}
        return "get_pipeline", self.project, pipeline

    def red_pipeline(self) -> None:
        """Look for what broke a pipeline, and do what its log asks for."""
        job = self.name("job")
        jobs = [{"id": job, "name": "test", "status": "failed"}, {"name": "lint", "status": "ok"}]
        self.call(("list_jobs", self.name("pipeline"), {"jobs": jobs}))
        said = self.rng.choice(list(RED_LOGS))
        lines = "\n".join(["step 1: ok", f"step 2: {said}", "status: failed"])
        self.call(("get_job_log", job, {"id": job, "status": "failed", "log": lines}))
        for step in RED_LOGS[said]:
            self.call(step)

    def merge(self) -> str:
        """Merge a request, where no freeze, review or pipeline says no."""
        iid = f"!{self.rng.randrange(100, 9999)}"
        frozen, approvals = self.rng.random() < 0.25, self.rng.randrange(5)
        is_red = self.rng.random() < 0.5
        asked: list[tuple[str, str, object]] = [
            ("check_freeze", self.project, {"project": self.project, "frozen": frozen}),
            ("get_approvals", iid, {"iid": iid, "approvals": approvals}),
            self.pipeline(is_red=is_red),
        ]
        if self.rng.random() < 0.5:
            self.rng.shuffle(asked)
        self.call(*asked)
        if frozen:
            pass
        elif is_red:
            self.red_pipeline()
        elif approvals < 2:
            self.call(("request_review", iid, {"reviewers": ["bo"]}))
        else:
            self.call(("merge_request", iid, {"state": "merged", "sha": self.name("sha")}))
            self.call(("notify_channel", f"{iid} is merged", {"ok": True}))
        return f"{self.rng.choice(('merge', 'please land', 'get in'))} {iid} of {self.project}"

    def explain(self) -> str:
        """Say why a pipeline is red, and mend it."""
        is_red = self.rng.random() < 0.8
        self.call(self.pipeline(is_red=is_red))
        if is_red:
            self.red_pipeline()
        asked = self.rng.choice(("why is the build red in", "mend the pipeline of"))
        return f"{asked} {self.project}"


def conversations(count: int = 250) -> Iterator[list[Turn]]:
    """Conversations of one or two queries, with ids and times."""
    rng = random.Random(29)
    for place in range(count):
        turns = []
        for _ in range(1 if rng.random() < 0.55 else 2):
            agent = Agent(rng)
            query = rng.choices([Agent.merge, Agent.explain], (3, 2))[0](agent)
            turns.append(Turn(query, agent.batches, "Done."))
        yield number(turns, f"c{place}")

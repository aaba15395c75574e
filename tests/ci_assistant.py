"""Logs of a CI assistant: 38 tools, parallel calls, retries, and rules that outputs decide.

A red pipeline is a right answer of a right call: what comes next depends on its job log.
"""

import random
from collections.abc import Callable, Iterator

from examples.hotel.log_formats import Call, Turn, number

PARAMETERS = {
    "check_freeze": "project",
    "get_merge_request": "iid",
    "get_approvals": "iid",
    "get_pipeline": "project",
    "list_jobs": "pipeline_id",
    "get_job_log": "job_id",
    "retry_job": "job_id",
    "cancel_job": "job_id",
    "request_review": "iid",
    "rebase_branch": "branch",
    "merge_request": "iid",
    "close_request": "iid",
    "post_comment": "iid",
    "notify_channel": "text",
    "create_issue": "title",
    "assign_issue": "issue_id",
    "close_issue": "issue_id",
    "list_issues": "project",
    "git_blame": "path",
    "scale_runner": "runner",
    "list_runners": "project",
    "restart_runner": "runner",
    "clear_cache": "project",
    "deploy": "project",
    "deploy_status": "deployment_id",
    "rollback": "deployment_id",
    "list_branches": "project",
    "create_branch": "branch",
    "delete_branch": "branch",
    "search_code": "text",
    "open_file": "path",
    "create_tag": "tag",
    "list_tags": "project",
    "create_release": "tag",
    "list_secrets": "project",
    "rotate_secret": "secret",
    "get_coverage": "project",
    "list_schedules": "project",
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

RED_LOGS = {
    "connection reset by peer while fetching a package": "retry_job",
    "killed: out of memory in the test step": "scale_runner",
    "AssertionError: expected 3 rows, got 2": "git_blame",
    "merge conflict in src/app.py": "rebase_branch",
    "no space left on device": "clear_cache",
}
"""What the log of a red job says, and what the agent does then."""

FAILURES = ("Error: 502 upstream timed out", "Error: the service did not answer in time")
PROJECTS = ("billing", "search", "mobile", "gateway", "docs", "ledger")


class Agent:
    """Makes the calls of one query, batch by batch; some time out and are made again."""

    def __init__(self, rng: random.Random, *, failures: float) -> None:
        self.rng = rng
        self.failures = failures
        self.project = rng.choice(PROJECTS)
        self.batches: list[list[Call]] = []

    def name(self, prefix: str) -> str:
        return f"{prefix}-{self.rng.randrange(10_000, 99_999)}"

    def call(self, *asked: tuple[str, str, object]) -> None:
        """Make calls in parallel, each of a tool with its argument and what it returns."""
        for _ in range(2):
            if len(asked) > 1 or self.rng.random() >= self.failures:
                break
            tool, argument, _ = asked[0]
            error = self.rng.choice(FAILURES)
            self.batches.append([Call(tool, {PARAMETERS[tool]: argument}, error, failed=True)])
        self.batches.append(
            [Call(tool, {PARAMETERS[tool]: argument}, output) for tool, argument, output in asked]
        )

    def red_pipeline(self, iid: str) -> None:
        """Look for what broke a pipeline, and do what its log asks for."""
        job = self.name("job")
        jobs = [{"id": job, "name": "test", "status": "failed"}, {"name": "lint", "status": "ok"}]
        self.call(("list_jobs", self.name("pipeline"), {"jobs": jobs}))
        said = self.rng.choice(list(RED_LOGS))
        lines = "\n".join(["step 1: ok", f"step 2: {said}", "status: failed"])
        self.call(("get_job_log", job, {"id": job, "status": "failed", "log": lines}))
        match RED_LOGS[said]:
            case "retry_job":
                self.call(("retry_job", job, {"id": job, "status": "pending"}))
            case "scale_runner":
                self.call(("scale_runner", "large", {"runner": "large"}))
                self.call(("retry_job", job, {"id": job, "status": "pending"}))
            case "git_blame":
                self.call(("git_blame", "tests/test_rows.py", {"author": "ann"}))
                issue = self.name("issue")
                self.call(("create_issue", "rows are missing", {"issue_id": issue}))
                self.call(("assign_issue", issue, {"assignee": "ann"}))
            case "rebase_branch":
                self.call(("rebase_branch", self.name("branch"), {"status": "rebased"}))
                self.call(("post_comment", iid, {"id": self.name("note")}))
            case "clear_cache":
                self.call(("clear_cache", self.project, {"freed": "12 GB"}))
                self.call(("retry_job", job, {"id": job, "status": "pending"}))

    def merge(self) -> str:
        """Merge a request, where no freeze, review or pipeline says no."""
        iid = f"!{self.rng.randrange(100, 9999)}"
        frozen, approvals = self.rng.random() < 0.25, self.rng.randrange(5)
        red = self.rng.random() < 0.5
        pipeline = {"id": self.name("pipeline"), "status": "failed" if red else "success"}
        asked: list[tuple[str, str, object]] = [
            ("check_freeze", self.project, {"project": self.project, "frozen": frozen}),
            ("get_approvals", iid, {"iid": iid, "approvals": approvals}),
            ("get_pipeline", self.project, pipeline),
        ]
        if self.rng.random() < 0.5:
            self.rng.shuffle(asked)
        self.call(*asked)
        if frozen:
            pass
        elif red:
            self.red_pipeline(iid)
        elif approvals < 2:
            self.call(("request_review", iid, {"reviewers": ["bo"]}))
        else:
            self.call(("merge_request", iid, {"state": "merged", "sha": self.name("sha")}))
            self.call(("notify_channel", f"{iid} is merged", {"ok": True}))
        return f"{self.rng.choice(('merge', 'please land', 'get in'))} {iid} of {self.project}"

    def explain(self) -> str:
        """Say why a pipeline is red, and mend it."""
        red = self.rng.random() < 0.8
        pipeline = {"id": self.name("pipeline"), "status": "failed" if red else "success"}
        self.call(("get_pipeline", self.project, pipeline))
        if red:
            self.red_pipeline("!1")
        return f"{self.rng.choice(('why is the build red in', 'mend the pipeline of'))} " + (
            self.project
        )

    def ship(self) -> str:
        """Deploy, and roll back where that went wrong."""
        frozen, broken = self.rng.random() < 0.3, self.rng.random() < 0.4
        self.call(
            ("check_freeze", self.project, {"project": self.project, "frozen": frozen}),
            ("get_coverage", self.project, {"percent": self.rng.randrange(60, 99)}),
        )
        if not frozen:
            deployment = self.name("deployment")
            self.call(("deploy", self.project, {"deployment_id": deployment}))
            state = {"deployment_id": deployment, "status": "error" if broken else "live"}
            self.call(("deploy_status", deployment, state))
            if broken:
                self.call(("rollback", deployment, {"status": "rolled back"}))
            self.call(("notify_channel", f"{self.project} was deployed", {"ok": True}))
        return f"{self.rng.choice(('deploy', 'ship', 'roll out'))} {self.project}"

    def simple(self) -> str:
        """One of many short requests, which no output decides."""
        tag, branch = f"v1.{self.rng.randrange(90)}", self.name("branch")
        plans: dict[str, list[tuple[str, str]]] = {
            "release {}": [("create_tag", tag), ("create_release", tag)],
            "which tags does {} have": [("list_tags", self.project)],
            "new branch in {}": [("list_branches", self.project), ("create_branch", branch)],
            "remove old branches of {}": [
                ("list_branches", self.project),
                ("delete_branch", branch),
            ],
            "where is the parser in {}": [("search_code", "parser"), ("open_file", "parser.py")],
            "rotate the keys of {}": [("list_secrets", self.project), ("rotate_secret", "api")],
            "restart the runner of {}": [("list_runners", self.project), ("restart_runner", "r1")],
            "open issues of {}": [("list_issues", self.project)],
            "close the oldest issue of {}": [
                ("list_issues", self.project),
                ("close_issue", self.name("issue")),
            ],
            "nightly schedule of {}": [("list_schedules", self.project)],
            "drop the request in {}": [("get_merge_request", "!7"), ("close_request", "!7")],
            "stop the job in {}": [("list_jobs", self.project), ("cancel_job", "j1")],
        }
        query = self.rng.choice(list(plans))
        for tool, argument in plans[query]:
            self.call((tool, argument, {"done": True}))
        return query.format(self.project)


def conversations(
    count: int = 250, seed: int = 29, *, failures: float = 0.06
) -> Iterator[list[Turn]]:
    """Conversations of one or two queries, with ids and times.

    Args:
        count: how many.
        seed: of everything random.
        failures: how often a call that is made alone times out and is made again.
    """
    rng = random.Random(seed)
    kinds: list[Callable[[Agent], str]] = [Agent.merge, Agent.explain, Agent.ship, Agent.simple]
    for place in range(count):
        turns = []
        for _ in range(1 if rng.random() < 0.55 else 2):
            agent = Agent(rng, failures=failures)
            query = rng.choices(kinds, (3, 2, 2, 2))[0](agent)
            turns.append(Turn(query, agent.batches, "Done."))
        yield number(turns, f"c{place}")

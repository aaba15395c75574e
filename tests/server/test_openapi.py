"""The description of the server, and Schemathesis against it."""

import re
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


def operations(served):
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    return [result.ok() for result in schema.get_all_operations()]


@pytest.mark.parametrize("requests", [25, pytest.param(1_000, marks=pytest.mark.slow)])
def test_generated_requests_get_what_the_description_says(served, record_property, requests):
    """No 500; every status, content type and body as /openapi.json describes it."""
    found = operations(served)
    assert len(found) >= 14
    statuses: Counter[int] = Counter()
    with_body = sum(bool(operation.body) for operation in found)
    for operation in found:
        before = statuses.total()
        # Without a body there is little that can differ.
        number = -(-requests // with_body) if operation.body else 4
        send_generated(operation, served.url, statuses, number)
        assert statuses.total() > before, operation.label
    record_property("requests", statuses.total())
    record_property("statuses", dict(statuses))
    assert statuses.total() >= requests
    assert all(status < 500 for status in statuses)
    assert statuses[200], "some generated requests must be valid"


def send_generated(operation, url: str, statuses: Counter[int], number: int) -> None:
    """Send that many generated requests to one operation: valid ones, and ones that are not."""
    modes = [operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode]
    there = {"model": "mail"}

    @settings(max_examples=number, database=None, suppress_health_check=list(HealthCheck))
    @given(case=st.one_of(modes), use_names=st.booleans())
    def run(case, use_names):
        # A generated name is never one of a model that there is.
        if use_names:
            case.path_parameters.update(
                {name: value for name, value in there.items() if name in case.path_parameters}
            )
        response = case.call(base_url=url)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    run()


def test_the_page_shows_every_endpoint_and_loads_nothing(served):
    answer = served.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    page = answer.text
    assert "<script" not in page
    assert re.findall(r"(?:href|src)=([^ >]+)", page) == ["openapi.json"]
    for path, found in served.get("/openapi.json").json()["paths"].items():
        for method, operation in found.items():
            assert operation["description"], (method, path)
            assert f"{method.upper()} {path}" in page
    assert "threshold" in page

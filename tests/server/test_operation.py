"""Running it: health, metrics, logs, spans, signals, the command line."""

import json
import logging
import signal
import socket

import pytest

from dtdr.serve.server.logs import JsonFormatter
from tests.command_line import is_one_sentence
from tests.helpers import collected_spans
from tests.server import serving
from tests.server.serving import QUERY, refused


def test_a_server_is_healthy_and_ready_until_it_stops(fitted):
    with serving.serve(serving.settings(fitted)) as served:
        assert served.get("/healthz").json()["status"] == "ok"
        assert served.get("/readyz").json()["status"] == "ok"
        served.service.is_stopping = True
        assert refused(served.get("/readyz"), 503) == "the server is stopping"


def test_metrics_count_requests_by_route_and_never_by_what_clients_chose(fitted):
    from prometheus_client.parser import text_string_to_metric_families

    with serving.serve(serving.settings(fitted)) as served:
        for _ in range(3):
            served.post("/v1/rank", {"query": QUERY})
        served.post("/v1/rank", {"query": ""})
        served.get("/secret-path-of-a-client")
        served.post("/v1/rank", {"query": QUERY, "model": "secret-model"})
        text = served.get("/metrics").text
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert "secret" not in text
        counts = {
            (sample.labels["route"], sample.labels["status"]): sample.value
            for sample in families["dtdr_requests"].samples
            if sample.name == "dtdr_requests_total"
        }
        assert counts[("/v1/rank", "200")] == 3
        assert counts[("/v1/rank", "422")] == 1
        assert counts[("unmatched", "404")] == 1
        assert served.metric('dtdr_rankings_total{model="mail"}') == 3
        assert served.metric('dtdr_request_seconds_count{route="/v1/rank"}') == 5
        assert served.metric("process_resident_memory_bytes") > 1e6


def records(caplog) -> list[dict]:
    formatter = JsonFormatter()
    return [
        json.loads(formatter.format(record))
        for record in caplog.records
        if record.name == "dtdr.server"
    ]


@pytest.mark.parametrize("log_queries", [False, True])
def test_logs_are_json_and_hold_no_query_unless_allowed(fitted, caplog, log_queries):
    caplog.set_level(logging.INFO, "dtdr.server")
    settings = serving.settings(fitted, log_requests=True, log_queries=log_queries)
    with serving.serve(settings) as served:
        body = {"query": "the secret query", "history": ["secret_tool"]}
        served.post("/v1/rank", body, headers={"x-request-id": "r-1"})
        served.post("/v1/rank", {"query": "the secret query", "model": "secret"})
    found = records(caplog)
    line = next(item for item in found if item.get("id") == "r-1")
    assert line["route"] == "/v1/rank"
    assert line["status"] == 200
    assert line["calls"] == 1
    assert line["ms"] >= 0
    assert line["level"] == "info"
    assert [item["event"] for item in found if item["event"] != "request"] == ["ready", "stopped"]
    assert ("the secret query" in json.dumps(found)) == log_queries
    assert line.get("query") == ("the secret query" if log_queries else None)


def test_a_failure_of_the_server_is_answered_and_logged_without_its_text(fitted, caplog):
    with serving.serve(serving.settings(fitted)) as served:
        model = served.service.models["mail"].current.model

        def fail(prepared, runs):
            raise ZeroDivisionError(f"about {runs[0].query}")

        model.ranker.score_all = fail
        assert (
            refused(
                served.post("/v1/rank", {"query": "secret"}, headers={"x-request-id": "r-2"}), 500
            )
            == "the server failed; its log has the reason"
        )
        del model.ranker.score_all
        assert served.post("/v1/rank", {"query": "secret"}).status_code == 200
    found = records(caplog)
    failed = next(item for item in found if item["event"] == "request failed")
    assert failed["id"] == "r-2"
    assert failed["exception"] == "ZeroDivisionError"
    assert any("test_operation.py" in frame for frame in failed["frames"])
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize("log_queries", [False, True])
def test_a_ranking_is_a_retrieval_span_of_the_callers_trace(fitted, monkeypatch, log_queries):
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import trace

    finished, provider = collected_spans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    with serving.serve(serving.settings(fitted, log_queries=log_queries)) as served:
        headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
        served.post("/v1/rank", {"query": QUERY, "history": ["a"], "top_k": 2}, headers=headers)
        served.post("/v1/rank", {"query": QUERY, "history": [{"tool": "a", "output": "b"}]})
    spans = [span for span in finished() if span.name == "retrieval mail"]
    assert len(spans) == 2
    attributes = dict(spans[0].attributes or {})
    assert attributes["gen_ai.operation.name"] == "retrieval"
    assert attributes["gen_ai.provider.name"] == "dtdr"
    assert attributes["gen_ai.data_source.id"] == "mail"
    assert attributes["gen_ai.request.top_k"] == 2.0
    assert attributes["dtdr.history.length"] == 1
    assert ("gen_ai.retrieval.query.text" in attributes) == log_queries
    assert (QUERY in json.dumps(attributes)) == log_queries
    assert spans[0].context is not None
    assert spans[0].context.trace_id == int("a" * 32, 16)


def test_a_process_serves_follows_its_folder_and_stops_on_terminate(model):
    with serving.process(f"mail={model}", "--watch", "0.1") as served:
        assert served.post("/v1/rank", {"query": QUERY}).json()["generation"] == 1
        serving.fit(model, ranker="dr")
        serving.wait_until(
            lambda: served.post("/v1/rank", {"query": QUERY}).json()["generation"] == 2
        )
        assert served.get("/v1/models").json()["models"][0]["ranker"] == "dr"
    assert served.process.returncode == 0
    said = [json.loads(line) for line in served.lines if line.startswith("{")]
    assert [item["event"] for item in said if item["event"] != "request"] == [
        "ready",
        "reloaded",
        "stopped",
    ]
    assert all(line.startswith(("{", "dtdr: ")) for line in served.lines), served.lines


@pytest.mark.slow
def test_a_request_under_way_is_answered_before_the_server_stops(fitted):
    with serving.process(fitted, "--quiet") as served:
        url = served.http.base_url
        body = json.dumps({"query": QUERY}).encode()
        head = (
            "POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        with served.connect() as slow:
            slow.sendall(head.encode())
            # The server says so once it waits for the body.
            assert slow.recv(4_096).startswith(b"HTTP/1.1 100")
            served.process.send_signal(signal.SIGTERM)
            serving.wait_until(lambda: not is_listening(url.host, int(url.port or 0)))
            slow.sendall(body)
            assert slow.recv(65_536).startswith(b"HTTP/1.1 200")
        assert served.process.wait(60) == 0


def is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_port_in_use_is_one_sentence(cli, fitted):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, said = cli("serve", fitted, "--port", taken.getsockname()[1])
    assert (code, out) == (2, "")
    assert is_one_sentence(said)
    assert "already in use" in said

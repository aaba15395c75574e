"""When a query was asked, from every format that records a time."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from examples.hotel.log_formats import openai_chat, write_lines

from dtdr.conversation.times import as_moment, find_time, nanoseconds
from dtdr.logs import Importer, find_format
from tests.logs.log_samples import RENDERINGS, format_of
from tests.logs.test_formats import PLAIN, sample

MOMENT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
SECONDS = int(MOMENT.timestamp())
WITHIN = timedelta(hours=1)


def times(tmp_path, rendering, records):
    path = write_lines(tmp_path / "log.jsonl", records)
    importer = Importer(find_format(format_of(rendering)), [path], PLAIN)
    return [(item.query, item.time) for item in importer.demonstrations()]


@pytest.mark.parametrize("rendering", ["openai-chat", "anthropic", "openai-responses, repeated"])
@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ("record", "timestamp", MOMENT.isoformat()),
        ("record", "startTime", "2026-03-04 05:06:07"),
        ("record", "ts", SECONDS * 1000),
        ("response", "created_at", SECONDS),
        ("response", "created", SECONDS),
    ],
)
def test_chat_logs_tell_the_time_of_a_request(tmp_path, rendering, place, key, value):
    records = RENDERINGS[rendering](sample())
    for record in records:
        (record if place == "record" else record["response"])[key] = value
        record["time"] = 1.25  # how long it took
    found = times(tmp_path, rendering, records)
    assert [moment for _, moment in found] == [MOMENT] * len(found)
    assert len(found) == 2


def test_requests_of_a_chain_and_messages_have_times_of_their_own(tmp_path):
    records = RENDERINGS["openai-responses, chained"](sample())
    for number, record in enumerate(records):
        record["response"]["created_at"] = SECONDS + 60 * number
    found = times(tmp_path, "openai-responses", records)
    assert found[0][1] == MOMENT
    assert MOMENT < found[1][1] < MOMENT + WITHIN
    records = RENDERINGS["openai-chat, whole conversations"](sample())
    for number, message in enumerate(records[-1]["messages"]):
        message["created_at"] = SECONDS + number
    found = times(tmp_path, "openai-chat", records[-1:])
    assert found[0][1] < found[1][1] < MOMENT + WITHIN


def test_logs_without_a_day_have_no_time(tmp_path):
    assert {moment for _, moment in times(tmp_path, "openai-chat", openai_chat(sample()))} == {None}
    records = json.loads(json.dumps(RENDERINGS["langsmith"](sample())))
    for number, record in enumerate(records):
        record["start_time"], record["end_time"] = number + 1, number + 2  # since it began
    assert {moment for _, moment in times(tmp_path, "langsmith", records)} == {None}


def test_what_is_no_time_is_none():
    values: list[Any] = ["yesterday", None, True, -5, "", [], 0, 12.5, float("nan"), float("inf")]
    for value in values:
        assert find_time({"created": value, "time": SECONDS}) == SECONDS * 10**9
    assert as_moment(10**25) is None
    assert as_moment(nanoseconds(SECONDS * 1000)) == MOMENT
    assert as_moment(nanoseconds("2026-03-04T06:06:07+01:00")) == MOMENT

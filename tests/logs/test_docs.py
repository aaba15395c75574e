import json
import re

import pytest
from examples.hotel.log_formats import write_lines

from dtdr import Demonstration
from dtdr.logs import FORMATS, CutOptions, LogReader, detect_format, open_demonstrations
from tests.conftest import PROJECT

PAGE = PROJECT / "docs" / "logs.md"
FORMATS_PAGE = PAGE.with_name("formats.md")


def example(name):
    """The first indented block after the format's name in the page."""
    _, _, rest = FORMATS_PAGE.read_text(encoding="utf-8").partition(f"**`{name}`**")
    block = re.search(r"\n\n((?: {4}.*\n)+)", rest)
    assert block is not None
    return json.loads(block.group(1))


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "dtdr"])
def test_the_example_of_each_format_in_the_documentation_is_read(name, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", [example(name)])
    options = CutOptions(query="Mail Ann")
    assert detect_format(LogReader([log])).name == name
    (found,) = open_demonstrations([log], name, options)
    assert found.query in ("Mail Ann", "(no query in the log)")
    assert [(call.tool, call.arguments) for call in found.plan.calls] == [
        ("find_user", {"name": "Ann"})
    ]


def test_the_example_of_what_is_written_is_read():
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("## What is written")
    block = re.search(r"\n\n((?: {4}.*\n)+)", rest)
    assert block is not None
    record = json.loads(block.group(1))
    assert Demonstration.from_dict(record).to_dict() == {
        key: value for key, value in record.items() if key != "outcome"
    }

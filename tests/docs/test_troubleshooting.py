"""The table of error messages says what the code says."""

import re

import error_messages

from helpers import paths

PAGE = paths.ROOT / "docs" / "troubleshooting.md"


def listed(text: str) -> list[str]:
    return re.findall(r"^\| `(.+?)` \| [^|]+ \|$", text, re.MULTILINE)


def test_every_message_of_the_table_is_in_the_code() -> None:
    there = [" ".join(message.split()) for message, _ in error_messages.messages()]
    rows = listed(PAGE.read_text(encoding="utf-8"))
    assert len(rows) == len(set(rows)) >= 15
    assert [row for row in rows if not any(row in message for message in there)] == []


def test_messages_are_found_in_calls_and_f_strings() -> None:
    found = dict(error_messages.messages())
    assert found["--resume continues an experiment as it was: leave out --…"] == (
        "helpers/commands/run.py"
    )
    assert len(found) > 300

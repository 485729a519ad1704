"""What native code remarks on stderr, while a library is imported."""

import os

import pytest

from helpers.frameworks import import_messages


def test_only_known_remarks_are_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    with import_messages.dropped("custom operations are on", "before InitializeLog"):
        os.write(2, b"I0000 port.cc] custom operations are on. You may see\nE0000 no driver\n")
        os.write(2, b"WARNING: messages before InitializeLog\nkilled")
    assert capfd.readouterr().err == "E0000 no driver\nkilled"
    os.write(2, b"custom operations are on\n")
    assert capfd.readouterr().err == "custom operations are on\n", "it is over"


def test_what_came_before_an_error_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ImportError, match="broken"), import_messages.dropped("known"):
        os.write(2, b"known\nlibcuda is missing\n")
        raise ImportError("broken")
    assert capfd.readouterr().err == "libcuda is missing\n"

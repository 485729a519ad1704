"""What a notebook shows of an error: a user's mistake is its message, all else its traceback."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

RAISES = """
from data_prep.errors import DataError
from gpumon.errors import MonitorError
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks.replicas import ReplicaError
from helpers.launch.failures import RankError
def deep(error):
    raise error
try:
    1 / 0
except ZeroDivisionError:
    deep({error})
"""


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("UserError('give 2 devices')", "give 2 devices"),
        ("UnsupportedError('no bf16 here')", "no bf16 here"),
        ("DataError('labels.csv: line 3 is torn')", "labels.csv: line 3 is torn"),
        ("MonitorError('no trace there')", "no trace there"),
        ("RankError('rank 1 on a: NameError: x')", "rank 1 on a: NameError: x"),
        (r"ReplicaError('replica 1 failed:\nTraceback\nx')", "replica 1 failed:\nTraceback\nx"),
    ],
)
def test_a_mistake_is_its_message_alone(
    error: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = InteractiveShell().run_cell(RAISES.format(error=error))
    assert result.error_in_exec is not None
    assert capsys.readouterr().out.strip() == shown


def test_another_error_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    InteractiveShell().run_cell(RAISES.format(error="KeyError('x')"))
    assert "Traceback (most recent call last)" in capsys.readouterr().out

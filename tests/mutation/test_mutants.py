"""The mutation tester: which changes it makes, what it lists, and when it fails."""

import mutants
import pytest
from mutations import Mutant

LINE, CHANGE = "rate = 1 + 2  # of a step", "1 + 2  ->  1 - 2"
MODULE = "fairness.reference_checks"
ONE = Mutant(MODULE, 12, LINE, CHANGE, "")
ENTRY = {"module": MODULE, "line": LINE, "change": CHANGE, "reason": "why"}


@pytest.mark.parametrize(
    ("alive", "listed", "code"),
    [([ONE], [], 1), ([ONE], [ENTRY], 0), ([], [ENTRY], 1), ([], [], 0)],
)
def test_what_survives_has_to_be_listed_and_nothing_else(
    alive: list[Mutant], listed: list[dict[str, str]], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mutants.report([ONE], alive, listed) == code
    said = capsys.readouterr().out
    assert (f"SURVIVED {ONE}" in said) == bool(alive and not listed)

"""The mutation tester: which changes it makes, what it lists, and when it fails."""

import ast

import mutants
import pytest
from mutations import ROOT, Mutant, path_of

LINE, CHANGE = "rate = 1 + 2  # of a step", "1 + 2  ->  1 - 2"
MODULE = "fairness.reference_checks"
ONE = Mutant(MODULE, 12, LINE, CHANGE, "")
ENTRY = {"module": MODULE, "line": LINE, "change": CHANGE, "reason": "why"}


@pytest.mark.parametrize(
    ("of", "change"),
    [
        (MODULE, "1e-10  ->  3e-10"),
        ("results.shared_settings", "without lambda c: c['recipe']['code']"),
        ("fairness.check_results", "self.rest <= self.threshold  ->  self.rest < self.threshold"),
    ],
)
def test_constants_operators_and_statements_are_changed(of: str, change: str) -> None:
    original = ast.unparse(ast.parse((ROOT / path_of(of)).read_text(encoding="utf-8")))
    made = mutants.mutants(of)
    assert change in {mutant.change for mutant in made}
    assert original not in {mutant.source for mutant in made}


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

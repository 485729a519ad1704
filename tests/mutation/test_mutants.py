"""The mutation tester: makes the faults that nobody noticed once, and tells who survives."""

import ast

import mutants
import pytest
from mutations import Mutant, path_of

ONE = Mutant("fairness.reference_checks", 12, "a <= b", "a <= b  ->  a < b", "")
OTHER = Mutant("fairness.training_loop", 7, "1", "1  ->  2", "")
LISTED = [
    {
        "module": "fairness.reference_checks",
        "line": "a <= b",
        "change": "a <= b  ->  a < b",
        "reason": "why",
    }
]


@pytest.mark.parametrize(
    ("module", "change"),
    [
        ("fairness.reference_checks", "1e-10  ->  3e-10"),
        ("fairness.reference_checks", "1e-05  ->  3.0000000000000004e-05"),
        ("results.shared_settings", "without lambda c: c['recipe']['code']"),
        ("fairness.check_results", "self.rest <= self.threshold  ->  self.rest < self.threshold"),
    ],
)
def test_the_faults_that_survived_once_are_among_the_mutants(module: str, change: str) -> None:
    assert change in {mutant.change for mutant in mutants.mutants(module)}


@pytest.mark.parametrize("module", ["results.shared_settings", "fairness.check_results"])
def test_every_mutant_is_a_program_and_another_one(module: str) -> None:
    path = mutants.ROOT / path_of(module)
    original = ast.unparse(ast.parse(path.read_text(encoding="utf-8")))
    made = mutants.mutants(module)
    assert len(made) > 20
    for mutant in made:
        ast.parse(mutant.source)
        assert mutant.source != original, mutant


def test_a_survivor_that_is_not_listed_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.report([ONE, OTHER], [ONE], [], whole=True) == 1
    said = capsys.readouterr().out
    assert (
        "SURVIVED helpers/fairness/reference_checks.py:12: a <= b\n    a <= b  ->  a < b\n" in said
    )
    assert mutants.report([ONE, OTHER], [ONE], LISTED, whole=True) == 0
    assert "SURVIVED" not in capsys.readouterr().out


def test_who_is_listed_and_does_not_survive_is_an_error_where_all_were_tried() -> None:
    assert mutants.report([ONE, OTHER], [], LISTED, whole=False) == 0
    assert mutants.report([OTHER], [], LISTED, whole=True) == 0
    assert mutants.report([ONE, OTHER], [], LISTED, whole=True) == 1

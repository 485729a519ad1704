"""The notebooks' mutation tester: which changes it makes, what it lists, and when it fails."""

import ast
import tomllib
from typing import Any

import notebook_mutants
import pytest
from mutations import Mutant
from notebook_mutants import KERNELS, ROOT
from notebook_runs import Outcome

LISTED: list[dict[str, Any]] = tomllib.loads(
    (ROOT / "tests/mutation/notebook_mutants.toml").read_text(encoding="utf-8")
)["survivor"]
CELL, LINE, CHANGE = "", "rate = 1 + 2  # of a step", "1 + 2  ->  1 - 2"
ONE = Mutant("JAX", 3, LINE, CHANGE, "")


@pytest.mark.parametrize(
    ("notebook", "change"),
    [
        ("PyTorch", "255  ->  256"),
        ("PyTorch", "side - r.crop  ->  side + r.crop"),
        ("PyTorch", "without optimizer.zero_grad()"),
        ("TensorFlow", "without optimizer.apply(gradients)"),
        ("JAX", "without nnx.update(network, statistics, keys)"),
    ],
)
def test_constants_operators_and_statements_are_changed(notebook: str, change: str) -> None:
    assert change in {mutant.change for _, mutant in notebook_mutants.mutants(notebook)}


@pytest.mark.parametrize("notebook", KERNELS)
def test_every_mutant_is_a_cell_with_one_change(notebook: str) -> None:
    made = notebook_mutants.mutants(notebook)
    assert len(made) > 150
    for cell, mutant in made:
        ast.parse(mutant.source)
        assert mutant.source != ast.unparse(ast.parse(cell)), mutant.change
        assert mutant.line in cell


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry["line"])
def test_what_is_listed_is_there_and_has_a_reason(entry: dict[str, Any]) -> None:
    assert entry["reason"] and set(entry) <= {"notebooks", "line", "change", "reason"}
    for notebook in entry.get("notebooks", KERNELS):
        made = [mutant for _, mutant in notebook_mutants.mutants(notebook)]
        assert any(notebook_mutants.reason_of(mutant, [entry]) for mutant in made), notebook


@pytest.mark.parametrize(
    ("outcome", "entry", "code", "said"),
    [
        (Outcome(error="time limit"), None, 0, "1 killed by an error, 1 of them by the time limit"),
        (Outcome(rows=("one", "two")), None, 0, "1 caught; by the first row that fails:\n"),
        (Outcome(trained="abc"), None, 1, f"SURVIVED, TRAINS SOMETHING ELSE: {LINE}\n    {CHANGE}"),
        (Outcome(trained="abc"), {"line": "rate = "}, 0, "1 survived and listed"),
        (Outcome(trained="abc"), {"line": "rate = ", "change": "2  ->  3"}, 1, "SURVIVED"),
        (Outcome(trained="abc"), {"line": "rate = ", "notebooks": ["PyTorch"]}, 1, "SURVIVED"),
        (Outcome(rows=("one",)), {"line": "rate = "}, 1, "NO SURVIVOR, take it off the list"),
    ],
)
def test_what_survives_has_to_be_listed_and_nothing_else(
    outcome: Outcome,
    entry: dict[str, Any] | None,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = [] if entry is None else [entry]
    ended = [(outcome, False)]
    assert notebook_mutants.report("JAX", [(CELL, ONE)], ended, listed, whole=True) == code
    assert said in capsys.readouterr().out

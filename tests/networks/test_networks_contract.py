"""Every framework's networks are made by the same two functions."""

import ast

import pytest

from helpers import paths
from helpers.frameworks import ROWS, networks_of

FOLDER = paths.ROOT / "helpers" / "networks"
MODULES = sorted({networks_of(row.module) for row in ROWS})
MADE_BY = {
    "build": "network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe",
    "own": "recipe: Recipe, outputs: int",
}


@pytest.mark.parametrize("module", MODULES)
def test_it_is_called_as_the_package_says(module: str) -> None:
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{module}.py does not say what is peculiar"
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {name: ast.unparse(functions[name].args) for name in MADE_BY} == MADE_BY
    assert {ast.unparse(functions[name].returns or tree) for name in MADE_BY} == {"Model"}

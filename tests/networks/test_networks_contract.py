"""Every framework's networks are made by the same function, and every framework has them all."""

import ast
import inspect

import pytest

from helpers import paths
from helpers.frameworks import ROWS, networks_of
from helpers.networks import Networks
from helpers.networks.shapes import NETWORKS, STAGES

FOLDER = paths.ROOT / "helpers" / "networks"
MODULES = sorted({networks_of(row.module) for row in ROWS})


def build(module: str) -> ast.FunctionDef:
    path = FOLDER / f"{module}.py"
    assert path.exists(), f"helpers/networks lacks {module}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{module}.py does not say what is peculiar"
    (found,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "build")
    return found


def test_there_is_a_module_for_each_framework() -> None:
    others = {"__init__", "composed", "custom", "shapes", "tensorflow_optimizers", "weights"}
    differ = ({path.stem for path in FOLDER.glob("*.py")} - others) ^ set(MODULES)
    assert not differ, f"helpers/networks and the registry differ in {sorted(differ)}"


@pytest.mark.parametrize("module", MODULES)
def test_it_is_called_as_the_interface_says(module: str) -> None:
    (interface,) = ast.parse(inspect.getsource(Networks)).body
    (expected,) = (n for n in ast.walk(interface) if isinstance(n, ast.FunctionDef))
    found = build(module)
    expected.args.args.pop(0)
    assert ast.unparse(found.args) == ast.unparse(expected.args)
    assert found.returns is not None and ast.unparse(found.returns) == "Model"


@pytest.mark.parametrize("module", MODULES)
def test_it_has_every_network(module: str) -> None:
    words = {n.value for n in ast.walk(build(module)) if isinstance(n, ast.Constant)}
    names = {n.id for n in ast.walk(build(module)) if isinstance(n, ast.Name)}
    lacks = {*NETWORKS, "own"} - words - {name for name in STAGES if "STAGES" in names}
    lacks -= {*NETWORKS} if "compose" in names else set()
    assert not lacks, f"{module}.py does not build {sorted(lacks)}"

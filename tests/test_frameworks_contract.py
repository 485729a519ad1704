"""Every framework's module has the same public functions, and its notebook the same lesson.

The modules are compared as source, because no environment holds all the frameworks. A maintainer
who adds a framework is told here what is missing.
"""

import ast
import json

import pytest

from helpers import paths
from helpers.frameworks import NOTEBOOKS

FOLDER = paths.ROOT / "helpers" / "frameworks"
MODEL = "pytorch"

# Functions and variables that carry the same names in each module's notebook.
STEPS = ("train_epoch", "validate", "predict", "make_optimizer", "build_model", "to_network")
VARIABLES = ("setup", "scaled", "this_run", "images", "initial", "model", "certificate", "history")


def public(module: str) -> dict[str, str]:
    """Public names of a module in their order, each with its signature as source."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found[node.name] = signature(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
            visible = [m for m in methods if not m.name.startswith("_") or m.name == "__init__"]
            found[node.name] = "; ".join(f"{m.name}{signature(m)}" for m in visible)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and not target.id.startswith("_"):
                found[target.id] = "="
    return found


def signature(node: ast.FunctionDef) -> str:
    returns = ast.unparse(node.returns) if node.returns else "nothing"
    return f"({ast.unparse(node.args)}) -> {returns}"


def source(notebook: str) -> str:
    cells = json.loads((paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


def defined(notebook: str) -> set[str]:
    """Names of all functions and variables a notebook defines at any level."""
    names = set()
    for node in ast.walk(ast.parse(source(notebook))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_modules_listed_are_those_there() -> None:
    there = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert there == set(NOTEBOOKS)


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_same_functions_same_signatures_same_order(module: str) -> None:
    expected, found = public(MODEL), public(module)
    extra = [name for name in found if name not in expected and found[name] != "="]
    assert not extra, f"{module}.py has public functions that {MODEL}.py lacks: {extra}"
    shared = {name: found.get(name, "missing") for name in expected}
    assert shared == expected
    assert [name for name in found if name in expected] == list(expected)


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_public_functions_are_documented(module: str) -> None:
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{module}.py does not say what is peculiar"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{module}.{node.name} has no docstring"


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_each_has_tests_of_its_own(module: str) -> None:
    assert (paths.ROOT / "tests" / "frameworks" / f"test_{module}.py").exists()


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_notebook_uses_the_shared_names(module: str) -> None:
    names = defined(NOTEBOOKS[module])
    missing = [name for name in (*STEPS, *VARIABLES) if name not in names]
    assert not missing, f"{NOTEBOOKS[module]} does not define {missing}"


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_notebook_writes_the_same_sections(module: str) -> None:
    def sections(notebook: str) -> set[str]:
        calls = [n for n in ast.walk(ast.parse(source(notebook))) if isinstance(n, ast.Call)]
        return {
            str(ast.literal_eval(call.args[0]))
            for call in calls
            if ast.unparse(call.func) == "this_run.add" and isinstance(call.args[0], ast.Constant)
        }

    assert sections(NOTEBOOKS[module]) - {"skipped"} == sections(NOTEBOOKS[MODEL])

"""Every framework's module has the same public functions, and its notebook the same lesson.

The modules are compared as source, because no environment holds all the frameworks. A maintainer
who adds a framework is told here what is missing.
"""

import ast
import json
import re
from itertools import pairwise

import pytest

from helpers import frameworks, paths
from helpers.frameworks import NOTEBOOKS

FOLDER = paths.ROOT / "helpers" / "frameworks"
MODEL = "pytorch"

# What every notebook defines, beside the functions that it brings to the measured run (`Lesson`).
SHARED: tuple[str, ...] = ("images", "crop", "scaled", "initial", "model", "criterion")
SHARED += ("this_run", "to_network", "train_transform", "evaluation_transform")
SHARED += ("evaluate_pixels", "make_optimizer", "Replica")

LONGEST_CELL, HELPER_NAMES = 50, 12
LINES = {"tensorflow": 300, "keras": 300, "chainer": 300}
"""Lines of code that a notebook may have; the others 240. No blank lines, no comments."""


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


def described(module: str) -> dict[str, tuple[str, str]]:
    """Of each public name the docstring's first line, and its Args, Returns and Raises."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            parts = (ast.get_docstring(node) or "").split("\n\n")
            sections = [part for part in parts if part.startswith(("Args:", "Returns:", "Raises:"))]
            found[node.name] = parts[0], "\n\n".join(sections)
    return found


def test_modules_listed_are_those_there() -> None:
    there = {path.stem for path in FOLDER.glob("*.py") if "NAME" in public(path.stem)}
    assert there == set(NOTEBOOKS)


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_it_is_called_as_in_the_registry(module: str) -> None:
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    said = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    (row,) = (row for row in frameworks.ROWS if row.notebook == NOTEBOOKS[module])
    assert (said["NAME"], said["KERNEL"]) == (row.framework, row.kernel)


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
    found, model = described(module), described(MODEL)
    assert {name: found[name] for name in found if name in model} == {
        name: model[name] for name in model if name in found
    }, "the first line, Args, Returns and Raises are the same for all"


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_each_has_tests_of_its_own(module: str) -> None:
    assert (paths.ROOT / "tests" / "kernels" / f"test_{module}.py").exists()


def cells(notebook: str) -> list[str]:
    content = json.loads((paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    return ["".join(c["source"]) for c in content["cells"] if c["cell_type"] == "code"]


def lines(code: str) -> int:
    """Lines that are neither blank nor a comment."""
    stripped = map(str.strip, code.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in stripped)


def functions(notebook: str) -> dict[str, ast.FunctionDef]:
    """The notebook's own functions, by name."""
    body = ast.parse("\n".join(cells(notebook))).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def asked_for() -> dict[str, list[str]]:
    """What ``Lesson`` says of its functions: their names, and the arguments of each."""
    tree = ast.parse((paths.ROOT / "helpers" / "training" / "world.py").read_text(encoding="utf-8"))
    (lesson,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Lesson")
    said: dict[str, list[str]] = {}
    for field, text in pairwise(lesson.body):
        if isinstance(field, ast.AnnAssign) and "Callable" in ast.unparse(field.annotation):
            assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            match = re.match(r"``\(([^)]*)\)``", str(text.value.value))
            assert match, f"Lesson.{ast.unparse(field.target)} does not say its arguments"
            said[ast.unparse(field.target)] = match[1].split(", ")
    return said


THERE = [path.stem for path in paths.NOTEBOOKS.glob("*_MultiGPU*.ipynb")]
ROWS = sorted({*NOTEBOOKS.values(), *THERE})


@pytest.mark.parametrize("notebook", ROWS)
def test_notebooks_bring_the_same_functions_with_the_same_arguments(notebook: str) -> None:
    found, optional = functions(notebook), {"without_all_reduce", "all_reduce_alone"}
    optional |= {"ready", "sync_seconds", "stop", "scope", "load_alone"}
    for name, arguments in asked_for().items():
        if name not in found:
            assert name in optional, f"{notebook} does not define {name}({', '.join(arguments)})"
            continue
        given = [argument.arg for argument in found[name].args.args]
        assert given == arguments, f"{notebook}: {name}({', '.join(given)})"
    assert {"without_all_reduce", "all_reduce_alone"} & found.keys()


@pytest.mark.parametrize("notebook", ROWS)
def test_notebooks_use_the_shared_names(notebook: str) -> None:
    tree = ast.parse("\n".join(cells(notebook)))
    named = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    named |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    missing = [name for name in SHARED if name not in named]
    assert not missing, f"{notebook} does not define {missing}"


@pytest.mark.parametrize("notebook", ROWS)
def test_notebooks_stay_short(notebook: str) -> None:
    """A lesson is read: how long each is, its longest cell, and what it takes from helpers."""
    counts, family = [lines(code) for code in cells(notebook)], notebook.split("_")[0].lower()
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse("\n".join(cells(notebook))))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("helpers")
        for alias in node.names
    }
    print(
        f"{notebook}: {sum(counts)} lines of code, {max(counts)} in a cell, {len(imported)} names"
    )
    assert sum(counts) <= LINES.get(family, 240), f"{notebook}: {sum(counts)} lines of code"
    assert max(counts) <= LONGEST_CELL, f"{notebook}: a cell of {max(counts)} lines"
    assert len(imported) <= HELPER_NAMES, f"{notebook}: {sorted(imported)}"

"""Every framework's module has the same public functions, and every notebook too.

The modules are compared as source, because no environment holds all the frameworks. A maintainer
who adds a framework is told here what is missing.
"""

import ast
import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from helpers import frameworks, paths
from helpers.frameworks import NOTEBOOKS

FOLDER = paths.ROOT / "helpers" / "frameworks"
MODEL = "pytorch"
MODULES = sorted({row.module for row in frameworks.ROWS})
PARTS = ("keras_models",)
"""What several modules have for their own, and no row names."""

# What every notebook defines, beside the functions that it hands over (`TrainingFunctions`).
SHARED: tuple[str, ...] = ("images", "crop", "scaled", "initial", "model", "criterion")
SHARED += ("this_run", "to_network", "train_transform", "evaluation_transform")
SHARED += ("evaluate_pixels", "make_optimizer", "Replica")

LONGEST_CELL, HELPER_NAMES = 50, 12
LINES, SHORT = 300, {"PyTorch": 260, "MXNet": 260}
"""Lines of code that a notebook may have, without blank lines and comments, and those that can do
with fewer: their frameworks bring the network, the loader and the optimiser."""


def text_of(path: Path) -> str:
    """A file's text; where there is none, the test says so."""
    assert path.exists(), f"{path.relative_to(paths.ROOT)} is missing"
    return path.read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(text_of(FOLDER / f"{module}.py"))


def own_names(module: str) -> set[str]:
    """What a module defines itself."""
    nodes = tree_of(module).body
    named = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [n.target if isinstance(n, ast.AnnAssign) else n.targets[0]
               for n in nodes if isinstance(n, ast.Assign | ast.AnnAssign)]  # fmt: skip
    return named | {target.id for target in targets if isinstance(target, ast.Name)}


def public(module: str) -> dict[str, str]:
    """Public names of a module in their order, each with its signature as source."""
    tree = tree_of(module)
    found: dict[str, str] = {}
    theirs: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (other := taken_over(node)):
            theirs = public(other)
            found |= {name.name: theirs[name.name] for name in node.names}
        elif isinstance(node, ast.ClassDef) and node.bases and node.name in theirs:
            found[node.name] = theirs[node.name]
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
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


def taken_over(node: ast.ImportFrom) -> str | None:
    """The other framework's module whose names a module has for its own, as ChainerMN Chainer's."""
    package, _, other = (node.module or "").rpartition(".")
    known = other.removesuffix("_ranks") in MODULES or other in PARTS
    return other if package == "helpers.frameworks" and known else None


def signature(node: ast.FunctionDef) -> str:
    returns = ast.unparse(node.returns) if node.returns else "nothing"
    return f"({ast.unparse(node.args)}) -> {returns}"


def described(module: str) -> dict[str, tuple[str, str]]:
    """Of each public name the docstring's first line, and its Args, Returns and Raises."""
    tree = tree_of(module)
    found: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if module.endswith("_ranks") and isinstance(node, ast.ImportFrom):
            found |= described(other) if (other := taken_over(node)) else {}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            parts = (ast.get_docstring(node) or "").split("\n\n")
            sections = [part for part in parts if part.startswith(("Args:", "Returns:", "Raises:"))]
            found[node.name] = parts[0], "\n\n".join(sections)
    return found


def test_modules_listed_are_those_there() -> None:
    there = {
        path.stem for path in FOLDER.glob("*.py") if {"NAME", "KERNEL"} <= public(path.stem).keys()
    }
    unlisted, absent = sorted(there - set(MODULES)), sorted(set(MODULES) - there)
    assert not unlisted, f"no row of the registry names the modules {unlisted}"
    assert not absent, f"the registry names modules that are not in helpers/frameworks: {absent}"


def constants(module: str) -> dict[str, object]:
    """Names of a module with their values, its own or those of the module that it has them from."""
    found: dict[str, object] = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and (other := taken_over(node)):
            theirs = constants(other)
            found |= {name.name: theirs.get(name.name) for name in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            found[node.targets[0].id] = value
    return found


BACKENDS = [row.module for row in frameworks.ROWS if "backend" in row.parameters]


@pytest.mark.parametrize("module", sorted({*NOTEBOOKS, *BACKENDS}))
def test_it_is_called_as_in_the_registry(module: str) -> None:
    said = constants(module)
    row = next(row for row in frameworks.ROWS if row.module == module)
    found = said.get("NAME"), said.get("KERNEL")
    assert found == (row.framework, row.kernel), f"NAME and KERNEL of {module}.py are {found}"


@pytest.mark.parametrize("module", MODULES)
def test_same_functions_same_signatures_same_order(module: str) -> None:
    expected, found = public(MODEL), public(module)
    extra = [name for name in found if name not in expected and found[name] != "="]
    assert not extra, f"{module}.py has public functions that {MODEL}.py lacks: {extra}"
    missing = [name for name in expected if name not in found]
    assert not missing, f"{module}.py lacks {missing}, which {MODEL}.py has"
    other = [f"{name}{found[name]}" for name in expected if found[name] != expected[name]]
    assert not other, f"{module}.py has other signatures than {MODEL}.py: {other}"
    order = [name for name in found if name in expected and name in own_names(module)]
    wanted = [name for name in expected if name in order]
    assert order == wanted, f"the order in {module}.py is not that in {MODEL}.py: {order}"


@pytest.mark.parametrize("module", [*MODULES, *PARTS])
def test_public_functions_are_documented(module: str) -> None:
    tree = tree_of(module)
    assert ast.get_docstring(tree), f"{module}.py does not say what is peculiar"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{module}.{node.name} has no docstring"
    found, model = described(module), described(MODEL)
    other = [name for name in found if found[name] != model.get(name, found[name])]
    assert not other, (
        f"{module}.py: the docstring's first line, Args, Returns and Raises differ from "
        f"{MODEL}.py's: {other}"
    )


OVER_NODES = [row.module for row in frameworks.ROWS if not row.one_node_only]


@pytest.mark.parametrize("module", OVER_NODES)
def test_ranks_bring_the_same_function(module: str) -> None:
    """What the fairness check asks of ``<module>_ranks.py``."""
    expected, found = public(f"{MODEL}_ranks"), public(f"{module}_ranks")
    assert "gradients" in found, f"{module}_ranks.py lacks gradients"
    # The handles of devices are each framework's own.
    assert found["gradients"].replace("Sequence[str]", "Sequence[Any]") == expected["gradients"]
    assert described(f"{module}_ranks")["gradients"] == described(f"{MODEL}_ranks")["gradients"]


@pytest.mark.parametrize("module", MODULES)
def test_each_has_tests_of_its_own(module: str) -> None:
    assert "def test_" in text_of(paths.ROOT / "tests" / "kernels" / f"test_{module}.py")


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_each_has_a_bare_loop(module: str) -> None:
    """What the benchmarks ``step.py`` and ``compute.py`` time the notebook's step against."""
    loop = f"benchmarks/bare_loops/{module}.py"
    tree = ast.parse(text_of(paths.ROOT / loop))
    names = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)
             and isinstance(node.target, ast.Name)}  # fmt: skip
    names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    missing = {"OPTIONS", "SLOW", "make"} - names
    assert not missing, f"{loop} does not define {sorted(missing)}"


def cells(notebook: str) -> list[str]:
    content = json.loads(text_of(paths.NOTEBOOKS / f"{notebook}.ipynb"))
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
    """What ``TrainingFunctions`` says of its functions: their names, and the arguments of each."""
    tree = ast.parse((paths.ROOT / "helpers" / "training" / "world.py").read_text(encoding="utf-8"))
    (functions,) = (
        n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TrainingFunctions"
    )
    said: dict[str, list[str]] = {}
    for field, text in pairwise(functions.body):
        if isinstance(field, ast.AnnAssign) and "Callable" in ast.unparse(field.annotation):
            assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            match = re.match(r"``\(([^)]*)\)``", str(text.value.value))
            assert match, (
                f"TrainingFunctions.{ast.unparse(field.target)} does not say its arguments"
            )
            said[ast.unparse(field.target)] = match[1].split(", ")
    return said


THERE = [row.notebook for row in frameworks.ROWS]
THERE += [path.stem for path in paths.NOTEBOOKS.glob("*_Multi*.ipynb")]
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
    assert {"without_all_reduce", "all_reduce_alone"} & found.keys(), (
        f"{notebook} defines neither without_all_reduce nor all_reduce_alone"
    )


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
    """A notebook is read: how long it is, its longest cell, and what it takes from helpers."""
    counts = [lines(code) for code in cells(notebook)]
    limit = SHORT.get(notebook.split("_")[0], LINES)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse("\n".join(cells(notebook))))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("helpers")
        for alias in node.names
    }
    print(
        f"{notebook}: {sum(counts)} lines of code, {max(counts)} in a cell, {len(imported)} names"
    )
    assert sum(counts) <= limit, f"{notebook}: {sum(counts)} lines of code, {limit} are allowed"
    assert max(counts) <= LONGEST_CELL, f"{notebook}: a cell of {max(counts)} lines"
    assert len(imported) <= HELPER_NAMES, f"{notebook}: {sorted(imported)}"

"""Every framework's module has the functions of the interface, and every notebook the same ones.

The modules are read as source, because no environment holds all the frameworks. A maintainer who
adds a framework is told here what is missing.
"""

import ast
import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from programs import NAMES, is_program, launches

from helpers import frameworks, paths
from helpers.frameworks import NOTEBOOKS, interface

if TYPE_CHECKING:  # mypy compares them with the interface, too
    from helpers.frameworks import chainer, chainermn, jax, mxnet, pytorch, tensorflow

    _typed: list[interface.Framework] = [chainer, chainermn, jax, mxnet, pytorch, tensorflow]
    _of_programs: list[interface.Notebook] = [chainer, mxnet, pytorch, tensorflow]
    _launched: list[interface.Launched] = [pytorch]

FOLDER = paths.ROOT / "helpers" / "frameworks"
MODULES = sorted({row.module for row in frameworks.ROWS})
PARTS = ("horovod_ranks", "keras_models", "pytorch_checks", "pytorch_state", "chainer_checks")
PARTS += ("chainer_state", "mxnet_checks", "mxnet_state")
PARTS += ("tensorflow_checks", "tensorflow_state")
"""What several modules have for their own, and no row names."""
OVER_NODES = {row.module for row in frameworks.ROWS if not row.one_node_only}
OF_PROGRAMS = {row.module for row in frameworks.ROWS if is_program(row.notebook)}
LAUNCHING = {row.module for row in frameworks.ROWS if launches(row.notebook)}

# What a notebook defines that hands its functions over (`TrainingFunctions`), beside these.
SHARED: tuple[str, ...] = ("images", "crop", "scaled", "initial", "model", "criterion")
SHARED += ("this_run", "to_network", "train_transform", "evaluation_transform")
SHARED += ("evaluate_pixels", "make_optimizer", "Replica")

LONGEST_CELL, HELPER_NAMES = 40, 12
LINES = 300
"""Lines of code that such a notebook may have, without blank lines and comments."""


def text_of(path: Path) -> str:
    """A file's text; where there is none, the test says so."""
    assert path.exists(), f"{path.relative_to(paths.ROOT)} is missing"
    return path.read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(text_of(FOLDER / f"{module}.py"))


def own_functions(module: str) -> dict[str, ast.FunctionDef]:
    """What a module defines itself, the functions of its classes too."""
    found = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found |= {f"{node.name}.{each.name}": each for each in methods}
    return {name: node for name, node in found.items() if "._" not in f".{name}"}


def taken_from(node: ast.ImportFrom) -> str | None:
    """The module whose names another one has for its own, as ChainerMN has Chainer's."""
    package, _, other = (node.module or "").rpartition(".")
    return other if package == "helpers.frameworks" and other in (*MODULES, *PARTS) else None


def functions_of(module: str) -> dict[str, ast.FunctionDef]:
    """What a module defines, or has from another one of this folder."""
    found: dict[str, ast.FunctionDef] = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and (other := taken_from(node)):
            named = {alias.name for alias in node.names}
            theirs = functions_of(other).items()
            found |= {name: f for name, f in theirs if named & {"*", name.partition(".")[0]}}
    return found | own_functions(module)


def signature(node: ast.FunctionDef) -> str:
    named = [argument for argument in node.args.args if argument.arg != "self"]
    node.args.args = named
    returns = ast.unparse(node.returns) if node.returns else "None"
    if any(ast.unparse(each) == "contextmanager" for each in node.decorator_list):
        returns = returns.replace("Iterator[", "AbstractContextManager[", 1)
    return f"({ast.unparse(node.args)}) -> {returns}"


def interface_of(name: str) -> dict[str, ast.FunctionDef]:
    return {
        each.removeprefix(f"{name}."): node
        for each, node in own_functions("interface").items()
        if each.startswith(f"{name}.") and not node.decorator_list
    }


FRAMEWORK = interface_of("Framework")
LOSSES = {f"DeviceLosses.{name}": node for name, node in interface_of("Losses").items()}
RANKS = interface_of("OverNodes")
POOL = interface_of("WithPool")
NOTEBOOK = interface_of("Notebook")
APART = interface_of("Apart")
LAUNCHED = interface_of("Launched")
PLACED, READS = interface_of("Placed"), interface_of("Reads")


def test_modules_listed_are_those_there() -> None:
    there = {
        path.stem
        for path in FOLDER.glob("*.py")
        if {"NAME", "KERNEL"} <= constants(path.stem).keys()
    }
    unlisted, absent = sorted(there - set(MODULES)), sorted(set(MODULES) - there)
    assert not unlisted, f"no row of the registry names the modules {unlisted}"
    assert not absent, f"the registry names modules that are not in helpers/frameworks: {absent}"


def constants(module: str) -> dict[str, object]:
    """Names of a module with their values, its own or those of the module that it has them from."""
    found: dict[str, object] = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and (other := taken_from(node)):
            named = {alias.name for alias in node.names}
            theirs = constants(other).items()
            found |= {name: value for name, value in theirs if named & {"*", name}}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            found[node.targets[0].id] = value
    return found


@pytest.mark.parametrize("module", sorted(NOTEBOOKS))
def test_it_is_called_as_in_the_registry(module: str) -> None:
    said = constants(module)
    row = next(row for row in frameworks.ROWS if row.module == module)
    found = said.get("NAME"), said.get("KERNEL")
    assert found == (row.framework, row.kernel), f"NAME and KERNEL of {module}.py are {found}"


@pytest.mark.parametrize("module", MODULES)
def test_it_has_the_functions_of_the_interface(module: str) -> None:
    found, own = functions_of(module), own_functions(module)
    known = FRAMEWORK | LOSSES | RANKS | POOL | NOTEBOOK | APART | LAUNCHED | PLACED | READS
    extra = [name for name in own if name not in known]
    assert not extra, f"{module}.py has public functions that interface.py lacks: {extra}"
    ranks = {"rank_gradients": RANKS["rank_gradients"]} if module in OVER_NODES else {}
    of_program = NOTEBOOK if module in OF_PROGRAMS else {}
    launched = LAUNCHED if module in LAUNCHING else {}
    wanted = FRAMEWORK | LOSSES | ranks | of_program | launched
    missing = [name for name in wanted if name not in found]
    assert not missing, f"{module}.py lacks {missing}, which interface.py has"
    other = [
        f"{name}{signature(found[name])}"
        for name in wanted
        if signature(found[name]) != signature(wanted[name])
    ]
    assert not other, f"{module}.py has other signatures than interface.py: {other}"
    order = [name for name in own if name in FRAMEWORK]
    usual = [name for name in FRAMEWORK if name in own]
    moved = [name for name, other in zip(order, usual, strict=True) if name != other]
    assert not moved, f"{module}.py: these are not in the order of interface.py: {moved}"


@pytest.mark.parametrize("module", [*MODULES, *PARTS])
def test_it_documents_what_is_peculiar_to_it(module: str) -> None:
    """A function's own docstring says what differs from the interface, which describes the rest."""
    assert ast.get_docstring(tree_of(module)), f"{module}.py does not say what is peculiar"
    for name, node in (FRAMEWORK | RANKS | LOSSES | NOTEBOOK | APART | LAUNCHED).items():
        own = own_functions(module).get(name)
        said = None if own is None else ast.get_docstring(own)
        told = str(ast.get_docstring(node)).split("\n")[0]
        assert not said or told not in said, f"{module}.{name} repeats interface.py"


def test_the_interface_describes_each_function() -> None:
    described = FRAMEWORK | RANKS | LOSSES | NOTEBOOK | APART | LAUNCHED
    assert all(ast.get_docstring(node) for node in described.values())


@pytest.mark.parametrize("module", MODULES)
def test_each_has_tests_of_its_own(module: str) -> None:
    assert "def test_" in text_of(paths.ROOT / "tests" / "kernels" / f"test_{module}.py")


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_each_has_a_bare_loop(module: str) -> None:
    """What the benchmark ``step.py`` times the notebook's step against."""
    assert "def make(" in text_of(paths.ROOT / "benchmarks" / "bare_loops" / f"{module}.py")


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


ROWS = [name for name in NAMES if not is_program(name)]


@pytest.mark.parametrize("notebook", ROWS)
def test_notebooks_bring_the_same_functions_with_the_same_arguments(notebook: str) -> None:
    found, optional = functions(notebook), {"without_all_reduce", "all_reduce_alone"}
    optional |= {"ready", "stop", "scope", "load_alone"}
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
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse("\n".join(cells(notebook))))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("helpers")
        for alias in node.names
    }
    print(
        f"{notebook}: {sum(counts)} lines of code, {max(counts)} in a cell, {len(imported)} names"
    )
    assert sum(counts) <= LINES, f"{notebook}: {sum(counts)} lines of code, {LINES} are allowed"
    assert max(counts) <= LONGEST_CELL, f"{notebook}: a cell of {max(counts)} lines"
    assert len(imported) <= HELPER_NAMES, f"{notebook}: {sorted(imported)}"

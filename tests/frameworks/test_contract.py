"""Every framework's module has the functions of the interface, and every notebook the same ones.

The modules are read as source, because no environment holds all the frameworks. A maintainer who
adds a framework is told here what is missing.
"""

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from programs import launches

from helpers import frameworks, paths
from helpers.frameworks import NOTEBOOKS, interface

if TYPE_CHECKING:  # mypy compares them with the interface, too
    from helpers.frameworks import chainer, chainermn, jax, mxnet, pytorch, tensorflow

    _typed: list[interface.Framework] = [chainer, chainermn, jax, mxnet, pytorch, tensorflow]

FOLDER = paths.ROOT / "helpers" / "frameworks"
MODULES = sorted({row.module for row in frameworks.ROWS})
OVER_NODES = {row.module for row in frameworks.ROWS if not row.one_node_only}
LAUNCHING = {row.module for row in frameworks.ROWS if launches(row.notebook)}


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
    family = other.partition("_")[0]  # what several modules have for their own, no row names
    return other if package == "helpers.frameworks" and family in (*MODULES, "horovod") else None


def names_of(module: str) -> dict[str, Any]:
    """Functions and constants' values that a module defines, or has from another one here."""
    found: dict[str, Any] = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and (other := taken_from(node)):
            named = {alias.name for alias in node.names}
            theirs = names_of(other).items()
            found |= {name: each for name, each in theirs if named & {"*", name.partition(".")[0]}}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            found[node.targets[0].id] = value
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


FRAMEWORK, OPTIONAL = interface_of("Framework"), interface_of("Optional")


def test_modules_listed_are_those_there() -> None:
    files = [path.stem for path in FOLDER.glob("*.py")]
    there = {name for name in files if {"watch", "list_devices"} <= names_of(name).keys()}
    unlisted, absent = sorted(there - set(MODULES)), sorted(set(MODULES) - there)
    assert not unlisted, f"no row of the registry names the modules {unlisted}"
    assert not absent, f"the registry names modules that are not in helpers/frameworks: {absent}"


@pytest.mark.parametrize("module", MODULES)
def test_it_has_the_functions_of_the_interface(module: str) -> None:
    found, own = names_of(module), own_functions(module)
    known = FRAMEWORK | OPTIONAL
    extra = [name for name in own if name not in known]
    assert not extra, f"{module}.py has public functions that interface.py lacks: {extra}"
    needed = ["rank_gradients"] * (module in OVER_NODES)
    needed += ["make_current", "rendezvous", "gather"] * (module in LAUNCHING)
    wanted = FRAMEWORK | {name: OPTIONAL[name] for name in needed}
    missing = [name for name in wanted if name not in found]
    assert not missing, f"{module}.py lacks {missing}, which interface.py has"
    other = [
        f"{name}{signature(found[name])}"
        for name in wanted
        if signature(found[name]) != signature(wanted[name])
    ]
    assert not other, f"{module}.py has other signatures than interface.py: {other}"


@pytest.mark.parametrize("module", MODULES)
def test_each_has_tests_of_its_own(module: str) -> None:
    assert "def test_" in text_of(paths.ROOT / "tests" / "kernels" / f"test_{module}.py")


@pytest.mark.parametrize("module", NOTEBOOKS)
def test_each_has_a_bare_loop(module: str) -> None:
    """What the benchmark ``step.py`` times the notebook's step against."""
    assert "def make(" in text_of(paths.ROOT / "benchmarks" / "bare_loops" / f"{module}.py")

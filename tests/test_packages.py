"""The packages of helpers/: few files at the top, imports one way, and no circle."""

import ast
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from helpers import paths

FOLDER = paths.ROOT / "helpers"
TOP, REGISTRY = "top", "registry"
PACKAGES = (
    *(TOP, REGISTRY, "recipe", "networks", "all_reduce", "frameworks", "launch", "record"),
    *("fairness", "training", "run", "results", "runner", "commands", "__main__"),
)
"""Each may import those before it."""
MODULES_OF_THEIR_OWN = ("run", "__main__")
"""The packages that are one module: the library of a notebook, and the program of a terminal."""
FRONT = ("helpers", "helpers.run")
"""``helpers.begin`` is where a notebook enters: it alone imports a later package."""


def module_of(path: Path) -> str:
    parts = path.relative_to(paths.ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_of(path): path
    for package in ("helpers", "data_prep", "gpumon")
    for path in sorted((paths.ROOT / package).rglob("*.py"))
}


@cache
def imports_of(module: str) -> frozenset[str]:
    """What a module imports, within functions and for a type checker alone too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are written from the top"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & MODULES.keys()) or {node.module}
    return frozenset(found)


def package_of(module: str) -> str:
    if module == "helpers.frameworks":  # the list alone, which knows none of the modules beside it
        return REGISTRY
    second = module.split(".")[1] if "." in module else TOP
    return second if second in PACKAGES else TOP


def test_every_package_has_its_place_and_says_what_is_in_it() -> None:
    packages = {path.relative_to(FOLDER).parts[0] for path in FOLDER.rglob("*/*.py")}
    assert packages == set(PACKAGES) - {TOP, REGISTRY, *MODULES_OF_THEIR_OWN}
    for path in FOLDER.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_every_package_is_in_an_installation() -> None:
    settings = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    there = {
        module_of(path)
        for folder in ("helpers", "data_prep")
        for path in (paths.ROOT / folder).rglob("__init__.py")
    }
    assert set(settings["tool"]["setuptools"]["packages"]) == there


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[0] == "helpers"])
def test_imports_go_one_way(module: str) -> None:
    own = PACKAGES.index(package_of(module))
    ours = {name for name in imports_of(module) if name.split(".")[0] == "helpers"}
    later = {name for name in ours if PACKAGES.index(package_of(name)) > own}
    assert not later or (module, *later) == FRONT


def test_no_imports_go_in_a_circle() -> None:
    """Neither within functions nor for a type checker: else a CycleError names them."""
    TopologicalSorter({module: imports_of(module) & MODULES.keys() for module in MODULES}).prepare()


@pytest.mark.parametrize("package", ["data_prep", "gpumon"])
def test_they_know_nothing_of_helpers_nor_of_each_other(package: str) -> None:
    others = {"data_prep", "gpumon", "helpers"} - {package}
    for module in MODULES:
        found = {name.split(".")[0] for name in imports_of(module)}
        assert module.split(".")[0] != package or not found & others, module

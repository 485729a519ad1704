"""Modules of a package import each other in one direction."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = [
    "gpumon",
    "data_prep",
    *sorted(f"helpers/{path.parent.name}" for path in ROOT.glob("helpers/*/__init__.py")),
]


def imports_of(package: Path) -> dict[str, set[str]]:
    """The modules of a package, and which of them each imports, within functions too."""
    files = {}
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(ROOT).with_suffix("")
        files[".".join(place.parts).removesuffix(".__init__")] = file
    found: dict[str, set[str]] = {}
    for name, file in files.items():
        wanted = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file}: imports are absolute here"
                # A name may be a module of a package, or what the package itself defines.
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {each if each in files else str(node.module) for each in full}
        found[name] = wanted & files.keys() - {name}
    return found


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other."""

    def reached_from(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = imports[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reach = {name: reached_from(name) for name in imports}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other])
        for name in imports
        if name in reach[name]
    }
    return sorted(sorted(group) for group in groups)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    assert circles(imports_of(ROOT / package)) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]

"""The architecture page: its table and its arrows say what the code imports."""

import re

from imports import MODULES, imports_of

from helpers import paths

PAGE = paths.ROOT / "docs" / "architecture.md"
ROW = re.compile(r"^\| `(\w+)` \| .* \| (.*) \|$", re.MULTILINE)
ARROW = re.compile(r"(\w+) ──▶ (?=(\w+))")


def packages() -> set[str]:
    return {path.parent.name for path in (paths.ROOT / "helpers").glob("*/__init__.py")}


def package_of(module: str) -> str | None:
    """The package of ``helpers`` that a module is in, or ``data_prep``, or ``gpumon``."""
    first, *rest = module.split(".")
    if first == "helpers":
        return rest[0] if rest and rest[0] in packages() else "top"
    return first if first in MODULES else None


def imports(package: str) -> set[str]:
    """The other packages that a package imports."""
    modules = [module for module in MODULES if package_of(module) == package]
    found = {package_of(name) for module in modules for name in imports_of(module)}
    return {name for name in found if name} - {package}


def wrong(page: str) -> list[str]:
    """What the page says of the packages that is not so."""
    said = {name: set(re.findall(r"`(\w+)`", told)) for name, told in ROW.findall(page)}
    there = {name: imports(name) for name in packages()}
    found = [f"{name}: the page says {said.get(name)}" for name in sorted(there) if
             there[name] != said.get(name)]  # fmt: skip
    for one, other in ARROW.findall(page):
        if {one, other} <= there.keys() and other not in there[one]:
            found.append(f"{one} does not import {other}")
    return found


def test_the_page_says_what_the_code_imports() -> None:
    found = wrong(PAGE.read_text(encoding="utf-8"))
    told = "\n".join(f"{name}: {', '.join(f'`{o}`' for o in sorted(imports(name)))}"
                     for name in sorted(packages()))  # fmt: skip
    assert not found, "\n".join(found) + "\nthe code says:\n" + told


def test_every_module_of_the_monitor_stands_in_one_row() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("## Inside `gpumon`")[2].partition("\n## ")[0]
    told = re.findall(r"`(\w+)`", table)
    there = [path.stem for path in (paths.ROOT / "gpumon").rglob("*.py")]
    assert sorted(told) == sorted(name for name in there if name != "__init__")

"""What every notebook must be before anybody runs it: clean, in its kernel, in the fixed order."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from helpers.frameworks import ROWS, rows_of
from helpers.runner import plans

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
FRAMEWORK_NOTEBOOKS = list(plans.framework_notebooks())
ALL = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
STUDIES = [name for name in ALL if name.startswith("Study_")]
KERNELS = {row.notebook: rows_of(row.notebook)[0].kernel for row in ROWS}


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    return content


def code(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def parameters(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for c in code(content) if "parameters" in c["metadata"].get("tags", [])]


@pytest.mark.parametrize("name", ALL)
def test_no_outputs_are_committed(name: str) -> None:
    for cell in code(read(name)):
        assert cell["outputs"] == [] and cell["execution_count"] is None, cell["source"]


@pytest.mark.parametrize("name", ALL)
def test_it_is_short_and_ends_with_a_newline(name: str) -> None:
    assert len(read(name)["cells"]) <= 37
    if name == "Compare":
        assert sum(len(cell["source"]) for cell in code(read(name))) <= 40
    assert (NOTEBOOKS / f"{name}.ipynb").read_text("utf-8").endswith("}\n")


@pytest.mark.parametrize("name", ALL)
def test_it_names_its_kernel(name: str) -> None:
    metadata = read(name)["metadata"]
    framework = metadata.get("rosetta", {}).get("framework", "")
    expected = KERNELS.get(name, "lab")
    if name in STUDIES:  # a study runs in any kernel, and is no run of a framework
        assert framework == "" and metadata["kernelspec"]["name"] in KERNELS.values()
    else:
        assert metadata["kernelspec"]["name"] == expected
    assert metadata["kernelspec"]["language"] == "python"


@pytest.mark.parametrize("name", ALL)
def test_nbmake_waits_half_an_hour_for_a_cell(name: str) -> None:
    """Not its own five minutes."""
    assert read(name)["metadata"]["execution"] == {"timeout": 1800}


@pytest.mark.parametrize("name", ALL)
def test_it_has_one_cell_of_parameters(name: str) -> None:
    (cell,) = parameters(read(name))
    assigned = [node.targets[0] for node in ast.parse("".join(cell["source"])).body]  # type: ignore[attr-defined]
    if name in STUDIES:  # what `make test` shrinks must be a parameter, or it shrinks nothing
        mocked = cell["metadata"].get("nbmake", {}).get("mock", {})
        assert set(mocked) <= {target.id for target in assigned}
        return
    given = [getattr(target, "id", "") for target in assigned]
    if name == "Compare":
        assert given == ["runs"]
        return
    # Any other parameter can be a line of its own.
    assert given[:4] == ["recipe", "devices", "precision", "epochs"] and len(given) <= 6


EPOCHS = {"mock": {"epochs": 2}}
"""What `make test` trains of a framework: enough for an AUC that tells whether it learned (with the
demo 0.66 to 0.69 after two epochs). `compare` reads none of this."""


@pytest.mark.parametrize("name", FRAMEWORK_NOTEBOOKS)
def test_all_frameworks_are_tested_with_as_many_epochs(name: str) -> None:
    (cell,) = parameters(read(name))
    assert cell["metadata"]["nbmake"] == EPOCHS


@pytest.mark.parametrize("name", FRAMEWORK_NOTEBOOKS)
def test_the_notebook_has_its_name_from_its_file(name: str) -> None:
    source = "\n\n".join("".join(cell["source"]) for cell in code(read(name)))
    assert "helpers.begin(" in source and name not in source


@pytest.mark.parametrize("name", FRAMEWORK_NOTEBOOKS)
def test_its_name_begins_with_its_framework(name: str) -> None:
    framework = read(name)["metadata"]["rosetta"]["framework"].replace(" ", "_")
    others = f"{framework}MN_MultiNode", f"{framework}_Horovod"
    right = name.startswith(f"{framework}_MultiGPU") or name in others
    assert right, f"{name}: call it {framework}_MultiGPU, or as {framework} in its metadata says"


@pytest.mark.parametrize("name", FRAMEWORK_NOTEBOOKS)
def test_its_last_cell_finishes_the_run(name: str) -> None:
    assert "".join(code(read(name))[-1]["source"]) == "run.report()"


def set_outside(source: str) -> set[str]:
    """The names that a cell sets in the notebook itself, not inside its functions and classes."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif not isinstance(node, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.DictComp):
            waiting += ast.iter_child_nodes(node)
    return found


@pytest.mark.parametrize("name", FRAMEWORK_NOTEBOOKS)
def test_no_other_cell_sets_a_parameter(name: str) -> None:
    """Else a run would find it changed since it began, and stop."""
    (cell,) = parameters(read(name))
    magic = re.compile(r"^%.*$", re.MULTILINE)
    texts = [magic.sub("", "".join(each["source"])) for each in code(read(name)) if each != cell]
    assert not set_outside("".join(cell["source"])) & set_outside("\n".join(texts))


def names_in(tree: ast.Module) -> set[str]:
    """All that a module defines or imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            file = module(node.module or "")
            found |= names_of(file) if file else set()
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return found


def module(name: str) -> Path | None:
    place = NOTEBOOKS.parent / name.replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return file if file.exists() else None


@cache
def names_of(file: Path) -> set[str]:
    """As above, of a file: many notebooks take from the same."""
    return names_in(ast.parse(file.read_text("utf-8")))


def missing_names(source: str) -> list[str]:
    """Names that the code takes from this project's packages and that are not there."""
    tree, bound, missing = ast.parse(source), {}, []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        if node.module.split(".")[0] not in ("helpers", "gpumon", "data_prep"):
            continue
        file = module(node.module)
        known = names_of(file) if file else set()
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            if module(inner):
                bound[alias.asname or alias.name] = inner
            elif alias.name not in known:
                missing.append(inner)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            inside = bound.get(node.value.id)
            file = module(inside) if inside else None
            if file and node.attr not in names_of(file):
                missing += [] if module(f"{inside}.{node.attr}") else [f"{inside}.{node.attr}"]
    return missing


@pytest.mark.parametrize("name", ALL)
def test_what_it_takes_from_our_packages_is_there(name: str) -> None:
    cells = ("".join(cell["source"]) for cell in code(read(name)))
    magic = re.compile(r"^%.*$", re.MULTILINE)
    assert missing_names(magic.sub("", "\n".join(cells))) == []

"""A framework's notebook is the program that trains: short, whole, marked."""

import ast
import re

import pytest
from multi_gpu_lines import MARK, code, code_lines, marked_lines, sources
from programs import PROGRAMS, definitions

from helpers.frameworks import ROWS

LINES, WORDS, LIBRARY = 150, 700, 24
"""At most so many lines of code, words of prose, and names of the library."""
SECTIONS = [
    "1. How this framework uses several devices",
    "2. Parameters and recipe",
    "3. Data and loaders",
    "4. Network, loss, optimiser",
    "5. Training step and evaluation",
    "6. Check, train, test, measure",
    "7. Where the time went",
    "8. Exercises",
]
FRAMEWORKS = {row.notebook: row.framework for row in ROWS}
FIRST = "PyTorch_MultiGPU"
"""What others are compared with."""
SAME_EVERYWHERE = ("augment", "centre", "metric")
SAME_IN_A_FRAMEWORK = ("Images", "to_network", "build_model", "train_steps")
FOR_SEVERAL = ("dist.", "DistributedDataParallel", "no_sync", "parallel_apply", "replicate(")
"""What no line without a mark may name."""


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def named(call: ast.Call, name: str) -> bool:
    return ast.unparse(call.func) == name


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_short(name: str) -> None:
    lines = code_lines(code(name))
    words = sum(len(text.split()) for kind, text in sources(name) if kind == "markdown")
    library = set(re.findall(r"\b(?:run|helpers)\.(\w+)", code(name)))
    assert lines <= LINES, f"{name}: {lines} lines of code"
    assert words <= WORDS, f"{name}: {words} words"
    assert len(library) <= LIBRARY, f"{name}: {sorted(library)}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_has_the_sections_that_all_have(name: str) -> None:
    text = "\n".join(text for kind, text in sources(name) if kind == "markdown")
    assert re.findall(r"^## (.+)$", text, re.M) == SECTIONS
    exercises = text.partition(f"## {SECTIONS[-1]}\n")[2]
    assert len(re.findall(r"^\d\. ", exercises, re.M)) == 3, "three exercises"


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_trains_and_evaluates_in_its_own_lines(name: str) -> None:
    tree = ast.parse(code(name))
    loops = [node.iter for node in ast.walk(tree) if isinstance(node, ast.For)]
    assert any(isinstance(each, ast.Call) and named(each, "run.epochs") for each in loops)
    assert "train_step" in definitions(name) or ".fit(" in code(name)
    assert any(named(call, "roc_auc_score") for call in calls(tree))
    assert "r.learning_rate * " in code(name), "the rate's scaling with the devices"
    (measured,) = (call for call in calls(tree) if named(call, "run.measure"))
    measurements = {keyword.arg for keyword in measured.keywords}
    assert measurements - {"all_reduce", "no_all_reduce"} == {"files", "synthetic", "loader"}
    assert len(measurements) == 4, "several devices without all-reduce, or the all-reduce alone"
    launched = any(named(call, "run.launch") for call in calls(tree))
    assert launched == ("main" in definitions(name)), "what several processes run is launched"


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_that_one_device_would_not_need_are_marked(name: str) -> None:
    assert marked_lines(name)
    for line in code(name).splitlines():
        used = [word for word in FOR_SEVERAL if word in line.partition("#")[0]]
        assert not used or MARK in line, f"{name}: {line.strip()}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_functions_have_one_text(name: str) -> None:
    names = [*SAME_EVERYWHERE]
    if FRAMEWORKS[name] == FRAMEWORKS[FIRST]:
        names += SAME_IN_A_FRAMEWORK
    here, there = definitions(name), definitions(FIRST)
    assert [each for each in names if here.get(each) != there[each]] == []

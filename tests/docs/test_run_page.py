"""What a notebook calls, and what several GPUs cost it in code, stand on a page each."""

import re
from dataclasses import fields
from inspect import signature

import multi_gpu_lines
from test_reference_tables import in_code, rows

from helpers import paths
from helpers.run import Run
from helpers.training.measuring import TURNS
from helpers.training.notebook_recipe import NotebookRecipe, Part
from helpers.training.run_state import RunState

PAGE = "run.md"
CALLS = ("Processes, devices, weights", "Check, train, test, measure")


def listed(*headings: str) -> list[str]:
    """The names, or calls, in the first column of the tables under these headings."""
    return [each for heading in headings for row in rows(PAGE, heading) for each in in_code(row[0])]


def own(kind: type) -> set[str]:
    """The public names that a class defines."""
    return {name for name in {*vars(kind), *kind.__annotations__} if not name.startswith("_")}


def test_it_has_every_name_of_run() -> None:
    calls = {call.partition("(")[0]: call for call in listed(*CALLS) if "(" in call}
    of_library = {*vars(RunState), "loop", "initial"}  # what Run adds is the notebook's
    assert {*listed("Values"), *calls} >= own(Run) - of_library
    for name, call in calls.items():
        if (function := getattr(Run, name, None)) is None:
            continue  # of the notebook's own functions
        given = re.findall(r"[(,] ?(\w+)", call)
        named = [each for each in signature(function).parameters if each != "self"]
        assert given == (list(TURNS) if named == ["turns"] else named), call


def test_it_has_no_name_that_is_not_there() -> None:
    named = {call.partition("(")[0] for call in listed("Values", *CALLS)}
    assert named - own(Run) == {"build_model", "make_replica", "train_steps", "predict"} | {
        "make_loader"
    }


def test_it_has_every_name_of_a_part_and_of_the_recipe() -> None:
    of_part = {re.sub(r"^part\.|\(.*", "", name) for name in listed("A part")}
    assert of_part == {"len", *own(Part), *(field.name for field in fields(Part))}
    of_recipe = {name.partition("(")[0] for name in listed("The recipe")}
    assert of_recipe == own(NotebookRecipe)


def test_the_lines_for_several_gpus_are_those_of_the_notebooks() -> None:
    """Else run: python tools/multi_gpu_lines.py > docs/multi-gpu-lines.md"""
    text = (paths.ROOT / "docs" / "multi-gpu-lines.md").read_text(encoding="utf-8")
    assert text == f"{multi_gpu_lines.page()}\n"

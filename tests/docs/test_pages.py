"""The reference pages list exactly what the code has, and their examples do what they show."""

import contextlib
import io
import json
import re
import tomllib
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import multi_gpu_lines
import pytest
from test_docs import BLOCK

from data_prep.readers.column_mapping import ColumnMapping, read_mapping
from helpers import paths
from helpers.recipe import Recipe, tables
from helpers.results import regression
from helpers.run import Run
from helpers.training.measuring import MEASUREMENTS
from helpers.training.notebook_recipe import NotebookRecipe, Split
from helpers.training.run_state import RunState

DOCS = paths.ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(name: str, kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page(name)) if found == kind]


def section(name: str, heading: str) -> str:
    return re.split(r"\n##+ ", re.split(rf"\n##+ {heading}\n", page(name))[1])[0]


def rows(name: str, *headings: str) -> list[list[str]]:
    """The cells of the first table below each heading of a page, without its head."""
    found = []
    for heading in headings:
        lines = [line for line in section(name, heading).splitlines() if line.startswith("| ")]
        found += [[cell.strip() for cell in line.split(" | ")] for line in lines[1:]]
    return found


def in_code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def listed(name: str, *headings: str) -> list[str]:
    """The names, or calls, in the first column of the tables under these headings."""
    return [each for row in rows(name, *headings) for each in in_code(row[0])]


def test_the_example_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(paths.ROOT)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(blocks("report", "python")[0], {})
    assert blocks("report", "text")[0] == said.getvalue()


# examples of published runs

DEMO = DOCS / "results" / "cpu-2-cores" / "demo"
PUBLISHED = [DEMO / f"PyTorch_MultiGPU-2x-seed{seed}" for seed in range(3)]


def test_the_example_of_a_difference_is_that_of_published_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``after`` has 12 % longer times, as the page says."""
    for side, factor in (("before", 1), ("after", 1.12)):
        for run in PUBLISHED:
            content = json.loads((run / "record.json").read_text(encoding="utf-8"))
            content["training"]["seconds"] *= factor
            (tmp_path / side / run.name).mkdir(parents=True)
            (tmp_path / side / run.name / "record.json").write_text(json.dumps(content))
    assert regression.check(tmp_path / "before", tmp_path / "after") == 1
    printed = capsys.readouterr().out.splitlines()
    shown = [line for line in blocks("experiments", "text")[-1].splitlines() if line != "..."]
    assert len(shown) > 4 and [line for line in shown if line not in printed] == []


def test_the_example_of_a_conclusion_is_that_of_a_published_run() -> None:
    notebook = json.loads((PUBLISHED[-1] / "notebook.ipynb").read_text(encoding="utf-8"))
    said = [out.get("text", "") for cell in notebook["cells"] for out in cell.get("outputs", [])]
    printed = " ".join("".join("".join(text) for text in said).split())
    assert " ".join(blocks("time-attribution", "text")[0].split()) in printed


# recipes.md, many-machines.md


def keys_of_recipes() -> dict[str, list[str]]:
    """By table, the keys of the page on recipes."""
    found: dict[str, list[str]] = {}
    table = ""
    for row in rows("recipes", "Keys"):
        table = in_code(row[0])[0].strip("[]") if in_code(row[0]) else table
        found.setdefault(table, []).extend(in_code(row[1]))
    return found


def test_the_pages_on_recipes_and_slurm_have_every_key() -> None:
    found = keys_of_recipes()
    assert found.keys() == {*tables.TABLES, "sweep"}
    for table in tables.TABLES.keys() - {"demo", "slurm"}:
        differ = set(found[table]) ^ {*tables.TABLES[table].__struct_fields__}
        assert not differ, f"docs/recipes.md or the code lacks of [{table}]: {sorted(differ)}"
    said = found["demo"]  # these, and of [train] all but those
    named, left_out = said[: said.index("[train]")], said[said.index("[train]") + 1 :]
    train, demo = (tables.TABLES[name].__struct_fields__ for name in ("train", "demo"))
    assert {*named, *train} - {*left_out} == {*demo}


@pytest.mark.parametrize("key", ["color_mode", "weights", "task", "optimizer", "lr_scaling"])
def test_the_words_of_a_key_are_those_of_the_code(key: str) -> None:
    words = get_args(get_type_hints(Recipe)[key])
    row = next(row for row in rows("recipes", "Keys") if in_code(row[1]) == [key])
    assert set(words) <= set(in_code(row[2]))


# run.md, multi-gpu-lines.md

CALLS = ("Processes, devices, weights", "Check, train, test, measure")
OF_THE_NOTEBOOK = {"build_model", "make_replica", "train_steps", "predict", "make_loader"}


def own(kind: type) -> set[str]:
    """The public names that a class defines."""
    return {name for name in {*vars(kind), *kind.__annotations__} if not name.startswith("_")}


def test_the_page_on_run_has_every_name() -> None:
    calls = {call.partition("(")[0]: call for call in listed("run", *CALLS) if "(" in call}
    of_library = {*vars(RunState), "loop", "initial"}  # what Run adds is the notebook's
    assert {*listed("run", "Values"), *calls} >= own(Run) - of_library
    named = {call.partition("(")[0] for call in listed("run", "Values", *CALLS)}
    assert named - own(Run) - {*RunState.__init__.__code__.co_names} == OF_THE_NOTEBOOK
    for name in calls.keys() & own(Run):
        given = re.findall(r"[(,] ?(\w+)", calls[name])
        taken = [*signature(getattr(Run, name)).parameters][1:]  # without the run itself
        assert given == (list(MEASUREMENTS) if taken == ["measurements"] else taken), calls[name]
    of_split = {re.sub(r"^split\.|\(.*", "", name) for name in listed("run", "A split")}
    assert of_split == {"len", *own(Split), *(field.name for field in fields(Split))}
    of_recipe = {name.partition("(")[0] for name in listed("run", "The recipe")}
    assert own(NotebookRecipe) <= of_recipe <= own(NotebookRecipe) | own(Recipe)


def test_the_lines_for_several_gpus_are_those_of_the_notebooks() -> None:
    """Else run: python tools/multi_gpu_lines.py > docs/multi-gpu-lines.md"""
    assert page("multi-gpu-lines") == f"{multi_gpu_lines.page()}\n"


# table.toml, in your-images.md

TABLE = page("your-images").partition("\n## A table\n")[2].partition("\n## ")[0]


def test_the_page_has_the_keys_and_defaults_of_table_toml() -> None:
    listed = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", TABLE, re.M)
    cells, known = dict(listed), msgspec.structs.fields(ColumnMapping)
    assert sorted(key for key, _ in listed) == sorted(field.encode_name for field in known)
    for field in known:
        cell = cells[field.encode_name]
        assert (cell == "required") == field.required
        value = re.match(r"`(.+)`", cell.replace("\\|", "|"))
        shown = tomllib.loads(f"value = {value[1]}")["value"] if value else None
        default = None if field.required else field.default
        assert shown == (list(default) if isinstance(default, tuple) else default)


@pytest.mark.parametrize(
    "example",
    re.findall(r"^```toml\n(.*?)^```$", TABLE, re.M | re.S),
    ids=lambda text: text.split()[2],
)
def test_an_example_is_accepted(example: str, tmp_path: Path) -> None:
    (tmp_path / "table.toml").write_text(example, encoding="utf-8")
    assert read_mapping(tmp_path, None).findings


# troubleshooting.md


def test_every_message_of_the_table_is_in_the_code() -> None:
    packages = ("helpers", "data_prep", "gpumon", "environments")
    files = [file for package in packages for file in (paths.ROOT / package).rglob("*.py")]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    joined = re.sub(r"[\"']\s*\n\s*f?[\"']", "", code)
    there = " ".join(re.sub(r"\{[^{}]*\}", "…", joined).split())
    messages = re.findall(r"^\| `(.+?)` \| [^|]+ \|$", page("troubleshooting"), re.MULTILINE)
    assert len(messages) == len(set(messages)) >= 5
    assert [message for message in messages if message not in there] == []

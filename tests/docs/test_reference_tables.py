"""The tables of keys on the reference pages have exactly the keys that the code reads."""

import re
from typing import get_args, get_type_hints

import pytest

from helpers import paths
from helpers.recipe import Recipe, tables


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of a page, without its head."""
    text = (paths.ROOT / "docs" / page).read_text(encoding="utf-8")
    section = re.split(r"\n##+ ", re.split(rf"\n##+ {heading}\n", text)[1])[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split(" | ")] for line in lines[1:]]


def in_code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def keys_of_recipes() -> dict[str, list[str]]:
    """By table, the keys of the page on recipes."""
    found: dict[str, list[str]] = {}
    table = ""
    for row in rows("recipes.md", "Keys"):
        table = in_code(row[0])[0].strip("[]") if in_code(row[0]) else table
        found.setdefault(table, []).extend(in_code(row[1]))
    return found


def test_the_page_on_recipes_has_every_key() -> None:
    found = keys_of_recipes()
    assert found.keys() == {*tables.TABLES, "sweep"}
    for table in tables.TABLES.keys() - {"demo", "slurm"}:
        differ = set(found[table]) ^ {*tables.keys_of(tables.TABLES[table])}
        assert not differ, f"docs/recipes.md or the code lacks of [{table}]: {sorted(differ)}"


def test_what_demo_may_change_is_as_the_page_says() -> None:
    said = keys_of_recipes()["demo"]
    named, left_out = said[: said.index("[train]")], said[said.index("[train]") + 1 :]
    train, demo = (tables.keys_of(tables.TABLES[name]) for name in ("train", "demo"))
    assert {*named, *train} - {*left_out} == {*demo}


def test_the_page_on_slurm_has_every_key() -> None:
    found = [key for row in rows("many-machines.md", "Slurm settings") for key in in_code(row[0])]
    assert sorted(found) == sorted(tables.SLURM)


@pytest.mark.parametrize("key", ["color_mode", "weights", "task", "optimizer", "lr_scaling"])
def test_the_words_of_a_key_are_those_of_the_code(key: str) -> None:
    words = get_args(get_type_hints(Recipe)[key])
    row = next(row for row in rows("recipes.md", "Keys") if in_code(row[1]) == [key])
    assert set(words) <= set(in_code(row[2]))

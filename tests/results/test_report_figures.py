"""Every figure of a report, traced to the record's field that it comes from.

The records hold a value of its own in every numeric field, so that no figure can be right by
chance. What the cells of the main tables should say is worked out in tests/figures.py from their
JSON, without the code that makes the report; all other figures are in the CSV files.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from figures import (
    Cells,
    Record,
    compiled,
    expected,
    label,
    make,
    rate,
    run,
    summed,
)
from figures import ends as ends_of

from helpers.results import report

RATES = {
    "images_per_second": "training",
    "files_images_per_second": "files",
    "synthetic_images_per_second": "synthetic",
    "loader_images_per_second": "loader",
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    folder = tmp_path_factory.mktemp("figures")
    made = make(folder, seed=1)
    report.write(folder)
    return folder, made


# What the report says.


def tables_of(page: str) -> dict[str, list[list[str]]]:
    """The page's tables: by caption the rows, the head as the first."""
    soup = BeautifulSoup(page, "html.parser")
    for small in soup("small"):
        small.replace_with(f"({small.text})")
    return {
        table.caption.text: [
            [" ".join(cell.text.split()) for cell in row(("td", "th"))] for row in table("tr")
        ]
        for table in soup("table")
        if table.caption
    }


def markdown_tables(text: str) -> dict[str, list[list[str]]]:
    """By heading the rows, the head as the first."""
    found: dict[str, list[list[str]]] = {}
    last = ""
    for line in text.replace("\\", "").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if not line.startswith("| ---"):
                found.setdefault(last.lstrip("# "), []).append(cells)
        elif line:
            last = line
    return found


def as_cells(name: str, rows: list[list[str]]) -> Cells:
    head, *body = rows
    return {
        (name, row[0], column): cell
        for row in body
        for column, cell in zip(head[1:], row[1:], strict=True)
    }


def test_the_main_tables_are_the_records(batch: tuple[Path, list[Record]]) -> None:
    folder, made = batch
    wanted = expected(made)
    markdown = markdown_tables((folder / report.MARKDOWN).read_text())
    for tables in (markdown, tables_of((folder / report.HTML).read_text())):
        shown = [as_cells(name, tables[name]) for name in {table for table, _, _ in wanted}]
        found = {where: text for cells in shown for where, text in cells.items()}
        assert {where: found[where] for where in wanted} == wanted


def test_every_csv_is_the_records(batch: tuple[Path, list[Record]]) -> None:
    folder, made = batch
    files = {path.stem: pd.read_csv(path) for path in (folder / report.CSV).glob("*.csv")}
    fields: dict[str, Callable[[Record], Any]] = {
        "nodes": lambda c: 1,
        "devices": lambda c: c["devices"]["count"],
        "seconds": lambda c: c["training"]["seconds"],
        "images_per_second": rate,
        "seconds_to_target": lambda c: math.nan,
        "images_to_target": lambda c: math.nan,
        "peak_bytes": lambda c: math.nan,
        "seconds_compiling": lambda c: compiled(c) * c["training"]["seconds"],
        "seconds_training": lambda c: (
            summed(c, "train_seconds") - compiled(c) * c["training"]["seconds"]
        ),
        "seconds_validating": lambda c: summed(c, "valid_seconds"),
        "seconds_other": lambda c: max(
            c["training"]["seconds"] - summed(c, "train_seconds") - summed(c, "valid_seconds"), 0
        ),
        "files_images_per_second": lambda c: c["files"]["images_per_second"],
        "seed": lambda c: c["recipe"]["seed"],
        "first_step_seconds": lambda c: c["training"]["first_step_seconds"],
        "synthetic_images_per_second": lambda c: c["synthetic"]["images_per_second"],
        "loader_images_per_second": lambda c: c["loader"]["images_per_second"],
        "mean_auc": lambda c: c["test"]["mean_auc"],
        "joules": lambda c: c["energy"]["joules"],
        "images_per_joule": lambda c: c["energy"]["images_per_joule"],
    }
    for name in ("runs", "repeats"):
        table = files[name].set_index(["label", "devices"], drop=False)
        numbers = {n for n in table.select_dtypes("number") if n not in ("runs", "flags")}
        plain = {n for n in numbers if not n.endswith(("_low", "_high"))}
        assert plain == set(fields) - ({"seed"} if name == "repeats" else set())
        for content in made:
            row = table.loc[(label(content), content["devices"]["count"])]
            for field, value in fields.items():
                if field not in numbers:
                    continue
                assert row[field] == pytest.approx(value(content), rel=1e-12, nan_ok=True), field
                spread = [row[field]] * 2
                if field in RATES:
                    spread = list(ends_of(content, RATES[field]))
                for end, least in zip(("_low", "_high"), spread, strict=True):
                    if f"{field}{end}" in numbers:
                        found = row[f"{field}{end}"]
                        assert found == pytest.approx(least, rel=1e-12, nan_ok=True)
    rows_of: dict[str, Callable[[Record], Any]] = {
        "epochs": lambda c: c["epochs"],
        "auc": lambda c: c["test"]["findings"],
        "fairness": lambda c: c["fairness"]["checks"],
    }
    for name, rows in rows_of.items():
        table = files[name].set_index(["label", "devices"])
        for content in made:
            of = table.loc[[(label(content), content["devices"]["count"])]]
            for row, (_, found) in zip(rows(content), of.iterrows(), strict=True):
                for field, value in row.items():
                    same = (
                        pd.isna(found[field])
                        if value is None
                        else found[field] == pytest.approx(value)
                    )
                    assert same, (name, field)
    attribution = files["attribution"].set_index("run")
    for content in made:
        for name, value in content["attribution"]["shares"].items():
            row = attribution.loc[run(content)]
            ends = content["attribution"]["intervals"][name]
            assert [row[name], row[f"{name}_low"], row[f"{name}_high"]] == [value, *ends]

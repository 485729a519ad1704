"""Every number in a report is that of the record's field that it comes from.

The records hold a value of its own in every numeric field, so that no number can be right by
chance. The tables are rounded from what the CSV files hold.
"""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import records
from bs4 import BeautifulSoup

from helpers.record import sections
from helpers.results import report

Record = dict[str, Any]
RATES = {
    "images_per_second": "training",
    "files_images_per_second": "files",
    "synthetic_images_per_second": "synthetic",
    "loader_images_per_second": "loader",
}
VARIED = (*RATES.values(), "epochs", "test", "attribution", "energy", "fairness")


def varied(value: Any, draw: random.Random, key: str = "") -> Any:
    """``value`` with every number in it changed by a factor of its own."""
    if isinstance(value, dict):
        return {name: varied(item, draw, name) for name, item in value.items()}
    if isinstance(value, list):
        return [varied(item, draw) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float) or key == "epoch":
        return value
    most = min(1.25, 1 / value) if 0 < value <= 1 else 1.25  # an AUC or a share stays one
    changed = value * draw.uniform(0.75, most)
    return round(changed) + 1 if isinstance(value, int) else changed


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """The report of six notebooks on one and on two GPUs; its folder, and the records."""
    folder, draw, made = tmp_path_factory.mktemp("numbers"), random.Random(1), []
    energy = {"joules": 5e4, "images_per_joule": 0.9, "reason": None}
    for framework, notebook, _ in records.SIX:
        for count in (1, 2):
            content = records.make(framework, count, notebook=notebook, gpu=True, energy=energy)
            content |= {section: varied(content[section], draw) for section in VARIED}
            for section in ("files", "synthetic", "loader"):
                content[section] |= sections.throughput(content[section]["rounds"])
            content["attribution"]["intervals"] = {
                name: [0.9 * value, 1.1 * value]
                for name, value in content["attribution"]["shares"].items()
            }
            records.save(folder, content)
            made.append(content)
    report.write(folder)
    return folder, made


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


def test_page_and_markdown_have_the_same_tables(batch: tuple[Path, list[Record]]) -> None:
    page = tables_of((batch[0] / report.HTML).read_text())
    markdown = markdown_tables((batch[0] / report.MARKDOWN).read_text())
    for name, rows in (("All runs", 12), ("Speed-ups and efficiency", 6), ("AUC per finding", 14)):
        assert page[name] == markdown[name] and len(page[name]) == 1 + rows, name


def name_of(content: Record) -> str:
    variant = content["run"]["notebook"].partition("_MultiGPU")[2]
    return content["framework"]["name"] + (" DataParallel" if variant == "_DataParallel" else "")


def compiling(content: Record) -> float:
    last = content["epochs"][-1]
    step = last["train_seconds"] / last["steps"]
    return float(max(content["training"]["first_step_seconds"] - step, 0))


def summed(content: Record, field: str) -> float:
    return float(sum(epoch[field] for epoch in content["epochs"]))


def ends(content: Record, section: str) -> tuple[float, float]:
    steady = [epoch["images_per_second"] for epoch in content["epochs"][1:]]
    rounds = steady if section == "training" else content[section]["rounds"]
    return min(rounds), max(rounds)


FIELDS: dict[str, Callable[[Record], Any]] = {
    "nodes": lambda c: 1,
    "devices": lambda c: c["devices"]["count"],
    "seconds": lambda c: c["training"]["seconds"],
    "seconds_to_target": lambda c: math.nan,
    "images_to_target": lambda c: math.nan,
    "peak_bytes": lambda c: math.nan,
    "seconds_compiling": compiling,
    "seconds_training": lambda c: summed(c, "train_seconds") - compiling(c),
    "seconds_validating": lambda c: summed(c, "valid_seconds"),
    "seconds_other": lambda c: max(
        c["training"]["seconds"] - summed(c, "train_seconds") - summed(c, "valid_seconds"), 0
    ),
    "seed": lambda c: c["recipe"]["seed"],
    "first_step_seconds": lambda c: c["training"]["first_step_seconds"],
    "mean_auc": lambda c: c["test"]["mean_auc"],
    "joules": lambda c: c["energy"]["joules"],
    "images_per_joule": lambda c: c["energy"]["images_per_joule"],
}


def test_every_csv_is_the_records(batch: tuple[Path, list[Record]]) -> None:
    folder, made = batch
    files = {path.stem: pd.read_csv(path) for path in (folder / report.CSV).glob("*.csv")}
    for name in ("runs", "repeats"):
        table = files[name].set_index(["label", "devices"], drop=False)
        numbers = {n for n in table.select_dtypes("number") if n not in ("runs", "flags")}
        plain = {n for n in numbers if not n.endswith(("_low", "_high"))}
        assert plain == {*FIELDS, *RATES} - ({"seed"} if name == "repeats" else set())
        for content in made:
            row = table.loc[(name_of(content), content["devices"]["count"])]
            wanted = {field: value(content) for field, value in FIELDS.items()}
            spread = {field: (value, value) for field, value in wanted.items()}
            for field, section in RATES.items():
                wanted[field] = content[section]["images_per_second"]
                spread[field] = ends(content, section)
            for field, (low, high) in spread.items():
                wanted |= {f"{field}_low": low, f"{field}_high": high}
            for end in ("low", "high"):
                wanted[f"auc_{end}"] = content["test"][f"mean_{end}"]
            for field in numbers:
                close = pytest.approx(wanted[field], rel=1e-12, nan_ok=True)
                assert row[field] == close, (name, field)
    rows_of: dict[str, Callable[[Record], Any]] = {
        "epochs": lambda c: c["epochs"],
        "auc": lambda c: c["test"]["findings"],
        "fairness": lambda c: c["fairness"]["checks"],
    }
    attribution = files["attribution"].set_index("run")
    for content in made:
        run = name_of(content), content["devices"]["count"]
        for name, rows in rows_of.items():
            of = files[name].set_index(["label", "devices"]).loc[[run]]
            for row, (_, found) in zip(rows(content), of.iterrows(), strict=True):
                for field, value in row.items():
                    same = value is None if pd.isna(found[field]) else found[field] == value
                    assert same or found[field] == pytest.approx(value), (name, field)
        row = attribution.loc[f"{run[0]}, {run[1]} device{'s' * (run[1] > 1)}"]
        for name, value in content["attribution"]["shares"].items():
            ends_of = content["attribution"]["intervals"][name]
            assert [row[name], row[f"{name}_low"], row[f"{name}_high"]] == [value, *ends_of]

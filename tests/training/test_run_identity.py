"""What makes two runs the same run, and what is left out of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import records

from helpers.recipe import Recipe, lookup
from helpers.training import record, run_identity

DEMO = lookup("demo")


def begun(folder: Path, recipe: Recipe = DEMO, images: str = "a") -> record.Run:
    """A run's record, as far as a notebook has written it before it trains."""
    run = records.started(folder, recipe=recipe.on(2))
    parts = {"train": 256, "valid": 8, "test": 8}
    data = {"folder": "d", "kind": "real", "pixels": 38, "images": parts, "patients": parts}
    run.add("data", data | {"steps_per_epoch": 2, "sha256": images})
    return run


def test_the_identity_of_a_run_has_a_digest_of_everything_that_made_it(tmp_path: Path) -> None:
    one = run_identity.of(begun(tmp_path).content)
    assert set(one) == {"recipe", "data", "code"}
    other = run_identity.of(begun(tmp_path, replace(DEMO, seed=1), images="b").content)
    assert one["code"] == other["code"]
    assert one["recipe"] != other["recipe"] and one["data"] != other["data"]


def test_the_code_is_the_notebooks_and_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("helpers/a.py", "data_prep/b.py", "gpumon/c.py", "notebooks/N.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"cells": []}')
    monkeypatch.setattr("helpers.paths.ROOT", tmp_path)
    monkeypatch.setattr("helpers.paths.NOTEBOOKS", tmp_path / "notebooks")

    def digest() -> str:
        run_identity.code.cache_clear()
        return run_identity.code("N")

    def cell(source: str, *tags: str) -> str:
        cell = {"cell_type": "code", "source": [source], "metadata": {"tags": tags}}
        return json.dumps({"cells": [cell]})

    before = digest()
    (tmp_path / "gpumon/c.py").write_text("looks on")
    (tmp_path / "notebooks/N.ipynb").write_text(cell("seed = 1", "parameters"))
    assert digest() == before
    (tmp_path / "notebooks/N.ipynb").write_text(cell("step()"))
    changed = digest()
    (tmp_path / "helpers/a.py").write_text("other")
    assert len({before, changed, digest()}) == 3
    run_identity.code.cache_clear()

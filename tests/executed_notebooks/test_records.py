"""What the executed notebooks left behind: run after ``pytest --nbmake notebooks/``."""

import json
from typing import Any

import pytest

from helpers import paths, record
from helpers.frameworks import ROWS

NOTEBOOKS = tuple(row.notebook for row in ROWS if not row.optional and not row.ranks_only)


@pytest.fixture(scope="module")
def records() -> dict[str, Any]:
    """The last interactive run of each notebook (runs/interactive/<notebook>-<n>x)."""
    found = {}
    for notebook in NOTEBOOKS:
        folders = (paths.RUNS / "interactive").glob(f"{notebook}-*x")
        found[notebook] = record.read(max(folders, key=lambda f: f.stat().st_mtime))
    return found


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_run_is_whole_and_learned(records: dict[str, dict[str, Any]], notebook: str) -> None:
    found = records[notebook]
    assert found["state"] == "finished", found["reason"]
    assert not [c for c in found["fairness"]["checks"] if c["verdict"] == "fail"]
    assert len(found["epochs"]) == found["recipe"]["epochs"]
    assert found["epochs"][-1]["train_loss"] < found["epochs"][0]["train_loss"]
    if found["data"]["kind"] == "generated":
        assert 0.6 < found["test"]["mean_auc"] < 1


def test_same_start_same_images_no_outlier(records: dict[str, dict[str, Any]]) -> None:
    assert len({found["weights"]["sha256"] for found in records.values()}) == 1
    assert len({json.dumps(found["data"]["images"]) for found in records.values()}) == 1
    scores = sorted(found["test"]["mean_auc"] for found in records.values())
    middle = scores[len(scores) // 2]
    assert max(abs(score - middle) for score in scores) < 0.06, scores

"""rosetta run --against: what counts as moved, and the exit code that says so."""

from pathlib import Path
from typing import Any

import pytest
import records

from helpers.__main__ import main
from helpers.results import comparison, regression


def batch(folder: Path, *contents: dict[str, Any]) -> Path:
    return records.save_each(folder, contents)


def moved(old: Path, new: Path) -> dict[str, str]:
    found = regression.compare(comparison.load(old), comparison.load(new))
    return {
        row["result"]: row["verdict"] for _, row in found.iterrows() if row["verdict"] != "same"
    }


TIMES = ("training time (s)", "images/s, steady state", "images/s, synthetic")


@pytest.mark.parametrize(
    ("speed", "auc", "expected"),
    [
        (103.0, 0.751, {}),  # within the stated tolerances
        (80.0, 0.75, dict.fromkeys(TIMES, "worse")),
        (130.0, 0.75, dict.fromkeys(TIMES, "better")),
        (100.0, 0.72, {"mean test AUC": "worse"}),
    ],
)
def test_without_repeats_the_stated_tolerance_holds(
    tmp_path: Path, speed: float, auc: float, expected: dict[str, str]
) -> None:
    old = batch(tmp_path / "old", records.make(speed=100, auc=0.75))
    new = batch(tmp_path / "new", records.make(speed=speed, auc=auc))
    assert moved(old, new) == expected
    assert main(["diff", str(old), str(new)]) == (1 if expected else 0)


@pytest.mark.parametrize(
    ("before", "after", "is_moved"),
    [((98, 100, 108), (94, 95, 96), False), ((99, 100, 101), (96, 97, 98), True)],
)
def test_repeats_give_their_own_spread(
    tmp_path: Path, before: tuple[int, ...], after: tuple[int, ...], is_moved: bool
) -> None:
    old = batch(tmp_path / "old", *(records.make(speed=s) for s in before))
    new = batch(tmp_path / "new", *(records.make(speed=s) for s in after))
    assert ("images/s, steady state" in moved(old, new)) == is_moved


def test_what_is_gone_counts_as_moved(tmp_path: Path) -> None:
    old = batch(tmp_path / "old", records.make(), records.make("Keras"))
    new = batch(tmp_path / "new", records.make(), records.short("Keras", "failed", "boom"))
    found = regression.compare(comparison.load(old), comparison.load(new))
    assert set(found.loc[found["verdict"] == "lost", "label"]) == {"Keras"}
    broken = batch(tmp_path / "broken", records.short("PyTorch", "failed", "driver gone"))
    assert main(["diff", str(old), str(broken)]) == 1


def test_a_fairness_check_that_fails_now_counts_as_moved_and_a_resumed_runs_times_do_not(
    tmp_path: Path,
) -> None:
    bad = records.make()
    bad["fairness"]["comparable"] = False
    found = moved(batch(tmp_path / "good", records.make()), batch(tmp_path / "bad", bad))
    assert set(found.values()) == {"not comparable"}
    old = batch(tmp_path / "old", records.make(speed=100))
    cut: dict[str, Any] = {"checkpoint": {"resumed_after": 2, "restarts": [2]}}
    new = batch(tmp_path / "new", records.make(speed=300, auc=0.76, **cut))
    assert set(moved(old, new).values()) == {"resumed"} and "mean test AUC" not in moved(old, new)


def test_versions_that_changed_are_named(tmp_path: Path) -> None:
    later = records.make()
    later["framework"]["versions"]["pytorch"] = "2.0"
    later["hardware"]["driver"] = "570.1"
    old, new = batch(tmp_path / "old", records.make()), batch(tmp_path / "new", later)
    lines = regression.changed(comparison.load(old), comparison.load(new))
    assert "Changed: driver, none -> 570.1" in lines
    assert "Changed: pytorch of PyTorch, 1.0 -> 2.0" in lines


def test_batches_that_cannot_be_compared_are_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = batch(tmp_path / "old", records.make())
    other = records.make()
    other["recipe"]["crop"] = 224
    for new, said in (
        (batch(tmp_path / "crop", other), "crop in pixels was 32 and is 224"),
        (batch(tmp_path / "keras", records.make("Keras")), "no run in common"),
        (tmp_path / "missing", "no such experiment"),
        (old, "the same experiment"),
    ):
        assert main(["diff", str(old), str(new)]) == 2
        assert said in capsys.readouterr().err

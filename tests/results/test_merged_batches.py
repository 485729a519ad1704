"""Several batches in one report: what is no repeat of what, and batches named twice or wrongly."""

from pathlib import Path
from typing import Any

import pytest
import records

from helpers import paths
from helpers.__main__ import main
from helpers.results import comparison, comparison_tables
from helpers.results.repeated_runs import summarise

DIGESTS = {"sha256": "f" * 64}, {"sha256": "0" * 64}
FEW_IMAGES = {"images": {"train": 112, "valid": 16, "test": 32}}
SMALLER_BATCH = {"batch_size": 16, "learning_rate": 0.000025}
DROPS = {"lr_gamma": 0.1, "lr_milestones": [3]}
OWN_CODE = {"code": {"mine.py": "f" * 64}}, {"code": {"mine.py": "0" * 64}}


def two_batches(
    runs: Path, monkeypatch: pytest.MonkeyPatch, first: dict[str, Any], second: dict[str, Any]
) -> comparison.Comparison:
    """A run of PyTorch in each; a dictionary that is given is merged into the record's section."""
    monkeypatch.setattr(paths, "RUNS", runs)
    for batch, given in (("a", first), ("b", second)):
        content = records.make(gpu=True)
        for section, changed in given.items():
            content[section] |= changed
        records.save(runs / batch, content)
    return comparison.load(["a", "b"])


@pytest.mark.parametrize(
    ("section", "first", "second", "labels"),
    [
        ("devices", {}, {"names": ["NVIDIA A100"] * 2}, ["on NVIDIA A100", "on NVIDIA H100"]),
        ("data", FEW_IMAGES, {}, ["160 images", "1600 images"]),
        ("data", *DIGESTS, ["data 000000", "data ffffff"]),
        ("recipe", {"learning_rate": 0.01}, {"learning_rate": 0.003}, ["rate 0.003", "rate 0.01"]),
        ("recipe", {}, SMALLER_BATCH, ["16 per device", "64 per device"]),
        ("recipe", {}, {"weight_decay": 0.5}, ["adam", "adam, weight decay 0.5"]),
        ("recipe", {}, DROPS, ["linear", "linear, x 0.1 after [3]"]),
        ("recipe", *OWN_CODE, ["mine.py 000000", "mine.py ffffff"]),
        ("recipe", *DIGESTS, ["recipe 000000", "recipe ffffff"]),
        ("run", {"code": "a" * 64}, {"code": "b" * 64}, ["(code aaaaaaa)", "(code bbbbbbb)"]),
    ],
)
def test_runs_that_differ_are_no_repeats(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    section: str,
    first: dict[str, Any],
    second: dict[str, Any],
    labels: list[str],
) -> None:
    compared = two_batches(tmp_path, monkeypatch, {section: first}, {section: second})
    told = summarise(compared)
    assert sorted(told["label"]) == [f"PyTorch {label}" for label in labels]
    assert list(told["runs"]) == [1, 1]
    assert len(comparison.repeats(compared.entries)) == 2


def test_a_third_run_of_another_name_or_number_does_not_hide_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three that differ in their text alone, or in their images, are no repeats either."""
    for section, changed in (
        ("recipe", ({"sha256": "0" * 64}, {}, {"name": "other", "sha256": "1" * 64})),
        ("data", (*DIGESTS, {"images": {"train": 9, "valid": 1, "test": 2}, "sha256": "1" * 64})),
    ):
        for number, given in enumerate(changed):
            content = records.make(gpu=True)
            content[section] |= given
            records.save(tmp_path / section / str(number), content)
        runs = [tmp_path / section / str(number) for number in range(3)]
        assert list(summarise(comparison.load(runs))["runs"]) == [1, 1, 1]


def test_a_split_by_another_seed_is_of_the_same_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"data": {"images": {"train": 1119, "valid": 160, "test": 321}}, "recipe": {"seed": 1}}
    told = summarise(two_batches(tmp_path, monkeypatch, {}, other))
    assert list(told["label"]) == ["PyTorch"] and list(told["runs"]) == [2]


def test_a_batch_named_twice_is_no_repeat_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_batches(tmp_path, monkeypatch, {}, {})
    (tmp_path / "latest").symlink_to("b")
    for given in (["b", "b"], ["latest", "b"], ["b", str(tmp_path / "b")]):
        compared = comparison.load(given)
        assert len(compared.entries) == len(compared.folders) == 1
    assert len(comparison.load(["a", "latest", "b"]).entries) == 2


def test_a_batch_that_is_not_there_is_not_left_out_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_batches(tmp_path, monkeypatch, {}, {})
    assert main(["report", "a", "bb"]) == 2
    wrong = f"{tmp_path / 'bb'}: there is no such experiment; there are a, b"
    assert capsys.readouterr().err == f"error: {wrong}\n"
    assert not (tmp_path / "a" / "report.html").exists()


def test_of_one_program_are_all_runs_of_a_row_and_a_skipped_one_is_of_none(tmp_path: Path) -> None:
    """Code that differs on one number of devices tells the programs of all numbers apart."""
    for number, (devices, code) in enumerate([(1, "a"), (2, "a"), (2, "b"), (4, "b")]):
        content = records.make(devices=devices)
        content["run"]["code"] = code * 64
        records.save(tmp_path / str(number), content)
    compared = comparison.load([tmp_path / str(number) for number in range(4)])
    found = [(entry.series, entry.devices) for entry in compared.entries]
    a, b = "PyTorch (code aaaaaaa)", "PyTorch (code bbbbbbb)"
    assert found == [(a, 1), (a, 2), (b, 2), (b, 4)]
    records.save(tmp_path / "4", records.short("PyTorch", "skipped", "no such GPU"))
    labels = [each.label for each in comparison.load([tmp_path / n for n in "124"]).entries]
    assert labels == ["PyTorch", a, b]


def test_runs_of_several_machines_have_a_column_for_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [{"run": {"host": host}, "hardware": {"cpu": host}} for host in ("box", "uni")]
    found = comparison_tables.runs(two_batches(tmp_path, monkeypatch, *given)).frame
    assert list(found["machine"]) == ["box", "uni"]
    alone = comparison_tables.runs(comparison.load(["a"])).frame
    assert "machine" not in alone.columns

"""The comparison and its report for runs that tell classes: every word and number follows."""

import html
import re
from pathlib import Path

import class_records
import pytest
import records

from helpers.__main__ import main
from helpers.errors import UserError
from helpers.record import tasks
from helpers.results import (
    by_class,
    caveats,
    charts,
    comparison,
    comparison_tables,
    conclusions,
    learning_curves,
    published,
    regression,
    report,
)
from helpers.results.report import data_files
from helpers.results.shared_settings import unequal


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> comparison.Comparison:
    """Three frameworks that told 60, 66 and 72 % of the images rightly."""
    made = [
        class_records.make(name, top1=top1, speed=100 * top1, gpu=True)
        for name, top1 in (("PyTorch", 0.6), ("Keras", 0.66), ("MXNet Gluon", 0.72))
    ]
    return records.load(tmp_path_factory.mktemp("classes"), *made)


def test_published_numbers_stand_beside_no_other_network(tmp_path: Path) -> None:
    """Not even beside one run of it and one of the article's."""
    assert published.belong(records.load(tmp_path, records.make()))
    other = records.make("Keras")
    other["recipe"]["network"] = "resnet50"
    compared = records.load(tmp_path, other)
    assert not published.belong(compared)
    report.write(tmp_path)
    assert "ublished" not in (tmp_path / report.MARKDOWN).read_text()


def test_every_table_has_the_records_top_1(compared: comparison.Comparison) -> None:
    test = {entry.label: entry.content["test"] for entry in compared.entries}["Keras"]
    told = "66.0 % ({:.1f} to {:.1f})".format(
        *(100 * test[f"top1_{end}"] for end in ("low", "high"))
    )
    assert comparison_tables.runs(compared).frame.loc["Keras", "test top-1"] == told
    assert by_class.table(compared).frame.loc["cat", "Keras"] == "68.0 %"
    assert "with top-1 66.0 %" in records.shown(charts.curves(compared)).alt


def test_time_and_images_to_each_of_the_recipes_targets(compared: comparison.Comparison) -> None:
    """Keras's five epochs end at 40, 46, 53, 59 and 66 %."""
    assert learning_curves.targets(compared) == [0.5, 0.6, 0.7, 0.75, 0.8]
    found = (
        learning_curves.to_targets(compared).set_index(["run", "target"]).loc["Keras, 2 devices"]
    )
    (entry,) = (each for each in compared.entries if each.label == "Keras")
    epochs = entry.content["epochs"]
    for target, needed in ((0.5, 3), (0.6, 5)):
        seconds = sum(e["train_seconds"] + e["valid_seconds"] for e in epochs[:needed])
        images = sum(e["images"] for e in epochs[:needed])
        row = found.loc[target, ["epoch", "seconds", "images"]].tolist()
        assert row == pytest.approx([needed, seconds, images])
    assert found.loc[0.7:, ["epoch", "seconds", "images"]].isna().all(axis=None)


def test_targets_may_be_of_top_5_and_learning_is_shown_by_it(tmp_path: Path) -> None:
    content = class_records.make()
    content["recipe"] |= {"metric": "top5", "quality_targets": [0.9]}
    for number, epoch in enumerate(content["epochs"]):
        epoch["valid_top5"] = 0.8 + 0.04 * number
    compared = records.load(tmp_path, content)
    assert compared.metric is tasks.TOP5 and compared.task.metric is tasks.TOP1
    figure = records.drawn(charts.curves(compared))
    assert [len(axes.lines) for axes in figure.axes] == [2, 2]  # the target; chance is top-1's


def test_many_classes_have_a_file_and_no_table_and_one_without_images_is_said(
    tmp_path: Path,
) -> None:
    many = [f"n{number:04}" for number in range(60)]
    compared = records.load(tmp_path / "many", class_records.make(names=many))
    assert by_class.table(compared).empty
    assert len(data_files.frames(compared)["classes"]) == 60
    content = class_records.make(names=["a", "b", "c"])
    nothing = {"images": 0, "top1": None, "low": None, "high": None}
    content["test"]["classes"].append({"class": "d"} | nothing)
    compared = records.load(tmp_path / "few", content)
    assert "d: no test image" in caveats.remarks(compared).frame["remark"].to_list()
    assert by_class.table(compared).frame.loc["d", "PyTorch"] == "n/a"


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (0.7, 0.66, "worse"),
        (0.7, 0.75, "better"),
        (0.4, 0.39, "same"),  # 1 point: no share of the older value, of which it is 2.5 %
    ],
)
def test_against_an_older_batch(
    tmp_path: Path, old: float, new: float, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    records.save(tmp_path / "old", class_records.make(top1=old))
    records.save(tmp_path / "new", class_records.make(top1=new))
    assert main(["diff", str(tmp_path / "old"), str(tmp_path / "new")]) == (verdict != "same")
    values = rf"{100 * old:.1f} % +{100 * new:.1f} % +[+-]\d\.\d points +2\.0 points"
    told = rf"test top-1 +{values} +{verdict}"
    assert re.search(told, capsys.readouterr().out)


def test_of_custom_networks_none_claims_that_they_are_the_same(tmp_path: Path) -> None:
    for own in (False, True):
        folder = tmp_path / str(own)
        for name in ("PyTorch", "MXNet Gluon"):
            content = class_records.make(name, 2)
            if own:
                content["recipe"]["network"] = "own"
            records.save(folder, content)
        compared = comparison.load(folder)
        said = " ".join(answer.text for answer in conclusions.answers(compared))
        assert ("no check compares the networks" in said) == own
        assert conclusions.fairness(compared).verdict == ("only in part" if own else "yes")


def test_batches_of_different_tasks_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.save(tmp_path / "xrays", records.make())
    records.save(tmp_path / "cars", class_records.make())
    assert main(["report", str(tmp_path / "xrays"), str(tmp_path / "cars")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "multilabel in xrays, multiclass in cars" in line
    assert not list(tmp_path.glob("*/report*")) and not list(tmp_path.glob("*/csv"))
    assert main(["diff", str(tmp_path / "xrays"), str(tmp_path / "cars")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "xrays is of the task multilabel and cars is of the task multiclass" in line


def test_in_one_batch_the_last_runs_task_is_shown_and_the_others_are_left_out(
    tmp_path: Path,
) -> None:
    """As in runs/interactive, where notebooks are run by hand."""
    old = records.make("Keras")
    new = class_records.make()
    new["run"]["started"] = "2026-11-22T01:00:00+00:00"
    compared = records.load(tmp_path, old, new, records.short("TensorFlow", "failed", "no driver"))
    assert compared.task is tasks.MULTICLASS
    assert [entry.label for entry in compared.entries] == ["PyTorch", "TensorFlow"]
    (said,) = compared.left_out
    assert "Keras_MultiGPU-2x/record.json: its task is multilabel" in said
    assert caveats.remarks(compared).frame.loc["a record", "remark"] == said
    assert comparison_tables.runs(compared).frame.index[-1] == "a record (left out)"
    assert said.partition("Keras")[2] in html.unescape(report.write(tmp_path).read_text())
    with pytest.raises(UserError, match="its task is multilabel"):
        regression.check(tmp_path, tmp_path)


def test_runs_of_different_recipes_are_not_ranked(tmp_path: Path) -> None:
    records.save(tmp_path, class_records.make(gpu=True))
    other = class_records.make("Keras", gpu=True)
    records.save(tmp_path / "same", other)
    assert unequal(comparison.load([tmp_path, tmp_path / "same"])) is None
    other["recipe"]["sha256"] = "f" * 64
    compared = records.load(tmp_path, other)
    sentence = unequal(compared)
    assert sentence is not None and "the recipe's text (SHA-256 " in sentence
    first = conclusions.fastest(compared)
    assert first.verdict == "unknown" and sentence in first.text

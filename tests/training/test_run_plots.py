"""What a notebook shows of its own run."""

import hashlib
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import records

import data_prep
from helpers.record import tasks
from helpers.training import accuracy, image_data, parameters, run_plots
from helpers.training.image_data import Data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("images")
    data_prep.generate_nih(folder / "large", images=40, size=64, progress=False)
    data_prep.resize_folder(folder / "large", folder / "small", size=38, progress=False)
    setup = parameters.resolve("T", data=folder / "small", recipe="demo", run=folder / "run")
    return image_data.load_data(setup)


def crop(pixels: np.ndarray) -> np.ndarray:
    return np.repeat(pixels.transpose(2, 0, 1)[:, 3:35, 3:35] / np.float32(255), 3, axis=0)


def test_the_images_shown_are_training_images_with_their_findings(data: Data) -> None:
    figure = run_plots.images(data, crop)
    shown = [axes.get_title().replace("\n", ", ") for axes in figure.axes]
    ill = data.train[data_prep.labels(data.train).any(axis=1)]
    assert len(shown) == run_plots.IMAGES and len(ill) >= 4
    for title, (_, row) in zip(shown, ill.iterrows(), strict=False):
        names = [name.replace("_", " ") for name in data_prep.FINDINGS if row[name]]
        assert title == (
            ", ".join(names) if len(names) < 3 else f"{names[0]}, and {len(names) - 1} more"
        )
    first = data_prep.read_grey(ill["path"].iloc[0])
    pixels = np.asarray(figure.axes[0].images[0].get_array())
    assert np.array_equal(pixels, crop(first[..., None])[0])


def test_learning_and_roc_curves_say_what_the_record_says(data: Data) -> None:
    history = [
        {"epoch": e, "train_loss": 1 / e, "valid_loss": 2 / e, "valid_auc": None} for e in (1, 2)
    ]
    left, right = run_plots.learning(history, tasks.MULTILABEL).axes
    assert [np.asarray(line.get_ydata()).tolist() for line in left.lines] == [[1, 0.5], [2, 1]]
    assert np.isnan(np.asarray(right.lines[0].get_ydata(), float)).all()

    labels = np.zeros((60, 14), np.float32)
    labels[:30, :2] = 1
    scores = np.random.default_rng(0).random((60, 14))
    scores[:30, 0] += 1  # distinguished without a fault
    part = pytest.importorskip("pandas").DataFrame(labels, columns=list(data_prep.FINDINGS))
    part["group"], part["image"] = range(60), [f"{n}.png" for n in range(60)]
    result = records.evaluate_findings(part, scores)
    (axes,) = run_plots.roc(labels, scores, result).axes
    best = next(line for line in axes.lines if str(line.get_label()).endswith("1.00"))
    assert str(best.get_label()).startswith(data_prep.FINDINGS[0].replace("_", " "))
    assert matplotlib.colors.to_hex(best.get_color()) == run_plots.VALIDATION.lower()
    assert len(axes.lines) == 3  # two findings with enough images, and chance


def test_of_classes_learning_is_shown_by_top_1_and_top_5_where_there_is_one() -> None:
    rows: list[dict[str, float | None]] = [
        {"epoch": e, "train_loss": 1 / e, "valid_loss": 2 / e, "valid_top1": 0.2 * e}
        for e in (1, 2)
    ]
    for top5, lines in ((0.9, 2), (None, 1)):
        history = [row | {"valid_top5": top5} for row in rows]
        _, right = run_plots.learning(history, tasks.MULTICLASS).axes
        drawn = [np.asarray(line.get_ydata(), float).tolist() for line in right.lines]
        assert drawn == [[20.0, 40.0], [90.0, 90.0]][:lines]
        assert right.get_title("left") == "Top-1 on the validation part, %"
        assert (right.get_legend() is not None) == (lines == 2)


def test_the_most_confused_classes_are_those_most_often_taken_for_others() -> None:
    names = ["cat", "dog $x$", "a" * 80, "ship"]
    targets = np.repeat(np.arange(4), 10)
    taken = targets.copy()
    taken[10:16] = 0  # six dogs for cats
    taken[20:23] = 3
    scores = np.eye(4)[taken]
    result = accuracy.evaluate(targets, scores, range(40), names, hashlib.sha256())
    (axes,) = run_plots.TEST["multiclass"](targets, scores, result).axes
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown == [r"dog \$x\$", "a" * 39 + "…", "cat", "ship"]
    assert [round(bar.get_width()) for bar in axes.patches[:4]] == [60, 30, 0, 0]  # type: ignore[attr-defined]
    assert [text.get_text() for text in axes.texts] == ["as cat", "as ship"]
    nothing = accuracy.evaluate(targets, np.eye(4)[targets], range(40), names, hashlib.sha256())
    assert len(run_plots.TEST["multiclass"](targets, scores, nothing).axes) == 1


def test_nothing_to_draw_is_no_error(data: Data, tmp_path: Path) -> None:
    none = np.zeros((6, 14), np.float32)
    part = data.train.iloc[:6].assign(**dict.fromkeys(data_prep.FINDINGS, 0))
    result = records.evaluate_findings(part, none)
    assert len(run_plots.roc(none, none, result).axes) == 1

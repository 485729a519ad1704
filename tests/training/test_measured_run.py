"""The run's own part, where no framework is needed; the frameworks' tests go through one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.training import checkpoint
from helpers.training.measured_run import PARAMETERS, Run
from helpers.training.world import Lesson, World, lesson_of


def test_the_checkpoint_goes_only_once_the_record_is_whole(tmp_path: Path) -> None:
    """Else a run that could not finish its record had nothing left to go on with."""
    (tmp_path / checkpoint.FILE).write_bytes(b"weights")
    run = Run.__new__(Run)
    run.folder = tmp_path

    def full() -> Path:
        raise OSError(28, "No space left on device")

    run.record = SimpleNamespace(finish=full)  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space"):
        run.finish()
    assert (tmp_path / checkpoint.FILE).exists()
    run.record = SimpleNamespace(finish=lambda: tmp_path / "record.json")  # type: ignore[assignment]
    run.finish()
    assert not (tmp_path / checkpoint.FILE).exists()


def test_a_lesson_is_found_by_its_names_and_what_is_missing_is_named() -> None:
    names: dict[str, Any] = {
        field: (lambda *given, field=field: field)
        for field in ("build_model", "make_train_loader", "make_evaluation_loader", "start")
    }
    names |= {"make_fixed_loader": print, "train_epoch": print, "stop": repr, "other": 1}
    with pytest.raises(KeyError, match="predict"):
        lesson_of(names)
    lesson = lesson_of(names | {"predict": print}, read_ahead=2)
    assert isinstance(lesson, Lesson) and lesson.stop is repr and lesson.read_ahead == 2
    assert lesson.without_all_reduce is None and lesson.load_alone(None, 5) == 5


def test_the_parameters_are_those_of_the_cell() -> None:
    assert {"recipe", "devices", "gpus", "seed"} <= set(PARAMETERS) and "notebook" not in PARAMETERS


@pytest.mark.parametrize(
    ("devices", "size", "gpus", "processes", "shared"),
    [(1, 4, 4, 4, False), (4, 4, 4, 1, False), (1, 4, 2, 4, True), (2, 2, 0, 1, False)],
)
def test_a_world_counts(devices: int, size: int, gpus: int, processes: int, shared: bool) -> None:
    world = World(0, size, ("device",) * devices, "gpu" if gpus else "cpu", gpus)
    assert (world.processes, world.shares_gpus) == (processes, shared)


@pytest.mark.parametrize("count", [1, 2])
def test_one_device_says_why_a_measurement_is_missing(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ("files", "synthetic", "loader")
    run = SimpleNamespace(
        history=[{"steps": 4, "train_seconds": 1.0}],
        initial=SimpleNamespace(arrays={}),
        with_replica=lambda *given: [{kind: [0.5] * 6 for kind in kinds}],
        monitor=SimpleNamespace(stop=lambda: None),
        recipe=SimpleNamespace(global_batch=64),
        record=SimpleNamespace(add=lambda *given: None),
        devices=("cpu",) * count,
    )
    assert len(Run.take_apart(run)) == 3  # type: ignore[arg-type]
    assert ("no all-reduce to leave out" in capsys.readouterr().out) == (count == 1)

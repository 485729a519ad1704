"""The run's own part, where no framework is needed; the frameworks' tests go through one."""

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from helpers.errors import UnsupportedError
from helpers.training import checkpoint, measured_run
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


def test_without_a_network_for_its_framework_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No device is looked for, no image made: the run is skipped, with the reason."""

    def too_late(*given: Any, **named: Any) -> Any:
        raise AssertionError("something was prepared")

    monkeypatch.setattr(measured_run.parameters, "resolve", too_late)
    (tmp_path / "mine.py").write_text("def net(outputs):\n    raise AssertionError\n")
    recipe = tmp_path / "mine.toml"
    recipe.write_text('recipe = "demo"\n[model]\nmxnet = "mine.py:net"\n')
    names = dict.fromkeys(PARAMETERS) | {"recipe": str(recipe), "resume": False}
    framework = ModuleType("helpers.frameworks.keras")
    reason = "the recipe mine has no network of its own for keras, but for mxnet"
    with pytest.raises(UnsupportedError, match=reason):
        measured_run.begin("Keras_MultiGPU", framework, names)
    framework.__name__ = "helpers.frameworks.mxnet"
    with pytest.raises(AssertionError, match="something was prepared"):
        measured_run.begin("MXNet_Gluon_MultiGPU", framework, names)

"""Run a notebook's own first cells in a test, on data where every crop is different."""

import ast
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers import paths
from helpers.fairness import check_results, reference
from helpers.launch import exchange
from helpers.runner.notebook_code import run_cells
from helpers.training import data_coverage, measured_run, train_loop
from helpers.training.world import TrainingFunctions, World

COLUMNS = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)


SIDE = 66
"""The side of the images in pixels; a crop is 56."""


def write_noise_images(folder: Path, patients: int = 200) -> Path:
    """A data folder of ``patients`` equal noise images: a crop is known by its corner."""
    target = folder / "noise"
    if target.exists():
        return target
    (target / "images").mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE), dtype=np.uint8)
    Image.fromarray(noise).save(target / "noise.png")
    rows = [COLUMNS]
    for patient in range(1, patients + 1):
        name = f"{patient:08d}_000.png"
        (target / "images" / name).hardlink_to(target / "noise.png")
        finding = "Mass" if patient % 3 == 0 else "No Finding"
        rows.append(f"{name},{finding},0,{patient},50,M,PA,{SIDE},{SIDE},0.1,0.1")
    (target / "Data_Entry_2017.csv").write_text("\n".join(rows) + "\n")
    return target


def write_different_images(folder: Path, suffix: str) -> Path:
    """The same data folder with images of which no two are alike, as ``.png`` or ``.jpg`` files."""
    source, target = write_noise_images(folder), folder / f"different{suffix}"
    (target / "images").mkdir(parents=True)
    shutil.copy(source / "Data_Entry_2017.csv", target)
    with Image.open(source / "noise.png") as image:
        noise = np.asarray(image)
    for number, path in enumerate(sorted((source / "images").iterdir())):
        rolled = Image.fromarray(np.roll(noise, 7 * number))
        rolled.save(target / "images" / f"{path.stem}{suffix}")
    return target


CHECKED = "this_run.train()"
"""Up to here a notebook has checked itself, and trained nothing."""


def recipe_of_resnet44(folder: Path) -> str:
    """A recipe of a smaller network than the demo's: its file."""
    path = folder / "resnet44.toml"
    path.write_text('recipe = "demo"\n[model]\nnetwork = "resnet44"\n', encoding="utf-8")
    return str(path)


def namespace_of(
    notebook: str, folder: Path, *, devices: int = 1, until: str = "## 6.", **given: Any
) -> dict[str, Any]:
    """The names a notebook has defined before its first cell that holds ``until``.

    Up to training, also those that section 11 measures with. ``given`` are more parameters. Where
    nothing is checked there is no ``model`` either: frameworks take seconds to make one.
    """
    with exchange.first_rank_first():
        data = write_noise_images(folder)
    said: dict[str, Any] = {"data": str(data), "devices": devices}
    said |= {"run": str(folder / "run"), "recipe": "demo"} | given
    if not said.get("checked", True):
        said["changed"] = lambda text: re.sub(r"^model = .*$", "model = None", text, flags=re.M)
    names = run_cells(notebook, until=until, **said)
    if until == CHECKED:
        for name in ("def without_all_reduce(", "def all_reduce_alone("):
            with suppress(ValueError):  # no cell has it
                exec(cell_with(notebook, name), names)
        names["this_run"].functions = functions_with(names)
    return names


def cell_with(notebook: str, text: str) -> str:
    """The source of the notebook's one code cell that holds ``text``."""
    content = json.loads((paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    texts = ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
    (found,) = (source for source in texts if text in source)
    return found


@contextmanager
def planted(names: dict[str, Any], notebook: str, sound: str, broken: str) -> Iterator[None]:
    """The notebook with a fault: the functions of one cell made again from a changed text."""
    functions = [
        node
        for node in ast.parse(cell_with(notebook, sound).replace(sound, broken)).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    before = dict(names)
    exec(compile(ast.Module(list(functions), []), notebook, "exec"), names)
    try:
        yield
    finally:
        names.update(before)


@contextmanager
def other_norms(names: dict[str, Any], **changes: float) -> Iterator[None]:
    """The notebook with a BatchNorm that is not the recipe's."""
    scaled = names["scaled"]
    names["scaled"] = replace(scaled, recipe=replace(scaled.recipe, **changes))
    try:
        yield
    finally:
        names["scaled"] = scaled


def failed(checks: Iterable[check_results.Check]) -> set[str]:
    """Names of the checks that failed."""
    return {check.check for check in checks if check.verdict == "fail"}


def assert_passed(
    run: measured_run.Run, *, known: Iterable[str] = (), survivors: str = "replica 0's"
) -> None:
    """Nothing failed or was left unchecked; only ``known`` differs, and for a known reason.

    ``survivors`` tells whose BatchNorm statistics are in the weights.
    """
    found = run.fairness_check
    assert failed(found.checks) == set()
    assert "not checked" not in set(found.table()["verdict"])
    assert {check.check for check in found.checks if check.verdict == "expected"} == set(known)
    reasons = {check.check: check.reason for check in found.checks}
    assert reasons["which replica's running statistics are kept"] == survivors


def only_the_loop(patch: pytest.MonkeyPatch) -> None:
    """Let the training-loop check take its steps, and nothing else: what is read has own tests."""
    patch.setattr(data_coverage, "check_fairness", lambda *given, **named: [])


def failed_in_training_loop(
    names: dict[str, Any], notebook: str, sound: str, broken: str
) -> set[str]:
    """Names of the checks that a notebook fails whose training loop has a fault in it."""
    run = names["this_run"]
    functions, before = run.functions, run.fairness_check
    with planted(names, notebook, sound, broken), pytest.MonkeyPatch.context() as patch:
        only_the_loop(patch)
        run.check_training_loop(**vars(functions_with(names)))
    found = failed(run.fairness_check.checks)
    run.take(functions)
    run.fairness_check = before
    return found


def assert_too_few_images_are_refused(run: measured_run.Run) -> None:
    """A loader that leaves images out ends an evaluation; none is scored that nobody has seen."""

    def evaluate(world: World, work: train_loop.Work) -> None:
        functions, part = work.functions, work.images.train
        with functions.scope():
            network = work.framework.shallow(reference.shallow_arrays(), world.devices)
        replica = functions.start(world, network)
        functions.ready(replica, [])
        # So few that frameworks which fill up the last batch notice it too.
        loader = functions.make_evaluation_loader(world, part[:20], 0)
        train_loop.predict(functions, replica, iter(loader), len(part))

    with pytest.raises(Exception, match=r"(gave|logits for) \d+ of .*\b(140|70)\b.* images"):
        run.everywhere(evaluate)


EPSILON_FIRST = "weight change after 5 Adam steps"
"""A known difference of optimisers that add epsilon before the bias correction."""


def functions_with(names: dict[str, Any]) -> TrainingFunctions:
    """The notebook's functions, of what its names stand for now."""
    before: TrainingFunctions = names["this_run"].functions
    settings = ("read_ahead", "processes")
    handed = [field.name for field in fields(before) if field.name not in settings]
    return replace(before, **{name: names[name] for name in handed if name in names})


def with_loss_of(names: dict[str, Any], notebook: str, task: str) -> None:
    """Let the notebook define its loss again, for another task."""
    scaled = names["scaled"]
    recipe = replace(scaled.recipe, task=task)
    names["this_run"].recipe = names["scaled"] = replace(scaled, recipe=recipe)
    for node in ast.parse(cell_with(notebook, "scaled.recipe.task")).body:
        said = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        if isinstance(node, ast.Assign) and said & {"losses", "criterion"}:
            exec(compile(ast.Module([node], []), notebook, "exec"), names)


def adam(
    gradients: list[np.ndarray], scaled: Any, *, epsilon_first: bool = False, start: float = 1.0
) -> np.ndarray:
    """Weights of ``start`` after Adam's steps, in float64.

    As torch.optim.Adam documents it; with ``epsilon_first`` as Keras and MXNet have it, which add
    epsilon before the second moment's bias is corrected.
    """
    (beta1, beta2), epsilon = scaled.recipe.adam_betas, scaled.recipe.adam_epsilon
    weight, first, second = np.full(3, start), np.zeros(3), np.zeros(3)
    for step, gradient in enumerate(gradients, start=1):
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient.astype(np.float64) ** 2
        correction = np.sqrt(1 - beta2**step)
        root = np.sqrt(second) / correction + epsilon / (correction if epsilon_first else 1)
        weight = weight - scaled.learning_rate * first / (1 - beta1**step) / root
    return weight

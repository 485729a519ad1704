"""What a notebook may train differently, or wrongly, and the fairness check's row that sees it.

Each plant changes the notebook's own text, which is then run to the end of its test on a small
network and 200 images: two epochs, momentum, weight decay and a warm-up. Without one it is run to
its end. Where a plant changes what
only the real training does, the training-loop check passes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import own_networks
import pytest

from helpers import record
from helpers.fairness import crops, process_checks, training_checks
from helpers.fairness.check_results import FairnessCheck
from helpers.runner.notebook_code import run_cells

RATES = "rates or (scaled.learning_rate_at(step, steps) for step in count(first_step))"
LOOP = "islice(loader, steps)"
RULE = "rule or scaled.recipe.rule"
KIND = "type(scaled.recipe.rule)"
FLIPS = ("random.random() < 0.5", "lots[2] < 0.5")


@dataclass(frozen=True)
class Plant:
    """A change of a notebook's text: the first of ``texts`` that it has is exchanged.

    ``row`` notices it; None where the run ends with an error that holds ``error``.
    """

    texts: Mapping[str, str]
    row: str | None
    error: str = ""
    devices: int = 1
    """So many are needed for it to matter."""
    checked: bool = False
    """Whether a row of the notebook's own fairness check notices it, before it trains."""


def _rates(said: str) -> dict[str, str]:
    return {RATES: f"rates or ({said} for step in count(first_step))"}


def _rule(momentum: float, decay: float) -> dict[str, str]:
    return {RULE: f'rule or {KIND}("momentum", {momentum}, {decay})'}


def _top(sound: str, broken: str, *, all_of: str = "") -> dict[str, str]:
    """How a crop's place is drawn, in the notebooks' three ways."""
    return {
        "random.integers(side - crop + 1)": broken.format(most="(side - crop)"),
        "int(lots[0] * (height - crop + 1)), int(lots[1] * (width - crop + 1))": ", ".join(
            f"int({sound.format(lot=f'lots[{n}]', most=f'({side} - crop)')})"
            for n, side in enumerate(("height", "width"))
        ),
        "lots[:2] * tf.cast(tf.shape(pixels)[:2] - crop + 1, tf.float32)": sound.format(
            lot="lots[:2]", most="tf.cast(tf.shape(pixels)[:2] - crop, tf.float32)"
        ),
    }


TWICE = "(b for n in range(steps - 1) for b in [next(loader)] * (1 + (n == 0)))"

PLANTS = {
    "other initial weights": Plant(
        {
            "    steps = scaled.steps(len(images.train))": (
                "    kept = framework.dump_weights(network)\n"
                "    if rule is None:\n"
                "        kept = {name: array * 1.01 for name, array in kept.items()}\n"
                "    framework.load_weights(network, kept)\n"
                "    steps = scaled.steps(len(images.train))"
            ),
            "    rule, steps = rule or scaled.recipe.rule, scaled.steps(len(images.train))": (
                "    kept = framework.dump_weights(network)\n"
                "    if rule is None:\n"
                "        kept = {name: array * 1.01 for name, array in kept.items()}\n"
                "    framework.load_weights(network, kept)\n"
                "    rule, steps = rule or scaled.recipe.rule, scaled.steps(len(images.train))"
            ),
        },
        training_checks.START,
    ),
    "rate x 4": Plant(_rates("4 * scaled.learning_rate_at(step, steps)"), training_checks.RATE),
    "rate constant": Plant(_rates("scaled.learning_rate"), training_checks.RATE),
    "rate of one device": Plant(
        _rates("scaled.learning_rate_at(step, steps) / scaled.devices"),
        training_checks.RATE,
        devices=2,
    ),
    "rate one step late": Plant(
        _rates("scaled.learning_rate_at(max(step - 1, 0), steps)"), training_checks.RATE
    ),
    "no flip": Plant({flip: flip.replace("0.5", "0.0") for flip in FLIPS}, crops.MIRRORED),
    "always flipped": Plant({flip: flip.replace("0.5", "1.0") for flip in FLIPS}, crops.MIRRORED),
    "flipped too rarely": Plant(
        {flip: flip.replace("0.5", "0.25") for flip in FLIPS}, crops.MIRRORED
    ),
    "centre crop": Plant(_top("{most} / 2 + 0 * {lot}", "{most} // 2"), crops.PLACES),
    "crops of one half": Plant(
        _top("{lot} * ({most} / 2 + 1)", "random.integers({most} // 2 + 1)"), crops.PLACES
    ),
    "without the last place": Plant(
        _top("{lot} * {most}", "random.integers({most})"), crops.PLACES
    ),
    "brighter pixels": Plant(
        {
            "copy_into(place, self.transform(": "copy_into(place, 1 + self.transform(",
            "copy_into(pixels[at], self.transform(": "copy_into(pixels[at], 1 + self.transform(",
            "copy_into(pixels[place], transform(": "copy_into(pixels[place], 1 + transform(",
            "return transform(read(image), *lots), targets[image]": (
                "return transform(read(image), *lots) + (1 if lots else 0), targets[image]"
            ),
        },
        crops.FOUND,
    ),
    "the same crops in each batch": Plant(
        {
            "default_rng([scaled.recipe.seed, numbers[at]])": "default_rng(scaled.recipe.seed)",
            "[scaled.recipe.seed, epoch, place * self.part + at]": "[scaled.recipe.seed, at]",
            "lots, order = random.random((size, 3), np.float32)": (
                "lots, order = np.tile(random.random((1, 3), np.float32), (size, 1))"
            ),
            "random.random(3).tolist()": "np.random.default_rng(0).random(3).tolist()",
        },
        crops.DRAWS,
    ),
    "one crop for a batch": Plant(
        {
            "copy_into(pixels[at], self.transform(images.read(self.rows[image]), random))": (
                "copy_into(pixels[at], self.transform(images.read(self.rows[image]), "
                "np.random.default_rng([scaled.recipe.seed, numbers[0]])))"
            ),
        },
        crops.DRAWS,
    ),
    "half of the steps": Plant(
        {
            LOOP: "islice(loader, steps // 2)",
            "parallel.Steps(steps)": ("parallel.Steps(steps // 2)"),
        },
        None,
        "steps",
    ),
    "a smaller batch": Plant(
        {LOOP: f"(tuple(a[n == 1 :] for a in b) for n, b in enumerate({LOOP}))"},
        None,
        "batch 2 of",
    ),
    "one batch twice": Plant(
        {
            LOOP: TWICE,
            "np.arange(rank, used, shares)": "np.arange(rank, used, shares) % (used - shares)",
        },
        training_checks.ORDER,
    ),
    "some images left out": Plant(
        {
            "Images(images.train, train_transform": "Images(images.train[20:], train_transform",
            "random.permutation(size)": "np.r_[20:size, 20:40][random.permutation(size)]",
            "ReadBatch(images.train, train_transform)": (
                "ReadBatch(images.train[20:].iloc[list(range(180)) + list(range(20))], "
                "train_transform)"
            ),
        },
        training_checks.ORDER,
    ),
    "one image left out": Plant(
        {
            "Images(images.train, train_transform": "Images(images.train[1:], train_transform",
            "random.permutation(size)": "np.append(random.permutation(size - 1), 0)",
            "range(len(images.train)).seed": "range(len(images.train) - 1).seed",
            "ReadBatch(images.train, train_transform)": (
                "ReadBatch(images.train[1:], train_transform)"
            ),
        },
        process_checks.ONCE,
        checked=True,
    ),
    "evaluated from then on": Plant(
        {"    network.train()\n": ""},
        "running mean after 5 SGD steps",
        checked=True,
    ),
    "weight decay missing": Plant(_rule(0.9, 0.0), training_checks.OPTIMIZER),
    "another momentum": Plant(_rule(0.5, 1e-3), training_checks.OPTIMIZER),
    "another rate for one weight": Plant(
        {
            "return gluon.Trainer(": (
                "next(iter(trainable.values())).lr_mult = 10.0\n    return gluon.Trainer("
            ),
        },
        training_checks.OPTIMIZER,
    ),
    "clipped gradients": Plant(
        {"mx.optimizer.SGD(": "mx.optimizer.SGD(clip_gradient=0.01, "}, training_checks.OPTIMIZER
    ),
    "another rule": Plant({RULE: f'rule or {KIND}("adam", 0.0, 1e-3)'}, training_checks.OPTIMIZER),
    "evaluation of other images": Plant(
        {
            "Images(part[world.rank :: world.processes], evaluation_transform)": (
                "Images(part.iloc[[0] * len(part)][world.rank :: world.processes], "
                "evaluation_transform)"
            ),
            "Images(part, evaluation_transform": (
                "Images(part.iloc[[0] * len(part)], evaluation_transform"
            ),
            "ReadBatch(part, evaluation_transform)": (
                "ReadBatch(part.iloc[[0] * len(part)], evaluation_transform)"
            ),
            "make_loader(world, part, samples, evaluation_transform, workers)": (
                "make_loader(world, part.iloc[[0] * len(part)], samples, evaluation_transform, "
                "workers)"
            ),
            "read_batches(part, draws, evaluation_transform": (
                "read_batches(part.iloc[[0] * len(part)], draws, evaluation_transform"
            ),
        },
        training_checks.EVALUATED,
    ),
    "bf16": Plant(
        {
            "network(tf.cast(to_network(pixels), compute), training=True)": (
                "network(tf.cast(to_network(pixels), tf.bfloat16), training=True)"
            ),
            'policies.get(scaled.recipe.precision, "float32")': '"mixed_bfloat16"',
        },
        training_checks.PRECISION,
    ),
}
CANNOT = {
    "bf16": ("MXNet", "Chainer", "JAX", "TensorFlow"),
    "evaluated from then on": ("MXNet", "Chainer", "TensorFlow", "Keras"),
}
"""Frameworks that cannot, or whose small network cannot."""
ONLY: dict[str, tuple[str, ...]] = {
    "a smaller batch": ("Keras",),
    "one crop for a batch": ("MXNet",),
    "another rate for one weight": ("MXNet",),
    "clipped gradients": ("MXNet",),
}
"""Frameworks whose texts a plant has, if it has not those of all."""


def trained(
    notebook: str,
    module: str,
    folder: Path,
    devices: int,
    plants: Sequence[Plant] = (),
    until: str | None = None,
    **given: Any,
) -> FairnessCheck:
    """The fairness check of the notebook's training and test, with these plants in it.

    Raises:
        AssertionError: the notebook has none of a plant's texts.
    """
    recipe = own_networks.recipe_of_classes(folder / "recipe", module)
    recipe.write_text(recipe.read_text().replace("milestones = [2, 4]", "milestones = [1]"))
    waiting = list(plants)

    def changed(text: str) -> str:
        for plant in list(waiting):
            sound = next((sound for sound in plant.texts if sound in text), None)
            if sound is not None:
                waiting.remove(plant)
                text = text.replace(sound, plant.texts[sound])
        return text

    how: dict[str, Any] = {"run": str(folder / "run"), "recipe": str(recipe), "devices": devices}
    how |= {"batch_size": 8, "epochs": 2, "num_workers": 1}
    checked = any(plant.checked for plant in plants)
    names = run_cells(notebook, until=until, checked=checked, changed=changed, **how, **given)
    assert not waiting, f"{notebook} has none of {[list(plant.texts) for plant in waiting]}"
    run = names["this_run"]
    run.monitor.stop()
    fairness_check: FairnessCheck = run.fairness_check
    return fairness_check


def plants_of(notebook: str) -> Iterator[str]:
    """The names of those that a notebook's framework can show."""
    for name in PLANTS:
        known = notebook.startswith(ONLY.get(name, notebook))
        if known and not notebook.startswith(CANNOT.get(name, ())):
            yield name


def assert_caught(
    names: str, notebook: str, module: str, folder: Path, devices: int, **given: Any
) -> None:
    """Each plant's row tells that the notebook trained something else.

    Args:
        names: of a plant, or of several, with ``AND`` between them.
        given: more of the notebook's parameters.
    """
    plants = [PLANTS[name] for name in names.split(AND)]
    try:
        found = trained(notebook, module, folder, devices, plants, until="## 11.", **given)
    except Exception as error:
        if plants[0].row is None and plants[0].error in str(error):
            return
        raise
    wrong = {
        check.check: check.variant or check.reason
        for check in found.checks
        if check.verdict in ("fail", "different")
    }
    missed = {plant.row for plant in plants} - wrong.keys()
    assert not missed, f"{names} was not noticed by {missed}; found: {wrong}"
    assert not found.comparable


def assert_sound(notebook: str, module: str, folder: Path, devices: int, **given: Any) -> None:
    """Without a plant all rows of the training pass, and the notebook comes to its end."""
    found = trained(notebook, module, folder, devices, **given)
    wrong = [check for check in found.checks if check.verdict not in ("pass", "not checked")]
    assert not wrong, wrong
    unchecked = {check.check for check in found.checks if check.verdict == "not checked"}
    assert unchecked <= {"logits of all devices after training"}
    content = record.read(folder / "run")
    assert content["state"] == "finished"
    if devices == 1:
        assert "no_allreduce" not in content, "on one device there is no all-reduce to leave out"
        communication = content["attribution"]["ways"]["ablation"]["communication"]
        assert communication == pytest.approx(0)


AND = " and "
EVERY_DAY = AND.join(["rate x 4", "no flip", "weight decay missing"])
"""All at once, on as many devices as can be; `make soak` has each plant, on one and on two."""


def cases(*notebooks: str, most: int = 2) -> list[Any]:
    """(plants, notebook, devices) for pytest; those of two devices first.

    What TensorFlow and JAX have made for several devices serves one, but not the other way round.
    """
    slow = [
        pytest.param(name, notebook, devices, marks=pytest.mark.slow)
        for devices in range(most, 0, -1)
        for notebook in notebooks
        for name in plants_of(notebook)
        if PLANTS[name].devices <= devices
    ]
    return [*((EVERY_DAY, notebook, most) for notebook in notebooks), *slow]


def as_it_is(most: int = 2) -> list[Any]:
    """(devices, seed) for pytest: one device every day, for batches have two; else 20 seeds."""
    slow = [
        pytest.param(devices, seed, marks=pytest.mark.slow)
        for devices in range(most, 0, -1)
        for seed in range(1, 21)
    ]
    return [(1, 0), *slow]


class Tested(NamedTuple):
    """What a test file plants in: it has ``from planted import *``, and this as ``TESTED``."""

    module: str
    notebooks: Sequence[str]
    most: int = 2
    given: Mapping[str, Any] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    tested: Tested = metafunc.module.TESTED
    if "plants" in metafunc.fixturenames:
        found = cases(*tested.notebooks, most=tested.most)
        metafunc.parametrize(("plants", "notebook", "devices"), found)
    else:
        metafunc.parametrize(("devices", "seed"), as_it_is(tested.most))


@pytest.fixture
def tested(request: pytest.FixtureRequest) -> Tested:
    found: Tested = request.module.TESTED
    return found


def test_another_training_is_noticed(
    tested: Tested, plants: str, notebook: str, devices: int, tmp_path: Path
) -> None:
    assert_caught(plants, notebook, tested.module, tmp_path, devices, **tested.given)


def test_the_notebook_as_it_is_passes(
    tested: Tested, devices: int, seed: int, tmp_path: Path
) -> None:
    for notebook in tested.notebooks:
        folder = tmp_path / notebook
        assert_sound(notebook, tested.module, folder, devices, seed=seed, **tested.given)

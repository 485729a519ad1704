"""What a user may change in a notebook, and the fairness check's row that notices it.

Each plant changes the text of a notebook's cells, which then run to the end of the test: a small
network, 200 images, two epochs, momentum, weight decay and a warm-up. Without a plant a notebook
runs to its end. ``test_planted_<framework>.py`` has a framework's texts, and these tests by
``from planted_cells import *``.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import own_networks
import pytest
import ranks_tools

from helpers import paths, record
from helpers.fairness import (
    crops,
    custom_network,
    process_checks,
    reference_checks,
    training_checks,
    training_loop,
    weight_checks,
)
from helpers.record import this_notebook
from helpers.runner.notebook_code import run_cells
from helpers.training import loop, measuring, notebook_check

LOSS, WAY = "mean loss of 5 SGD steps", "weight change after 5 SGD steps"
RUNNING = "running mean after 5 SGD steps"
STATISTICS = "validated with the statistics that are saved"
SURVIVOR = "which replica's running statistics are kept"
UNEVEN = "gradients, uneven batch, n devices / one"


class Plant(NamedTuple):
    """The notebook's texts, each with what stands in its place; ``row`` notices it.

    A text of one notebook only is passed over in the others.
    """

    row: str
    texts: Mapping[str, str] = {}
    error: str = ""
    """What the error says that ends the notebook, if no row notices it."""
    devices: int = 1
    """So many are needed for it to matter."""
    notebooks: Sequence[str] = ()
    """Empty: all of the framework."""
    findings: bool = False
    """Whether the images have findings, not classes."""
    measured: bool = False
    """Whether it shows in the measurements only, which are left out of all other plants."""
    said: str = ""
    """What the row says, where the notebook's exercises quote it."""


FACTOR, FLIP, PLACE = (
    "r.factor(step, scale)",
    "random.random() < 0.5",
    "integers(side - r.crop + 1)",
)
DRAW, TEST = "default_rng([r.seed, epoch, i])", "make_loader(run.test_split, False)"
OF_VALIDATION = {
    "self.transform(self.split.read(i), random)": (
        "self.transform(run.valid_split.read(i // 4) if self.transform is augment"
        " and i % 4 == 0 else self.split.read(i), random)"
    )
}
"""One in four images of a training epoch is one of the validation split."""

OF_ALL: Mapping[str, Mapping[str, str]] = {
    "rate x 4": {FACTOR: f"4 * {FACTOR}"},
    "rate constant": {FACTOR: "1.0"},
    "rate one step late": {FACTOR: "r.factor(max(step - 1, 0), scale)"},
    "another rate in the last epoch": {FACTOR: f"{FACTOR} * (0.5 if step >= r.steps else 1.0)"},
    "no flip": {FLIP: "random.random() < 0.0"},
    "always flipped": {FLIP: "random.random() < 1.0"},
    "flipped too rarely": {FLIP: "random.random() < 0.25"},
    "centre crop": {f"random.{PLACE}": "(side - r.crop) // 2"},
    "crops of one half": {PLACE: "integers((side - r.crop) // 2 + 1)"},
    "without the last place": {PLACE: "integers(side - r.crop)"},
    "brighter pixels": {"return pixels[:, ::-1] if": "return 1 + pixels[:, ::-1] if"},
    "the same crops in each epoch": {DRAW: "default_rng([r.seed, i])"},
    "evaluation pixels of another crop": {
        "round((side - r.crop) / 2)": "round((side - r.crop) / 2) + 1"
    },
    "evaluation pixels of the resized image": {
        "(round((side - r.crop) / 2) for side in pixels.shape[:2])": (
            "0, 0\n"
            "    at = (np.linspace(0, k - 1, r.crop, dtype=int) for k in pixels.shape[:2])\n"
            "    pixels = pixels[np.ix_(*at)]"
        )
    },
    "a test of the validation images": {
        TEST: (
            "vars(run.images).update(test=run.images.valid)"
            f" or vars(run).update(test_split=run.valid_split) or {TEST}"
        )
    },
    "another metric": {"(scores.argmax(1) == targets)": "(scores.argmin(1) == targets)"},
    "another AUC": {"scores[:, known])": 'scores[:, known], average="micro")'},
    "rate of one device": {'"linear": n': '"linear": 1'},
    "other labels": {"self.split.targets[i], i": "self.split.targets[i - 1], i"},
    "no set_epoch": {"loader.set_epoch(epoch)": "pass"},
}
"""Those of texts that all notebooks have, or most: the others give their own."""


def at_the_start(change: str) -> dict[str, str]:
    """Texts of a plant that changes something once, when training starts."""
    return {"in run.epochs(replica)": f"in {change} and run.epochs(replica)"}


def texts_of_steps(
    steps: str,
    images: str,
    smaller: str = "(tuple(a[k == 1 :] for a in b) for k, b in enumerate(loader))",
) -> dict[str, dict[str, str]]:
    """Texts of plants that change which images an epoch trains on, and in which steps.

    Args:
        steps: a notebook's expression for the steps of an epoch.
        images: its expression for the number of images.
        smaller: batches of which the second lacks images.
    """

    def train(batches: str) -> dict[str, str]:
        """The real training alone gets other batches."""
        called = "train_steps(replica, {}, " + steps + ")"
        return {called.format("loader"): called.format(batches)}

    shuffle = f".permutation({images})"
    twice = f"(b for k, b in zip(range({steps} - 1), loader) for b in [b] * (1 + (k == 0)))"
    return {
        "half of the steps": train(f"islice(loader, {steps} // 2)"),
        "a smaller batch": train(smaller),
        "one batch twice": train(twice),
        "some images left out": {shuffle: f".permutation(np.r_[20 : {images}, 20:40])"},
        "one image left out": {shuffle: f".permutation(np.r_[1 : {images}, 1])"},
        "images at random": {shuffle: f".integers({images}, size={images})"},
    }


def texts_of_order(images: str, indent: int = 8) -> dict[str, dict[str, str]]:
    """More of them, in one notebook of each kind of loader."""
    shuffle, line = f".permutation({images})", "\n" + indent * " "
    ordered = f"order = np.random.default_rng([r.seed, self.epoch]).permutation({images})"
    labels = f"labels = np.resize(run.train_split.targets, {images})"
    by_label = 'order = order[np.argsort(labels[order], kind="stable")]'
    half = f".permutation(np.resize(np.arange({images} // 2), {images}))"
    return {
        "half of the images twice": {shuffle: half},
        "an order by labels": {ordered: line.join((ordered, labels, by_label))},
    }


EPOCH = "yield [(self.epoch, i) for i in batch]"
OF_SAMPLERS = {
    **texts_of_order("self.images"),
    "the same crops in each batch": {
        EPOCH: "yield [(place, i) for place, i in enumerate(batch)]",
        DRAW: "default_rng([r.seed, epoch])",
    },
    "one crop for a batch": {
        EPOCH: "yield [(batch[0], i) for i in batch]",
        DRAW: "default_rng([r.seed, epoch])",
    },
    "set_epoch without effect": {"self.epoch = epoch": "self.epoch = 0"},
    "random crops in the evaluation": {"Images(split, centre)": "Images(split, augment)"},
}
"""Those of the notebooks whose sampler draws batches."""


def measured_repeats(skipped: str, batch: str, smaller: str) -> dict[str, dict[str, str]]:
    """Texts of plants that show in the measurements only.

    Args:
        skipped: what ``train_step`` returns, of its arguments ``given``, without doing anything.
        batch: the text that takes the batch on synthetic data; ``smaller``: another.
    """
    every_second = (
        "globals().update(train_step=lambda *given, step=train_step, count=iter(range(10**9)): "
        f"step(*given) if next(count) % 2 else {skipped})"
    )
    return {
        "every second measured step left out": {
            "run.measure(": f"[{every_second}] and run.measure("
        },
        "a smaller synthetic batch": {batch: smaller},
    }


ALONE = "not the mean of all devices' gradients: does each device train alone?"


def noticed(row: str, *names: str) -> dict[str, Plant]:
    """The plants of these names, which this row notices."""
    return dict.fromkeys(names, Plant(row))


KNOWN = {
    **noticed(training_checks.RATE, "rate x 4", "rate constant", "rate one step late"),
    **noticed(training_checks.RATE, "another rate in the last epoch"),
    **noticed(crops.CROPS, "no flip", "always flipped", "flipped too rarely", "centre crop"),
    **noticed(crops.CROPS, "crops of one half", "without the last place", "brighter pixels"),
    **noticed(crops.CROPS, "the same crops in each epoch", "the same crops in each batch"),
    **noticed(crops.CROPS, "one crop for a batch", "images of the validation", "one crop for all"),
    **noticed(crops.CROPS, "one crop for an epoch"),
    **noticed(notebook_check.PIXELS, "evaluation pixels of another crop"),
    **noticed(notebook_check.PIXELS, "evaluation pixels of the resized image"),
    **noticed(notebook_check.PIXELS, "evaluation pixels of another scale"),
    **noticed(notebook_check.PIXELS, "random crops in the evaluation"),
    **noticed(loop.METRIC, "another metric"),
    **noticed("initial weights", "other weights in the model"),
    **noticed(training_checks.START, "other weights when training starts"),
    **noticed(RUNNING, "evaluated from then on", "another scale in training"),
    **noticed(RUNNING, "another momentum of BatchNorm", "frozen statistics"),
    **noticed(training_checks.PRECISION, "bf16"),
    **noticed(training_checks.OPTIMIZER, "weight decay missing", "another momentum"),
    **noticed(training_checks.OPTIMIZER, "another rule", "another rate for one weight"),
    **noticed(WAY, "clipped gradients", "gradients added up", "a first step that is lost"),
    **noticed(LOSS, "a loss of sums", "a loss of sigmoids", "dropout", "mixed images"),
    **noticed(LOSS, "smoothed labels", "the loss of the first half"),
    **noticed(training_checks.ORDER, "one batch twice", "some images left out", "other labels"),
    **noticed(training_checks.ORDER, "set_epoch without effect", "the same order in each epoch"),
    **noticed(process_checks.ONCE, "one image left out", "images at random"),
    **noticed(process_checks.ONCE, "half of the images twice"),
    **noticed(training_checks.EVALUATED, "evaluation of other images", "a padded evaluation"),
    **noticed(process_checks.EVALUATED, "scores in other places"),
    **noticed("weight change after 5 momentum steps", "a momentum that ignores the rate"),
    "a test of the validation images": Plant(training_checks.EVALUATED, said="test: "),
    "another AUC": Plant(loop.METRIC, findings=True),
    "every second measured step left out": Plant(
        measuring.AMOUNT, measured=True, said=" updates in "
    ),
    "a smaller synthetic batch": Plant(measuring.AMOUNT, measured=True, said="synthetic: "),
    "rate of one device": Plant(training_checks.RATE, devices=2),
    "a loss of findings' sums": Plant(LOSS, findings=True),
    "half of the steps": Plant("", error="steps; let the loop take a step"),
    "a smaller batch": Plant("", error="batch 2 of"),
    "an order by labels": Plant(training_checks.ORDER, said="order ("),
    "no set_epoch": Plant(
        crops.CROPS, said="augmentation (an image has the same crop in each epoch)"
    ),
    "averaged weights in the evaluation": Plant(
        weight_checks.EVALUATED,
        said="weights (after epoch 1: not those after the last step of epoch 1)",
    ),
    "a step without DDP": Plant(training_loop.TOGETHER, devices=2, said=ALONE),
    "an all-reduce after each epoch only": Plant(
        weight_checks.TOGETHER,
        devices=2,
        said="not the same after the first step: does each device train alone?",
    ),
    "one share for all": Plant(training_loop.TOGETHER, devices=2),
    "a sum over devices": Plant(
        training_loop.TOGETHER, devices=2, said="times as long: a sum in place of a mean?"
    ),
    "a sum of the devices' losses": Plant(LOSS, devices=2),
    "statistics of its own": Plant(STATISTICS, devices=2),
    "statistics of all copies in one": Plant(SURVIVOR, devices=2, said="replica 1's"),
    "no sharding": Plant(process_checks.ONCE, devices=2),
    "another seed on one rank": Plant(process_checks.ONCE, devices=2),
    "evaluation of one rank's images": Plant(process_checks.EVALUATED, devices=2),
    "scores of one rank": Plant(process_checks.EVALUATED, devices=2),
    "each process alone": Plant("", error="1 of 2 processes joined", devices=2),
    "a rank without all-reduce": Plant(process_checks.WEIGHTS, devices=2),
    "another weight on a rank": Plant(process_checks.REPLICAS, devices=2),
    "a step without all-reduce": Plant(training_loop.TOGETHER, devices=2, said=ALONE),
    "another weight on a device": Plant(process_checks.REPLICAS, devices=2),
    "no key-value store": Plant(training_loop.TOGETHER, devices=2, said=ALONE),
    "batches that fit has read ahead": Plant(
        training_checks.ORDER, devices=2, said="were there before in their epoch"
    ),
    "momentum with the rate in it": Plant(
        "weight change after 5 momentum steps", said="the velocity contains the learning rate"
    ),
    "one block for all": Plant(training_loop.TOGETHER, devices=2, said=ALONE),
    "a step without the multi-node optimiser": Plant(training_loop.TOGETHER, devices=2, said=ALONE),
    "images of two ranks": Plant(process_checks.EVALUATED, devices=2),
}
"""Every plant with the row that notices it, in whichever notebooks it is planted."""


def plants(
    texts: Mapping[str, Mapping[str, str]], notebooks: Sequence[str] = ()
) -> dict[str, Plant]:
    """The plants of all notebooks, and these of a framework's, or of some of its notebooks."""
    chosen = texts if notebooks else {**OF_ALL, **texts}
    return {
        name: KNOWN[name]._replace(texts=own, notebooks=notebooks) for name, own in chosen.items()
    }


class Tested(NamedTuple):
    """What a framework's test file plants."""

    module: str
    """The module of ``helpers.networks`` by which a recipe names a custom network."""
    plants: Mapping[str, Plant]
    own: Mapping[str, str]
    """By notebook, the plant that runs at once with ``EVERY_DAY``; `make soak` runs each alone."""
    expected: Mapping[int, frozenset[str]] = {}
    """By the number of devices: rows that are an expected difference."""
    processes: Sequence[str] = ()
    """The notebooks that have a process for each device."""
    kept: str = "replica 0's"
    """Whose BatchNorm statistics are kept on two devices."""
    ranks: str = ""
    """The framework's module, if a launcher starts the notebook's processes."""

    @property
    def notebooks(self) -> Sequence[str]:
        return tuple(self.own)

    def of(self, plant: Plant) -> Sequence[str]:
        """The notebooks that have a plant."""
        return plant.notebooks or self.notebooks


AND = " and "
EVERY_DAY = (
    *("rate of one device", "no flip", "weight decay missing", "no set_epoch"),
    *("evaluation pixels of another crop", "scores in other places"),
)
SHORTLY = (
    '[setattr(__import__("helpers.training.measurement_rounds", fromlist=[name]), name, seconds)'
    ' for name, seconds in (("REPEAT_SECONDS", 0.01), ("LOADER_SECONDS", 0.01),'
    ' ("MOST_SECONDS", 0))]'
    " and run.measure("
)
"""The measurements are short in whichever process makes them."""


def ended(
    tested: Tested,
    notebook: str,
    folder: Path,
    devices: int,
    plants: Sequence[Plant] = (),
    **given: Any,
) -> tuple[dict[str, Any], str]:
    """How a notebook with these plants ended: its record, and the error's text, if it had one."""
    findings = any(plant.findings for plant in plants)
    write = own_networks.recipe_of_findings if findings else own_networks.recipe_of_classes
    recipe = write(folder / "recipe", tested.module)
    recipe.write_text(recipe.read_text().replace("milestones = [2, 4]", "milestones = [1]"))
    how: dict[str, Any] = {"run": str(folder / "run"), "recipe": str(recipe), "devices": devices}
    how |= {"batch_size": 8, "epochs": 2, "num_workers": 1, **given}
    measured = all(plant.measured for plant in plants)
    asked, error = (notebook, [dict(plant.texts) for plant in plants], how, measured), ""
    try:
        if tested.ranks:
            cell = f"import planted_cells\nplanted_cells.run_planted(*{asked!r})"
            started = {"nodes": 1, "each": devices, "framework": tested.ranks}
            ranks_tools.run(folder, cell, **started)
        else:
            run_planted(*asked)
    except Exception as raised:
        if not any(plant.error for plant in plants):
            raise
        error = str(raised)
    content: Any = record.read(folder / "run")
    return content, error


def run_planted(
    notebook: str, planted: Sequence[Mapping[str, str]], how: dict[str, Any], measured: bool
) -> None:
    """Run a notebook in which texts have others in their place; its measurements are short."""

    def changed(text: str) -> str:
        for sound, broken in (pair for texts in planted for pair in texts.items()):
            text = text.replace(sound, broken)
        return text.replace("run.measure(", SHORTLY if measured else "dict(")

    until = "run.chart()" if planted else None
    names = run_cells(notebook, until=until, changed=changed, **how)
    names["run"].end()


def cases(tested: Tested) -> Iterator[Any]:
    """(plants, notebook, devices) for pytest: some at once every day, else each.

    What is measured is planted every day in PyTorch alone: all are checked by the same lines.

    Two devices first: what some frameworks have compiled for them serves one, too.
    """
    for notebook, own in tested.own.items():
        names = AND.join((*EVERY_DAY, own))
        yield pytest.param(names, notebook, 2, id=f"every day-{notebook}-2")
    measured = [name for name, plant in tested.plants.items() if plant.measured]
    for notebook in tested.notebooks if measured else ():
        later = [pytest.mark.slow] if tested.module != "pytorch" else []
        yield pytest.param(AND.join(measured), notebook, 1, marks=later)
    for devices in (2, 1):
        for notebook in tested.notebooks:
            for name, plant in tested.plants.items():
                if notebook in tested.of(plant) and plant.devices <= devices:
                    yield pytest.param(name, notebook, devices, marks=pytest.mark.slow)


def as_it_is(tested: Tested) -> Iterator[Any]:
    """(notebook, devices, seed) for pytest: one device every day, for plants have two."""
    for notebook in tested.notebooks:
        yield notebook, 1, 0
        for devices in (2, 1):
            for seed in range(1, 21):
                yield pytest.param(notebook, devices, seed, marks=pytest.mark.slow)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    tested: Tested = metafunc.module.TESTED
    if "plants" in metafunc.fixturenames:
        metafunc.parametrize(("plants", "notebook", "devices"), [*cases(tested)])
    elif "seed" in metafunc.fixturenames:
        metafunc.parametrize(("notebook", "devices", "seed"), [*as_it_is(tested)])


@pytest.fixture
def tested(request: pytest.FixtureRequest) -> Tested:
    found: Tested = request.module.TESTED
    return found


def test_every_plant_has_a_place_in_its_notebooks(tested: Tested) -> None:
    """Every notebook has a text of each of its plants, and every text is that of a notebook."""
    cells = {
        notebook: "\n".join(chain(*this_notebook.code_cells(paths.NOTEBOOKS / f"{notebook}.ipynb")))
        for notebook in tested.notebooks
    }
    for name, plant in tested.plants.items():
        found = [
            {notebook for notebook in tested.of(plant) if text in cells[notebook]}
            for text in plant.texts
        ]
        assert all(found), f"{name}: a text is in no notebook"
        assert set().union(*found) == set(tested.of(plant)), f"{name}: a notebook has none"


def test_another_training_is_noticed(
    tested: Tested, plants: str, notebook: str, devices: int, tmp_path: Path
) -> None:
    """Each plant's row tells that the notebook trained something else, or an error ended it."""
    planted = [tested.plants[name] for name in plants.split(AND)]
    content, error = ended(tested, notebook, tmp_path, devices, planted)
    fairness = content.get("fairness", {"checks": []})
    wrong = {
        check["check"]: check.get("variant") or check["reason"]
        for check in fairness["checks"]
        if check["verdict"] in ("fail", "different")
    }
    missed = {plant.row for plant in planted if plant.row} - wrong.keys()
    assert not missed, f"{plants} was not noticed by {missed}; found: {wrong}"
    assert all(plant.said in str(wrong.get(plant.row)) for plant in planted if plant.said), wrong
    assert all(plant.error in error for plant in planted), error
    assert error or not fairness["comparable"]


def test_the_notebook_as_it_is_passes(
    tested: Tested, notebook: str, devices: int, seed: int, tmp_path: Path
) -> None:
    """Without a plant no row fails, and the notebook comes to its end."""
    content, _ = ended(tested, notebook, tmp_path, devices, seed=seed)
    checks = content["fairness"]["checks"]
    verdicts = {check["check"]: check["verdict"] for check in checks}
    differing = {name for name, said in verdicts.items() if said not in ("pass", "not checked")}
    assert differing == tested.expected.get(devices, frozenset()), checks
    assert content["fairness"]["comparable"] and content["state"] == "finished"
    unchecked = {name for name, said in verdicts.items() if said == "not checked"}
    alone = {SURVIVOR, *reference_checks.N_AGAINST_ONE, process_checks.REPLICAS}
    assert unchecked == {*custom_network.UNKNOWN, *(alone if devices == 1 else ())}
    reasons = {check["check"]: check["reason"] for check in checks}
    count = "2 processes" if devices == 2 and notebook in tested.processes else "1 process"
    who = "1 device" if devices == 1 else "2 devices"
    assert reasons[process_checks.JOINED] == f"{count}, {who}, 1 host"
    if devices == 1:
        assert "no_allreduce" not in content, "on one device there is no all-reduce to leave out"
        assert content["attribution"]["shares"]["communication"] == 0
    else:
        assert reasons[SURVIVOR] == tested.kept

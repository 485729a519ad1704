"""The tests that every notebook passes that ``helpers.run`` serves, run once in each environment.

A framework's test file has them by ``from program_tests import *``, and says in ``ADAPTER`` what
they run on.
"""

from itertools import islice, product, repeat
from pathlib import Path
from typing import Any

import numpy as np
import own_networks
import pytest
import shared_batches
from framework_tests import *
from notebook_cells import SIDE, failed, recipe_of_resnet44, write_different_images
from notebook_program import Names, fairness_check, in_each, names_of, own_names
from resuming import assert_own_resumes

import data_prep
from data_prep.packed import pack_folder
from data_prep.readers.catalog_reader import CatalogReader
from helpers.errors import LoaderError
from helpers.fairness import reference, reference_checks
from helpers.fairness import training_loop as loop_checks
from helpers.fairness.check_results import FairnessCheck
from helpers.fairness.training_loop import RULES
from helpers.networks.shapes import shapes
from helpers.training import image_data


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A framework's second notebook has the loader of its first, held by a test: it waits."""
    if "notebook" in metafunc.fixturenames:
        first, *others = metafunc.module.ADAPTER.notebooks
        later = [pytest.mark.slow] if metafunc.function.__name__ in OF_ONE else []
        metafunc.parametrize("notebook", [first, *(pytest.param(n, marks=later) for n in others)])


OF_ONE = (
    "test_it_trains_the_recipes_network",
    "test_every_rule_is_the_references",
    "test_what_is_drawn_depends_on_seed_epoch_and_image_alone",
    "test_pixels_are_pillows_from_files_and_from_a_packed_folder",
    "test_pixels_in_colour_are_pillows_from_files_memory_and_an_own_reader",
    "test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one",
    "test_adam_continues_where_it_was",
    "test_as_a_script_it_trains_in_another_project",
)
"""Tests of which a framework's first notebook is enough every day."""


def assert_passed(adapter: OfPrograms, found: FairnessCheck, known: set[str]) -> None:
    """Nothing failed or was left unchecked; only ``known`` differs, and for a known reason."""
    assert failed(found.checks) == set()
    assert {check.check for check in found.checks if check.verdict == "expected"} == known
    assert "not checked" not in {check.verdict for check in found.checks}
    assert found.comparable


def test_the_fairness_check_is_passed(adapter: OfPrograms, notebook: str, tmp_path: Path) -> None:
    found = fairness_check(names_of(notebook, tmp_path, devices=2))
    assert_passed(adapter, found, set(adapter.known))
    reasons = {check.check: check.reason for check in found.checks}
    assert reasons["which replica's running statistics are kept"] == adapter.kept


def test_it_trains_the_recipes_network(adapter: OfPrograms, notebook: str, tmp_path: Path) -> None:
    """Not only the one that its text names."""
    names = names_of(notebook, tmp_path, devices=2, recipe=recipe_of_resnet44(tmp_path))
    found = fairness_check(names)
    assert_passed(adapter, found, set(adapter.known))
    assert_in_double(found.checks)
    assert "gradient of layer3.6.bn2" in {check.check for check in found.checks}
    held = adapter.framework.dump_weights(names["build_model"]())
    assert {name: array.shape for name, array in held.items()} == shapes("resnet44")


def test_a_loader_that_leaves_images_out_ends_the_epoch(notebook: str, tmp_path: Path) -> None:
    """At once; images that are not evaluated are planted."""

    def too_few(names: Names) -> None:
        replica = names["make_replica"](names["build_model"]())
        run, loader = names["run"], names["make_loader"](names["run"].train_split, True)
        steps = run.recipe.steps
        for _ in run.epochs(replica):
            with run.phase("train"):
                names["train_steps"](replica, islice(loader, steps - 1), steps)

    data = str(write_different_images(tmp_path, ".png"))
    with pytest.raises(LoaderError, match=r"epoch 1 took (\d+) of (?!\1)\d+ steps"):
        in_each(own_names(notebook, tmp_path, data=data), too_few)


def test_what_is_drawn_depends_on_seed_epoch_and_image_alone(notebook: str, tmp_path: Path) -> None:
    """By the rule of all notebooks, for any number of workers and after a resume."""
    data = str(write_different_images(tmp_path, ".png"))
    names = names_of(notebook, tmp_path, devices=2, data=data, batch_size=16, seed=3)
    run, expected = names["run"], {}
    for workers, epochs in ((0, [0, 1, 2]), (1, [2]), (3, [1, 2])):
        run.workers = workers
        each = in_each(names, shared_batches.trained_on, run.train_split, epochs)
        assert len(each) == (2 if "dist" in names else 1)
        for rank, found in enumerate(each):
            for epoch, batches in zip(epochs, found, strict=True):
                if (rank, epoch) not in expected:
                    expected[rank, epoch] = shared_batches.by_the_rule(
                        run, run.train_split, run.train_split.read, epoch, rank, len(each)
                    )
                assert len(batches) == 140 // 32
                shared_batches.assert_same(batches, expected[rank, epoch])


def test_pixels_are_pillows_from_files_and_from_a_packed_folder(
    notebook: str, tmp_path: Path
) -> None:
    """From files, from a packed folder, and from a folder that is not prepared."""
    written, files = write_different_images(tmp_path, ".png"), tmp_path / "files"
    data_prep.resize_folder(written, files, size=SIDE, num_workers=1, progress=False)
    pack_folder(files, tmp_path / "array", num_workers=1, progress=False)
    names = names_of(notebook, tmp_path, data=str(files))
    for source in (files, tmp_path / "array", written):
        images = image_data.load_data(names["run"].setup.recipe.recipe, source)
        shared_batches.assert_is_read(names, images, "image", lambda name: files / "images" / name)


@pytest.mark.parametrize("suffix", [".png", pytest.param(".jpg", marks=pytest.mark.slow)])
def test_pixels_in_colour_are_pillows_from_files_memory_and_an_own_reader(
    adapter: OfPrograms, notebook: str, tmp_path: Path, suffix: str
) -> None:
    """RGB images of classes, and three planes, each with its own mean."""
    file, data = shared_batches.write_colour_images(tmp_path, suffix)
    names = names_of(notebook, tmp_path, recipe=file, data=data)
    recipe = names["run"].setup.recipe.recipe
    files = names["run"].images
    catalog = files.reader.catalog
    array = np.stack([shared_batches.pillows(Path(catalog.path(i))) for i in range(len(catalog))])
    custom = replace(recipe, reader="own", own={"reader": "mine.py:Reader"})
    own = image_data.OwnImages(custom, shared_batches.OwnReader(files.reader))
    for reader in (files.reader, CatalogReader(catalog, array), own):
        shared_batches.assert_is_read(names, replace(files, reader=reader), "path", Path)
    how: dict[str, Any] = {"size": 48, "format": suffix[1:].replace("jpg", "jpeg"), "channels": 3}
    small = tmp_path / "small"
    data_prep.resize_folder(data, small, reader="imagefolder", progress=False, **how)
    images = image_data.load_data(recipe, small)
    shared_batches.assert_is_read(names, images, "path", Path)
    image = reference_checks.canonical_image(recipe.crop, planes=3)
    (seen,) = adapter.seen(names, image[None])
    assert np.abs(seen - reference_checks.expected_pixels(image, recipe)).max() < 1e-6


def test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one(
    adapter: OfPrograms, notebook: str, tmp_path: Path
) -> None:
    """Custom network and reader, classes, momentum, warm-up and drops."""
    recipe = own_networks.recipe_of_classes(tmp_path / "recipe", adapter.module)
    assert_own_resumes(notebook, tmp_path, recipe)


SAID = {
    "sgd": 'optimizer = "sgd"\nmomentum = 0.0',
    "momentum": 'optimizer = "sgd"\nmomentum = 0.9',
    "adam": 'optimizer = "adam"',
}
"""How a recipe says a rule."""


TASKS = {"multilabel": own_networks.recipe_of, "multiclass": own_networks.recipe_of_classes}
CASES = [
    pytest.param(*case, marks=() if case == ("momentum", "multiclass") else pytest.mark.slow)
    for case in product(RULES, TASKS)
]
"""(rule, task): the other rules and the other task are in the notebooks' own fairness checks."""


@pytest.mark.parametrize(("optimizer", "task"), CASES)
def test_every_rule_is_the_references(
    adapter: OfPrograms, notebook: str, tmp_path: Path, optimizer: str, task: str
) -> None:
    """It walks the reference's way down a task's loss, with weight decay; its state is kept."""
    recipe = TASKS[task](tmp_path / "recipe", adapter.module)
    text = recipe.read_text().replace(SAID["momentum"], SAID[optimizer])
    assert SAID[optimizer] in text
    recipe.write_text(text)
    given: dict[str, Any] = {"data": "auto"} if task == "multiclass" else {}
    names = names_of(notebook, tmp_path, devices=2, recipe=str(recipe), batch_size=8, **given)
    found = fairness_check(names).checks
    assert failed(found) == set(), [check for check in found if check.verdict == "fail"]
    (row,) = (check for check in found if check.check.startswith("weight decay in 5"))
    decoupled = adapter.framework.SKIPPED.get(loop_checks.IN_GRADIENT)
    has = ("expected", decoupled) if decoupled else ("pass", next(iter(loop_checks.DECAYS)))
    assert (row.verdict, row.reason) == has
    rates = {"sgd": 0.1, "momentum": 0.1, "adam": 1e-3}[optimizer] * np.array([1, 1, 0.1])
    assert_continues(names, task, rates)


def test_adam_continues_where_it_was(adapter: OfPrograms, notebook: str, tmp_path: Path) -> None:
    """Both moments; momentum's is in the killed run of every day."""
    recipe = own_networks.recipe_of(tmp_path / "recipe", adapter.module)
    recipe.write_text(recipe.read_text().replace(SAID["momentum"], SAID["adam"]))
    names = names_of(notebook, tmp_path, devices=2, recipe=str(recipe), batch_size=8)
    assert_continues(names, "multilabel", 1e-3 * np.array([1, 1, 0.1]))


def assert_continues(names: Names, task: str, rates: np.ndarray) -> None:
    """The shallow network's weights after three steps are those after two and one."""
    whole, resumed = in_each(names, three_and_two_and_one, task, rates)[0]
    for name, start in reference.shallow_arrays().items():
        if "running" not in name:
            np.testing.assert_allclose(resumed[name], whole[name], rtol=1e-5, atol=1e-6)
            assert not np.array_equal(whole[name], start)


def three_and_two_and_one(names: Names, task: str, rates: np.ndarray) -> list[Any]:
    """Weights after three steps, and after two and one that continues the two."""
    names["build_model"]()  # TensorFlow's variables begin with the notebook's
    start = reference.shallow_arrays()
    whole = steps_taken(names, task, start, {}, rates)
    arrays, state = steps_taken(names, task, start, {}, rates[:2])
    return [whole[0], steps_taken(names, task, arrays, state, rates)[0]]


def steps_taken(names: Names, task: str, arrays: Any, state: Any, rates: np.ndarray) -> list[Any]:
    """Weights and optimiser after a step at each of the rates, where it trains.

    A ``state`` is the optimiser's before the last of them.
    """
    run, framework = names["run"], names["run"].framework
    pixels, targets = reference.batch_of(task)
    own, steps = len(run.own_devices), 1 if state else len(rates)
    pixels = np.concatenate([pixels.repeat(run.images.recipe.planes, axis=3)] * own)
    numbers = np.arange(len(pixels))
    batch = framework.as_loaded(pixels, np.concatenate([targets] * own), numbers)
    how = {"learning_rate": 1.0, "lr_scaling": "none", "rates": tuple(map(float, rates))}
    how |= {"epochs": 1, "steps": len(rates)}
    with run.recipe.varied(**how, batch_size=len(targets), outputs=14):
        replica = names["make_replica"](framework.shallow(arrays, run.own_devices))
        if state:
            framework.load_optimizer(replica, state, len(rates) - 1)
        names["train_steps"](replica, repeat(batch, steps), steps)
    state = framework.dump_optimizer(replica)
    return [framework.dump_weights(replica.network), state]

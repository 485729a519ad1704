"""Keras on JAX over two nodes. ``.venvs/jax/bin/python -m pytest`` with this file."""

from pathlib import Path
from typing import Any

from helpers.frameworks import keras_jax  # noqa: F401 (before Keras, whose backend it sets)

# isort: split
import faulty_gradients
import keras_alike as alike
import own_networks
import pytest
import two_nodes
from agreed import assert_resumed_takes_the_steps_of_a_whole_run
from faulty_gradients import ALONE, SUM, WEIGHT
from notebook_cells import EPSILON_FIRST, failed
from resuming import write_small_images

from helpers.fairness import training_loop
from helpers.fairness.reference_checks import N_AGAINST_ONE

SURVIVE = "which replica's running statistics are kept"


def of_two(names: two_nodes.Names) -> two_nodes.Found:
    """The rows find two faults; the third, a weight that is another, JAX itself refuses."""
    found = two_nodes.of_two(names)
    faulty_gradients.assert_compared(names["this_run"], faults=(SUM, ALONE))
    with pytest.raises(Exception, match="is not the same on each process"):
        faulty_gradients.rows_with(names["this_run"], WEIGHT)
    return found


def test_two_nodes_train_what_two_devices_train(tmp_path: Path) -> None:
    two_nodes.assert_as_one_process(alike.NOTEBOOK, tmp_path, 1e-7, of_two, backend="jax")


@pytest.mark.slow  # that the test above fails where there is a fault
def test_a_part_of_the_batch_that_all_read_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, broken = "world.processes, own)[:, world.rank]", "world.processes, own)[:, 0]"
    two_nodes.assert_fault_is_found(
        alike.NOTEBOOK, tmp_path, monkeypatch, sound, broken, backend="jax"
    )


def checked_loop(names: two_nodes.Names) -> Any:
    run = names["this_run"]
    run.check_training_loop(**vars(run.functions))
    return {check.check: check for check in run.fairness_check.checks}


@pytest.mark.slow  # test_keras_jax has these rows on two devices of one process
def test_the_training_loop_check_is_passed_over_nodes(tmp_path: Path) -> None:
    """BatchNorm's statistics are those of the global batch, of all nodes."""
    (checks, _) = two_nodes.on_ranks(alike.NOTEBOOK, tmp_path, checked_loop, backend="jax")
    assert failed(checks.values()) == set()
    known = {name for name, check in checks.items() if check.verdict == "expected"}
    wanted = {"running variance after 5 SGD steps", EPSILON_FIRST, SURVIVE}
    assert known == wanted | {training_loop.TOGETHER}
    assert checks[SURVIVE].reason == training_loop.GLOBAL
    assert {checks[name].verdict for name in N_AGAINST_ONE} == {"pass"}


def is_interrupted_and_goes_on(names: two_nodes.Names) -> None:
    assert_resumed_takes_the_steps_of_a_whole_run(names, bits=False)


@pytest.mark.slow  # over nodes JAX does, and on two devices test_keras_jax
def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    """The recipe has a custom network, with random numbers.

    Not to the bit: Keras's momentum has the rate in its velocity, and a checkpoint has not.
    """
    dropping = ")(layers.GlobalAveragePooling2D()(x))"
    dropout = f"{dropping}\n    x = layers.Dropout(0.1)(x)"
    code = own_networks.NETS["keras"].replace(dropping, dropout)
    assert dropout in code
    recipe = str(own_networks.recipe_of(tmp_path / "recipe", "keras", code))
    given: dict[str, Any] = {
        "recipe": recipe,
        "data": str(write_small_images(tmp_path / "data")),
        "epochs": 2,
    }
    two_nodes.on_ranks(alike.NOTEBOOK, tmp_path, is_interrupted_and_goes_on, backend="jax", **given)


@pytest.mark.slow  # as JAX's own
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_dies_ends_all(tmp_path: Path, rank: int) -> None:
    """Left alone, JAX's other processes wait for it for minutes."""
    dies = (two_nodes.rank_0_dies, two_nodes.rank_1_dies)[rank]
    two_nodes.assert_a_death_ends_all(
        alike.NOTEBOOK, tmp_path, dies, r"killed \(signal 9", rank, backend="jax"
    )

"""JAX over two nodes. ``.venvs/jax/bin/python -m pytest`` with this file."""

from pathlib import Path
from typing import Any

import faulty_gradients
import own_networks
import pytest
import two_nodes
from agreed import assert_resumed_takes_the_steps_of_a_whole_run
from resuming import write_small_images

NOTEBOOK = "JAX_MultiGPU"


def test_two_nodes_train_what_two_devices_train(tmp_path: Path) -> None:
    two_nodes.assert_as_one_process(NOTEBOOK, tmp_path, 1e-7, faulty_gradients.of_two)


@pytest.mark.slow  # that the test above fails where there is a fault
def test_a_part_of_the_batch_that_all_read_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, broken = "batches[world.rank : used", "batches[0 : used"
    two_nodes.assert_fault_is_found(NOTEBOOK, tmp_path, monkeypatch, sound, broken)


def is_interrupted_and_goes_on(names: two_nodes.Names) -> None:
    assert_resumed_takes_the_steps_of_a_whole_run(names)


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    """The recipe has a custom network, with random numbers."""
    code = own_networks.NETS["jax"].replace("Dropout(0.1", "Dropout(0.0")  # they never repeat
    recipe = str(own_networks.recipe_of(tmp_path / "recipe", "jax", code))
    given: dict[str, Any] = {
        "recipe": recipe,
        "data": str(write_small_images(tmp_path / "data")),
        "epochs": 2,
    }
    two_nodes.on_ranks(NOTEBOOK, tmp_path, is_interrupted_and_goes_on, **given)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_dies_ends_all(tmp_path: Path, rank: int) -> None:
    """Rank 0 has the service by which JAX's processes would hear of each other's end."""
    dies = (two_nodes.rank_0_dies, two_nodes.rank_1_dies)[rank]
    two_nodes.assert_a_death_ends_all(NOTEBOOK, tmp_path, dies, r"killed \(signal 9", rank)

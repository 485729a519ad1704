"""JAX over two nodes. ``.venvs/jax/bin/python -m pytest`` with this file."""

from pathlib import Path

import faulty_gradients
import own_networks
import pytest
import two_nodes
from agreed import assert_takes_the_steps_of_a_whole_run
from notebook_cells import CERTIFIED, namespace_of
from resuming import write_small_images

NOTEBOOK = "JAX_MultiGPU"


def test_two_nodes_train_what_two_devices_train(tmp_path: Path) -> None:
    compared = faulty_gradients.assert_compared
    two_nodes.assert_as_one_process(NOTEBOOK, tmp_path, 1e-7, compared)


def test_a_part_of_the_batch_that_all_read_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, broken = "batches[world.rank : used", "batches[0 : used"
    two_nodes.assert_fault_is_found(NOTEBOOK, tmp_path, monkeypatch, sound, broken)


def test_a_run_that_is_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ranks stop after the same step; the network is somebody's own, with random numbers."""
    code = own_networks.NETS["jax"].replace("Dropout(0.1", "Dropout(0.0")  # they never repeat
    recipe = str(own_networks.recipe_of(tmp_path / "recipe", "jax", code))
    given = {"recipe": recipe, "data": str(write_small_images(tmp_path / "data")), "epochs": 2}
    given |= {"nodes": 2, "devices": 1, "until": CERTIFIED, "checked": False}
    names = namespace_of(NOTEBOOK, tmp_path, **given)  # type: ignore[arg-type]
    try:
        assert_takes_the_steps_of_a_whole_run(names, monkeypatch)
    finally:
        names["this_run"].nodes.end()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_dies_ends_all(tmp_path: Path, rank: int) -> None:
    """Rank 0 has the service by which JAX's processes would hear of each other's end."""
    said = r"killed \(signal 9"
    two_nodes.assert_a_death_ends_all(NOTEBOOK, tmp_path, two_nodes.itself, said, rank)


def test_a_lone_process_is_refused(tmp_path: Path) -> None:
    two_nodes.assert_a_lone_worker_is_refused("jax", "ranks.join()", tmp_path)

"""MXNet over two nodes. ``.venvs/mxnet/bin/python -m pytest`` with this file."""

from pathlib import Path

import faulty_gradients
import pytest
import two_nodes

NOTEBOOK = "MXNet_Gluon_MultiGPU"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MXNet's own, thousands


def test_two_nodes_train_what_two_devices_train(tmp_path: Path) -> None:
    compared = faulty_gradients.assert_compared
    two_nodes.assert_as_one_process(NOTEBOOK, tmp_path, 1e-7, compared)


def test_a_step_for_the_images_of_one_node_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = "for pixels, _ in parts) * replica.world.processes)"
    broken = "for pixels, _ in parts))"
    two_nodes.assert_fault_is_found(NOTEBOOK, tmp_path, monkeypatch, sound, broken)


def test_a_server_that_dies_ends_all(tmp_path: Path) -> None:
    said = r"MXNet's server process has ended \(signal 9\)"
    two_nodes.assert_a_death_ends_all(NOTEBOOK, tmp_path, two_nodes.its_server, said)


def test_a_worker_that_dies_ends_all(tmp_path: Path) -> None:
    two_nodes.assert_a_death_ends_all(NOTEBOOK, tmp_path, two_nodes.itself, r"killed \(signal 9")


def test_a_lone_worker_is_refused(tmp_path: Path) -> None:
    two_nodes.assert_a_lone_worker_is_refused("mxnet", "ranks.store()", tmp_path)

"""PyTorch's notebook on simulated nodes: its ranks take the steps of one node's processes."""

from pathlib import Path
from typing import Any

import faulty_gradients
import numpy as np
import pytest
import ranks_tools
import two_nodes
from notebook_cells import write_noise_images

from helpers.fairness import reference
from helpers.fairness.training_loop import RULES, Trial
from helpers.runner.notebook_code import run_cells
from helpers.training import train_loop
from helpers.training.train_loop import Work
from helpers.training.world import World

NOTEBOOK = "PyTorch_MultiGPU"


def trial() -> Trial:
    shares = (reference.batch_of("multilabel"),) * 2
    return Trial(reference.shallow_arrays(), shares, RULES["adam"], reference.RATES["adam"])


def seen(world: World, work: Work) -> tuple[Any, ...]:
    place = (world.rank, world.size, len(world.devices), world.processes)
    return *place, world.nodes, world.node, world.simulated_nodes, world.on_machine


def checked_loop(names: two_nodes.Names) -> list[Any]:
    """On a rank: what a trial gives, twice, since a second group meets as the first did."""
    run = names["this_run"]
    assert run.setup.of_all_nodes.count == 2 and run.record.content["devices"]["count"] == 2
    found = [run.everywhere(train_loop.check_training_loop, trial())[1] for _ in range(2)]
    faulty_gradients.assert_compared(run, uneven="expected")
    assert run.everywhere(seen) == [(n, 2, 1, 2, 2, n, True, 2) for n in range(2)]
    return [*found, run.recipe]


def test_two_nodes_take_the_steps_of_one(tmp_path: Path) -> None:
    one = two_nodes.names_of(NOTEBOOK, tmp_path / "one", 2)["this_run"]
    loss, weights, logits = one.everywhere(train_loop.check_training_loop, trial())[0]
    for *found, recipe in two_nodes.on_ranks(NOTEBOOK, tmp_path / "two", checked_loop):
        assert recipe == one.recipe
        for again, same, others in found:
            assert again == loss and np.array_equal(logits, others)
            assert all(np.array_equal(weights[name], same[name]) for name in weights)


MEET = """
from datetime import timedelta
import torch.distributed as dist
import ranks_tools as tools
how = {"init_method": "env://", "timeout": timedelta(seconds=10)}
dist.init_process_group("gloo", rank=tools.here().rank, world_size=2, **how)
tools.keep(dist.get_world_size())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("launcher", ranks_tools.LAUNCHERS)
def test_a_process_group_meets_under_each_launcher(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun has a store of its own, and whoever started us by torchrun has left word of it."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert ranks_tools.run(tmp_path, MEET, launcher=launcher) == [2, 2]


def test_a_notebook_of_one_node_says_so(tmp_path: Path) -> None:
    with pytest.raises(two_nodes.RankError, match=r"^nodes 2: DataParallel is one process"):
        two_nodes.on_ranks("PyTorch_MultiGPU_Exp_Loss", tmp_path, checked_loop)
    assert not (tmp_path / "run" / "record.json").exists()


def test_the_cells_have_no_nodes(tmp_path: Path) -> None:
    """Elsewhere than under a launcher a notebook is one machine's."""
    data = str(write_noise_images(tmp_path))
    run = run_cells(
        NOTEBOOK, until="## 5.", recipe="demo", data=data, devices=2, run=str(tmp_path / "run")
    )["this_run"]
    assert run.setup.nodes == 1 and run.rank == 0 and "cluster" not in run.record.content

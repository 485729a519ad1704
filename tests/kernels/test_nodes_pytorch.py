"""PyTorch's notebook on virtual nodes: its ranks take the steps of one node's processes."""

from pathlib import Path
from typing import Any

import faulty_gradients
import numpy as np
import pytest
import ranks_tools as tools
import two_nodes
from notebook_cells import CERTIFIED, write_noise_images

from helpers.errors import UnsupportedError
from helpers.fairness import reference
from helpers.fairness.rehearsal import RULES, Trial
from helpers.launch.causes import RankError
from helpers.runner.notebook_code import run_cells
from helpers.training import in_world
from helpers.training.in_world import Work
from helpers.training.world import World


def begun(folder: Path, nodes: int, devices: int) -> Any:
    """The notebook's run, its lesson taken and nothing certified."""
    given: dict[str, Any] = {"data": str(write_noise_images(folder)), "recipe": "demo", "gpus": 0}
    given |= {"nodes": nodes, "devices": devices, "run": str(folder / f"run-{nodes}")}
    return run_cells("PyTorch_MultiGPU", until=CERTIFIED, checked=False, **given)["this_run"]


def seen(world: World, work: Work) -> tuple[Any, ...]:
    place = (world.rank, world.size, len(world.devices), world.processes)
    return *place, world.nodes, world.node, world.virtual_nodes, world.on_machine


def out_of_memory(world: World, work: Work) -> None:
    raise MemoryError("DefaultCPUAllocator: can't allocate memory: you tried to allocate a lot")


def test_two_nodes_take_the_steps_of_one(tmp_path: Path) -> None:
    trial = Trial(
        reference.shallow_arrays(),
        (reference.batch_of("findings"),) * 2,
        RULES["adam"],
        reference.RATES["adam"],
    )
    one, two = begun(tmp_path, 1, 2), begun(tmp_path, 2, 1)
    try:
        assert one.recipe == two.recipe and two.setup.of_all_nodes.count == 2
        loss, weights, logits = one.everywhere(in_world.rehearse, trial)[0]
        for _ in range(2):  # a second group meets as the first did
            again, same, others = two.everywhere(in_world.rehearse, trial)[1]
            assert again == loss and np.array_equal(logits, others)
            assert all(np.array_equal(weights[name], same[name]) for name in weights)
        two_nodes.assert_gradients_are_reduced(two)
        faulty_gradients.assert_compared(two, uneven="known")
        assert two.everywhere(seen) == [(n, 2, 1, 2, 2, n, True, 2) for n in range(2)]
        assert two.world.size == 1 and two.record.content["world"]["virtual"]
        with pytest.raises(RankError, match="MemoryError") as caught:
            two.everywhere(out_of_memory)
        assert two._out_of_memory(caught.value)
        assert not two._out_of_memory(RankError("rank 0 on a: killed (signal 9; out of memory?)"))
        assert two.everywhere(seen)[0][0] == 0, "new ranks begin where an error ended the others"
    finally:
        two.nodes.end()
    assert tools.nobody_is_left(tmp_path)


def test_a_notebook_of_one_node_says_so(tmp_path: Path) -> None:
    data = str(write_noise_images(tmp_path))
    given: dict[str, Any] = {"data": data, "recipe": "demo", "devices": 1}
    with pytest.raises(UnsupportedError, match="nodes 2: DataParallel is one process"):
        run_cells("PyTorch_MultiGPU_Exp_Loss", nodes=2, run=str(tmp_path / "run"), **given)
    assert not (tmp_path / "run").exists()

"""PyTorch's notebook on simulated nodes: its ranks take the steps of one node's processes."""

from pathlib import Path

import pytest
import ranks_tools
from nodes_tests import test_two_nodes_take_the_steps_of_one as test_two_nodes_take_the_steps_of_one
from trained_on_ranks import on_ranks, prepare

from helpers.launch.failures import RankError

NOTEBOOK, ONE_NODE = "PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss"


MEET = """
from datetime import timedelta
import torch.distributed as dist
import ranks_tools as tools
how = {"init_method": "env://", "timeout": timedelta(seconds=10)}
dist.init_process_group("gloo", rank=tools.here().rank, world_size=2, **how)
tools.keep(dist.get_world_size())
dist.destroy_process_group()
"""


def test_a_process_group_meets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun has a store of its own, and whoever started us by torchrun has left word of it."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert ranks_tools.run(tmp_path, MEET) == [2, 2]


def test_a_notebook_of_one_node_says_so(tmp_path: Path) -> None:
    with pytest.raises(RankError, match=r"^nodes 2: DataParallel is one process"):
        on_ranks(ONE_NODE, prepare(tmp_path, "pytorch"), "run", 2, 1)
    assert not (tmp_path / "run" / "record.json").exists()

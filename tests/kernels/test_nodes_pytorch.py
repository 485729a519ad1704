"""PyTorch's notebook on simulated nodes: its ranks take the steps of one node's processes."""

from pathlib import Path

import pytest
from nodes_tests import test_two_nodes_take_the_steps_of_one as test_two_nodes_take_the_steps_of_one
from trained_on_ranks import on_ranks, prepare

from helpers.launch.failures import RankError

NOTEBOOK, ONE_NODE = "PyTorch_MultiGPU", "PyTorch_MultiGPU_DataParallel"


@pytest.fixture(autouse=True)
def started_by_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a store of its own, and leaves word of it: the ranks meet at theirs nevertheless."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")


def test_a_notebook_of_one_node_says_so(tmp_path: Path) -> None:
    with pytest.raises(RankError, match=r"^nodes 2: DataParallel is one process"):
        on_ranks(ONE_NODE, prepare(tmp_path, "pytorch"), "run", 2, 1)
    assert not (tmp_path / "run" / "record.json").exists()

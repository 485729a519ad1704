"""What holds over two nodes in every framework; a test file has it by ``import *``.

It says in ``NOTEBOOK`` what the nodes run.
"""

import os
import signal
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from threading import Timer

import notebook_program
import psutil
import pytest
import ranks_tools
from notebook_program import module_of
from trained_on_ranks import assert_the_same, given, on_ranks, prepare, train

from helpers import record
from helpers.launch.failures import RankError


def test_two_nodes_take_the_steps_of_one(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    notebook: str = request.module.NOTEBOOK
    prepare(tmp_path, module_of(notebook))
    on_ranks(notebook, tmp_path, "nodes", 2, 1)
    train(notebook, str(tmp_path), "one", 2)
    assert_the_same(tmp_path, "nodes", "one")
    found, one = (record.read(tmp_path / name) for name in ("nodes", "one"))
    assert found["cluster"]["nodes"] == 2 and "cluster" not in one


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_ends_all(
    rank: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert_ends_all(request.module.NOTEBOOK, tmp_path, rank, "itself", r"killed \(signal 9")


def assert_ends_all(notebook: str, folder: Path, rank: int, victims: str, said: str) -> None:
    """Once a rank has killed some process, all ranks and what they have started end, with a line.

    Args:
        victims: the name of the function of this module that gives the processes.
    """
    run = prepare(folder, module_of(notebook)) / "run"
    run.mkdir()
    cell = f"import nodes_tests as t\nt.talk({notebook!r}, {str(folder)!r}, {rank}, t.{victims})"
    with pytest.raises(RankError, match=f"^rank {rank} on .*{said}"):
        ranks_tools.run(run, cell, devices=1, framework=module_of(notebook))
    assert ranks_tools.nothing_is_left(folder, 1)


def talk(notebook: str, folder: str, rank: int, victims: Callable[[], list[int]]) -> None:
    """On a rank: compute with the other for ever; after two seconds ``rank`` kills the victims."""
    names = notebook_program.names_of(notebook, Path(folder), **given(folder, 1))
    run = names["run"]
    names["build_model"]()
    run.framework.slowest(0.0, run.own_devices)
    if run.rank == rank:
        Timer(2, lambda: [*map(os.kill, victims(), repeat(signal.SIGKILL))]).start()
    while True:
        run.framework.slowest(0.0, run.own_devices)


def itself() -> list[int]:
    return [os.getpid()]


def its_server() -> list[int]:
    """MXNet's."""
    children = psutil.Process().children()
    return [child.pid for child in children if child.environ().get("DMLC_ROLE") == "server"]

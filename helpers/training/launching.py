"""Start a notebook's ``main`` in one process per device, or call it in the existing rank."""

from __future__ import annotations

import io
import linecache
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from helpers.errors import Interrupted, UserError
from helpers.frameworks import rank_info, replicas
from helpers.training import checkpoint, measuring, samplers, showing
from helpers.training.epoch_lines import EpochLines
from helpers.training.run_state import RunState

OF_TRAINING = "fairness", "data", "epochs", "training", "checkpoint", "test"
"""The record's sections that a new training replaces, with those of its measurements."""
RAN_OUT = re.compile(
    "out.?of.?memory|oom when|memoryerror|resource_exhausted|alloc_failed|failed to allocate|"
    "can't allocate memory|dst tensor is not initialized",
    re.IGNORECASE,
)
"""How CUDA and its libraries say that memory ran out, and how frameworks do."""


def launch(run: RunState, main: Callable[[int, int], Any]) -> Any:
    """Call ``main(rank, world)`` in one new process per device; return what rank 0's returned.

    Under torchrun or mpiexec, it is called in the process that is there. What the processes print
    appears here, line by line.

    Raises:
        ReplicaError: a process failed; with its number and its own traceback. The others end.
        Interrupted: you interrupted the cell; all processes have ended.
    """
    run.launched = True
    begin_training(run)
    here, world = rank_info.here(), run.setup.replicas
    # The source lines of cells are in no file that another process could read.
    cells = {
        name: (entry[0], None, *entry[2:])
        for name, entry in linecache.cache.items()
        if len(entry) == 4 and not Path(name).exists()
    }

    def heard(message: tuple[Callable[..., None], tuple[Any, ...]]) -> None:
        message[0](run, *message[1])  # what rank 0 asked for by run.tell

    with explained(run):
        if here is not None:
            found = main(here.rank, here.ranks)
        else:
            with run.framework.rendezvous() as environment:
                started = partial(_replica, run, main, world, cells)
                found = replicas.run(started, world, heard=heard, environment=environment)[0]
    samplers.stop(run.monitor)
    return found


def begin_training(run: RunState) -> None:
    """Find the checkpoint, and start the monitor; what an earlier training left goes.

    Raises:
        MonitorError: another run trains in this folder.
    """
    vars(run).pop("loop", None)
    run.record.remove(*OF_TRAINING, *measuring.MEASUREMENTS.values(), *measuring.FROM_THEM)
    workers = run.workers * run.setup.replicas
    run.record.add("data", run.images.as_record() | {"loader_workers": workers})
    with rank_info.first_rank_first():  # it may remove one
        run.start = checkpoint.begin(run.record, run.initial.arrays, resume=run.given["resume"])
        if run.rank == 0:
            samplers.clear(run.folder)
    run.start = replace(run.start, run=rank_info.exchange(run.start.run)[0])
    samplers.stop(run.monitor)
    samplers.start(run.monitor)
    rank_info.exchange(None)  # every host samples: no rank marks a phase that is not kept
    run.lines = EpochLines(run.recipe, run.start.epoch)
    run.begun = True


def _replica(
    run: RunState, main: Callable[[int, int], Any], world: int, cells: dict[str, Any], rank: int
) -> Any:
    linecache.cache.update(cells)  # a traceback shows the notebook's lines
    run.rank = rank
    sys.stdout = _Lines("" if rank == 0 else f"rank {rank}: ")
    found = main(rank, world)
    sys.stdout.flush()
    return found if rank == 0 else None


class _Lines(io.TextIOBase):
    """Standard output that the notebook's process prints, a line at a time."""

    def __init__(self, before: str) -> None:
        self._before, self._text = before, ""

    def write(self, text: str) -> int:
        *lines, self._text = (self._text + text).split("\n")
        for line in lines:
            replicas.tell((showing.say, (f"{self._before}{line}\n",)))
        return len(text)

    def flush(self) -> None:
        text, self._text = self._text, ""
        if text:
            replicas.tell((showing.say, (self._before + text,)))


@contextmanager
def explained(run: RunState) -> Iterator[None]:
    """An interrupt, and an error for want of memory, say what to do; any error ends the monitor."""
    try:
        yield
    except BaseException as error:
        if not replicas.in_one():
            samplers.stop(run.monitor)
        if type(error) is KeyboardInterrupt:
            raise Interrupted(
                "training was interrupted; run this cell to begin it again, or set resume = True "
                "and run all cells to continue from the last checkpoint"
            ) from None
        batch, crop = run.recipe.batch_size, run.recipe.crop
        if isinstance(error, MemoryError) or RAN_OUT.search(str(error)):
            raise UserError(
                f"out of memory at {batch} images of {crop} px per device: set batch_size = "
                f"{max(batch // 2, 1)}; a lower precision (bf16) needs less"
            ) from error
        raise

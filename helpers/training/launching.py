"""Start a notebook's ``main`` in one process per device, or call it in the existing rank."""

from __future__ import annotations

import io
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gpumon
from helpers.errors import Interrupted, UserError
from helpers.frameworks import rank_info, replicas
from helpers.recipe import Recipe
from helpers.training import checkpoint, samplers, showing
from helpers.training.epoch_lines import EpochLines
from helpers.training.run_state import RunState

OF_TRAINING = (
    *("fairness", "data", "epochs", "training", "checkpoint", "test", "files", "synthetic"),
    *("no_allreduce", "loader", "other_programs"),
    *("monitor", "energy", "memory", "attribution"),
)
"""The record's sections that a new training replaces."""
RAN_OUT = (
    *("out of memory", "OUT_OF_MEMORY", "OutOfMemory", "STATUS_ALLOC_FAILED"),
    *("RESOURCE_EXHAUSTED", "MemoryError", "OOM when allocating", "can't allocate memory"),
    *("failed to allocate", "Failed to allocate", "Dst tensor is not initialized"),
)
"""How CUDA and its libraries say that memory ran out, and how frameworks do."""


def launch(run: RunState, main: Callable[[int, int], Any]) -> Any:
    """See :meth:`helpers.run.Run.launch`."""
    run.launched = True
    begin_training(run)
    here, world = rank_info.here(), run.setup.replicas
    try:
        with memory_explained(run.setup.recipe.recipe):
            if here is not None:
                return main(here.rank, here.ranks)

            def heard(message: tuple[Callable[..., None], tuple[Any, ...]]) -> None:
                message[0](run, *message[1])  # what rank 0 asked for by run.tell

            with run.framework.rendezvous() as environment:
                started = partial(_replica, run, main, world, _cells())
                return replicas.run(started, world, heard=heard, environment=environment)[0]
    except KeyboardInterrupt:
        raise _interrupted(run) from None
    finally:
        samplers.stop(run.monitor)


def begin_training(run: RunState) -> None:
    """Find the checkpoint, and start the monitor; what an earlier training left goes.

    Raises:
        UserError: a parameter was changed, or another run trains in this folder.
    """
    run.check_parameters()
    vars(run).pop("loop", None)
    run.record.remove(*OF_TRAINING)
    run.lines = EpochLines(run.setup.recipe, len(run.train_split), run.images.task)
    workers = run.workers * run.setup.replicas
    run.record.add("data", run.images.as_record(run.setup.recipe) | {"loader_workers": workers})
    with rank_info.first_rank_first():  # it may remove one
        run.start = checkpoint.begin(run.record, run.initial.arrays, resume=run.given["resume"])
        if run.rank == 0:
            samplers.clear(run.folder)
    run.start = replace(run.start, run=rank_info.exchange(run.start.run)[0])
    samplers.stop(run.monitor)
    try:
        samplers.start(run.monitor)
    except gpumon.MonitorError as error:
        raise UserError(
            f"{error}; another run may train in this folder: set run to another name, and run the "
            "cell with helpers.begin again"
        ) from None
    rank_info.exchange(None)  # every host samples: no rank marks a phase that is not kept
    run.lines.begin(run.start.epoch)
    run.begun = True


def _replica(
    run: RunState, main: Callable[[int, int], Any], world: int, cells: dict[str, Any], rank: int
) -> Any:
    """In the new process of a rank."""
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
        if lines:
            said = "".join(f"{self._before}{line}\n" for line in lines)
            replicas.tell((showing.say, (said,)))
        return len(text)

    def flush(self) -> None:
        text, self._text = self._text, ""
        if text:
            replicas.tell((showing.say, (self._before + text,)))


def _cells() -> dict[str, Any]:
    """The source lines of cells, which are in no file that another process could read."""
    return {
        name: (entry[0], None, *entry[2:])
        for name, entry in linecache.cache.items()
        if len(entry) == 4 and not Path(name).exists()
    }


def _interrupted(run: RunState) -> Interrupted:
    done, epochs = checkpoint.epochs_in(run.folder), run.lines.epochs
    return Interrupted(
        "training was interrupted; run this cell to begin it again, or set resume = True and run "
        f"all cells to continue after epoch {done} of {epochs}, which has a checkpoint"
    )


@contextmanager
def ends_in_order(run: RunState) -> Iterator[None]:
    """In the notebook's own process, an error or an interrupt ends the monitor too."""
    try:
        yield
    except BaseException as error:
        if run.launched:
            raise
        samplers.stop(run.monitor)
        if type(error) is KeyboardInterrupt:
            raise _interrupted(run) from None
        raise


@contextmanager
def memory_explained(recipe: Recipe) -> Iterator[None]:
    """An out-of-memory error inside becomes a UserError that names the batch and the way out."""
    try:
        yield
    except Exception as error:
        said = str(error)
        if not isinstance(error, MemoryError) and not any(words in said for words in RAN_OUT):
            raise
        raise UserError(
            f"out of memory at {recipe.batch_size} images of {recipe.crop} px per device: set "
            f"batch_size = {max(recipe.batch_size // 2, 1)}; a lower precision (bf16) needs less"
        ) from error

"""Have the runs of an experiment read a copy of their images on the disk of each node.

A process on each node makes the copy and removes it at the end (``helpers.runner.node_copy``).
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from helpers import paths, terminal
from helpers.errors import UserError
from helpers.launch import launchers
from helpers.record.types import Staging
from helpers.runner import node_copy, shutdown
from helpers.runner.experiments import Experiment
from helpers.runner.plans import counted
from helpers.runner.slurm import this_job

END_SECONDS = 300.0
"""In which the copies are removed; Slurm may wait as long for a node that is gone."""


@contextmanager
def staged(experiment: Experiment, source: Path | None, place: str | None) -> Iterator[None]:
    """Inside, the experiment's runs read a copy of their images.

    Args:
        experiment: what runs.
        source: the folder or the file with its images.
        place: an existing folder on each node, with variables such as ``$SLURM_TMPDIR``, which
            each node replaces by its own values; None copies nothing.

    Raises:
        UserError: the images cannot be copied there.
    """
    left = [run for run in experiment.runs if not experiment.is_finished(run)]
    if place is None or not left:
        yield
        return
    if source is None:
        raise UserError(f"stage {place!r}: the images come from custom code: leave 'stage' out")
    most = max(run.nodes for run in left)
    nodes, command = 1, [sys.executable, "-m", node_copy.__name__]
    if most > 1 and not launchers.choose(experiment.plan.launcher, most).virtual:
        if "SLURM_JOB_ID" not in os.environ:
            raise UserError(
                f"stage {place!r}: images are copied on this machine or by a Slurm job, and not to "
                "hosts that are reached by ssh: leave 'stage' out"
            )
        nodes = this_job.nodes()
        command = [*this_job.ON_EACH_NODE, f"--nodes={nodes}", f"--ntasks={nodes}", *command]
    source = source.resolve()
    with shutdown.held():
        process = subprocess.Popen(
            [*command, str(source), place, node_copy.PREFIX + secrets.token_hex(4)],
            cwd=paths.ROOT,
            env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is the runner's alone
        )
    try:
        terminal.say(f"Copying {source} to {place} on {counted(nodes, 'node')}")
        experiment.data, experiment.staging = _copied(process, source, place, nodes)
        yield
    finally:
        with shutdown.held(), suppress(OSError):
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """End the standard input of each node's process, and wait until the copies are removed."""
    try:
        process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _copied(
    process: "subprocess.Popen[str]", source: Path, place: str, nodes: int
) -> tuple[str, Staging]:
    """The copy's path, and what the record has of it, once it is there on each node."""
    found: list[dict[str, Any]] = []
    assert process.stdout is not None
    while len(found) < nodes:
        if not (line := process.stdout.readline()):
            raise UserError(f"stage {place!r}: a node ended before its copy was complete")
        if line.startswith("{"):  # a site's own lines may be among them
            found.append(json.loads(line))
            if "error" in found[-1]:
                raise UserError(f"stage {place!r} on {found[-1]['node']}: {found[-1]['error']}")
    if len(copies := {each["copy"]: each["node"] for each in found}) > 1:
        said = " and ".join(f"{copy} on {node}" for copy, node in copies.items())
        raise UserError(f"stage {place!r}: is {said}: give a path that is the same on each node")
    seconds, size = max(each["seconds"] for each in found), int(found[0]["bytes"])
    terminal.say(f"Copied and verified {size / 1e6:,.1f} MB in {terminal.clock(seconds)}")
    return found[0]["copy"], {"folder": str(source), "seconds": seconds, "bytes": size}

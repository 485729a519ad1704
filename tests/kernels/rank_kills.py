"""Runs over two nodes whose ranks fail at random moments, many of them, cheaply.

Each run is a process of its own, as the runner is, whose ranks run the notebook's cells without the
fairness check and the measurements, of a shallow network and few images.
"""

import multiprocessing
import os
import random
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import own_networks
import psutil
import ranks_tools
from resuming import epochs_in, write_small_images

from helpers.launch.run_files import SILENT_SECONDS
from helpers.networks import weights
from helpers.runner import rank_watch
from helpers.runner.notebook_code import run_cells

NOTEBOOK = "PyTorch_MultiGPU"
LAUNCH = "run.launch(main)"
MARK = "ROSETTA_TEST"
"""What a run starts inherits this environment variable, with the run's folder."""
SOON = 15.0
"""Seconds in which everything has ended after a kill."""
EPOCHS = 20
"""Many and short: most kills come after some checkpoint and before the last."""
LAST = 400.0
"""Seconds that a whole run takes at most."""
FAULTS = {
    "killed": r"rank \d on \S+: killed \(signal 9; out of memory\?\)$",
    "interrupted": r"(rank \d on \S+: KeyboardInterrupt|.*training was interrupted after \d)",
    "lost": r"rank \d on \S+: has not responded for 8 s; its host is down or was suspended$",
}
"""What happens to a rank, and what the run's one line says of it: a signal that ends it, Python's
own exception in whatever it does, and a host of which nothing is heard any more."""


@dataclass(frozen=True)
class Batch:
    """What all the runs train."""

    data: Path
    recipe: Path

    def start(self, folder: Path, *, resume: bool = False) -> Any:
        """A run's process."""
        context = multiprocessing.get_context("forkserver")
        given = (str(self.data), str(self.recipe), str(folder), resume)
        process = context.Process(target=_train, args=given)
        process.start()
        return process


def prepare(folder: Path) -> Batch:
    """A shallow network, and images of a hundred patients: epochs of four steps."""
    code = own_networks.NETS["pytorch"].replace("Dropout(0.1)", "Dropout(0.0)")  # it never repeats
    recipe = own_networks.recipe_of(folder / "recipe", "pytorch", code)
    text = recipe.read_text()
    assert "epochs = 3" in text
    recipe.write_text(text.replace("epochs = 3", f"epochs = {EPOCHS}"))
    return Batch(write_small_images(folder / "data"), recipe)


def said(folder: Path) -> str:
    return folder.with_suffix(".txt").read_text()


def resumed(folder: Path) -> str:
    """What a resumed run says of where it began."""
    begins = ("Resumed after", "Nothing to resume")
    log = (folder / rank_watch.LOG).read_text().splitlines()
    return [line for line in log if line.startswith(begins)][-1]


class Pace(NamedTuple):
    """Seconds of an undisturbed run."""

    first_epoch: float
    """From the ranks' start to the first checkpoint."""
    epoch: float


def undisturbed(process: Any, folder: Path) -> tuple[dict[str, Any], Pace]:
    """The weights of a run that nobody kills, and its pace."""
    while not ranks_of(folder):
        assert process.exitcode is None, said(folder)
        time.sleep(0.02)
    began = time.monotonic()
    while not epochs_in(folder) and process.exitcode is None:
        time.sleep(0.02)
    first = time.monotonic()
    while epochs_in(folder) < EPOCHS and process.exitcode is None:
        time.sleep(0.02)
    pace = Pace(first - began, (time.monotonic() - first) / (EPOCHS - 1))
    return finish(process, folder), pace


def finish(process: Any, folder: Path) -> dict[str, Any]:
    """The weights of a run that comes to its end."""
    process.join(LAST)
    assert process.exitcode == 0, said(folder)[-3000:]
    assert nothing_is_left(folder, SOON)
    return weights.load(folder / "weights.safetensors")


def kill_one(process: Any, folder: Path, draws: random.Random, pace: Pace) -> str:
    """Something happens to a random rank at a random moment; what, or "" if the run was over.

    One kill in three comes before the first checkpoint.
    """
    epoch = draws.choice([0, *draws.choices(range(1, EPOCHS), k=2)])
    while not ranks_of(folder) and process.exitcode is None:
        time.sleep(0.02)
    while epochs_in(folder) < epoch and process.exitcode is None:
        time.sleep(0.02)
    time.sleep(draws.uniform(0, pace.epoch if epoch else pace.first_epoch))
    if not (victims := ranks_of(folder)):
        process.join(LAST)
        return ""
    victim, fault = draws.choice(victims), draws.choice(list(FAULTS))
    above = victim.parent()
    for each in [above, victim] if fault == "lost" and above else [victim]:
        number = {"killed": signal.SIGKILL, "interrupted": signal.SIGINT, "lost": signal.SIGSTOP}
        with suppress(psutil.NoSuchProcess):
            each.send_signal(number[fault])
    killed = time.monotonic()
    # That a host is gone shows by its silence, and its launcher has to be waited for.
    limit = SOON + (SILENT_SECONDS if fault == "lost" else 0)
    process.join(limit)
    for each in started_for(folder):  # a host that comes back
        with suppress(psutil.NoSuchProcess):
            each.resume()
    left = started_for(folder)
    while left and time.monotonic() - killed < limit:
        time.sleep(0.05)
        left = started_for(folder)
    took = time.monotonic() - killed
    assert process.exitcode is not None and not left, f"{fault}, after {took:.0f} s: {left}"
    if process.exitcode == 0:  # it was ending anyway
        return ""
    text = said(folder)
    assert len(re.findall(f"RankError: {FAULTS[fault]}", text, re.M)) == 1, text[-3000:]
    assert not list(folder.glob("ranks-*")), "its files are left"
    return f"{fault}, {took:.1f} s"


def ranks_of(folder: Path) -> list[psutil.Process]:
    """The ranks themselves: children of what the launcher started, which has the same command."""
    found = [each for each in started_for(folder) if "helpers.launch.rank" in _words(each)]
    parents = {}
    for each in found:
        with suppress(psutil.Error):
            parents[each.pid] = each.ppid()
    above = {pid: parents.get(parent) for pid, parent in parents.items()}
    return [
        each for each in found if above.get(each.pid) is not None and above[each.pid] not in parents
    ]


def started_for(folder: Path) -> list[psutil.Process]:
    """Whatever runs that a run has started."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get(MARK) == str(folder)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def nothing_is_left(folder: Path, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while started_for(folder) and time.monotonic() < until:
        time.sleep(0.1)
    return not started_for(folder)


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _train(data: str, recipe: str, folder: str, resume: bool) -> None:
    """All cells to the end of ``main``, 8 images on each of two simulated nodes."""
    with Path(folder).with_suffix(".txt").open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ[MARK] = folder
    cell = f"import rank_kills\nrank_kills.train_on_a_rank(*{(data, recipe, folder, resume)!r})"
    ranks_tools.run(Path(folder), cell, framework="pytorch")


def train_on_a_rank(data: str, recipe: str, folder: str, resume: bool) -> None:
    given: dict[str, Any] = {"data": data, "recipe": recipe, "run": folder, "resume": resume}
    given |= {"devices": 1, "num_workers": 0}
    run_cells(NOTEBOOK, after=LAUNCH, checked=False, changed=unmeasured, **given)


def unmeasured(text: str) -> str:
    """A cell's source without its measurements, which take seconds."""
    return text.replace("run.measure(", "dict(")

"""What tests have ranks do, and who is left of them afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from helpers import paths
from helpers.frameworks import rank_info
from helpers.launch import launchers
from helpers.launch.failures import RankError
from helpers.record import processes
from helpers.runner import ranks
from helpers.training import samplers

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
THERE = (paths.ROOT, paths.ROOT / "tests" / "kernels", paths.ROOT / "tests")
"""Where ranks of tests import from."""


def run(folder: Path, *cells: str, **how: Any) -> list[Any]:
    """Run cells in all ranks; what each of them has kept (:func:`keep`)."""
    source = [{"cell_type": "code", "metadata": {}, "source": cell} for cell in cells]
    nodes, each = how.pop("nodes", 2), how.pop("each", 1)
    launcher = how.pop("started_by", None) or launchers.choose(how.pop("launcher", "auto"), nodes)
    about = (how.pop("kind", "cpu"), how.pop("framework", ""))
    order = ranks.Order(launcher, each, how.pop("devices", each), *about)
    variables = {"PYTHONPATH": os.pathsep.join(map(str, THERE))} | how.pop("environment", {})
    python, target = Path(how.pop("python", sys.executable)), folder / "notebook.ipynb"
    for old in folder.glob("kept-*"):
        old.unlink()
    ranks.run(
        json.dumps({"cells": source, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}),
        target,
        order,
        python=python,
        cwd=paths.ROOT,
        environment=variables,
        **how,
    )
    kept = [folder / f"kept-{rank}" for rank in range(order.ranks)]
    return [json.loads(path.read_text()) if path.exists() else None for path in kept]


def under_mpiexec(ranks: int, program: str) -> Any:
    """What a program of this folder prints last, which is JSON."""
    words = [str(paths.MPIEXEC), "-n", str(ranks), sys.executable, "-m", "mpi4py"]
    done = subprocess.run(
        [*words, paths.ROOT / "tests" / "kernels" / program],
        env=os.environ | {"PYTHONPATH": str(paths.ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def calls(name: str, *args: Any) -> str:
    """A cell that keeps what a function of this module gives."""
    return f"import ranks_tools as tools\ntools.keep(tools.{name}(*{args!r}))"


def run_tests(folder: Path, file: str, **how: Any) -> None:
    """Run a file's tests that are marked ``on_ranks`` in two ranks."""
    cell = f"""
import sys
import pytest
sys.argv = ["pytest"]
words = [{file!r}, "-x", "-q", "-p", "no:cacheprovider", "-p", "on_ranks", "-m", "on_ranks"]
words += ["--basetemp", "{folder}/pytest"]
import ranks_tools
words[-1] += str(ranks_tools.here().rank)
assert pytest.main(words) == 0, "a test failed: see ranks.log"
"""
    try:
        run(folder, cell, **how)
    except RankError:
        print((folder / ranks.LOG).read_text())
        raise


def folder() -> Path:
    """The run's, of whose ranks this process is one."""
    return Path(os.environ[rank_info.VARIABLE])


def here() -> rank_info.Place:
    found = rank_info.here()
    assert found is not None
    return found


def keep(value: Any) -> None:
    """For the test to see, of each rank."""
    (folder() / f"kept-{here().rank}").write_text(json.dumps(value))


def left(folder: Path) -> list[int]:
    """Processes that were started for a run's ranks, by the mark that they inherit."""
    found = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get(rank_info.VARIABLE, "").startswith(str(folder))
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):  # it ends meanwhile
            continue
    return found


def nothing_is_left(folder: Path, seconds: float = 15.0) -> bool:
    until = time.monotonic() + seconds
    while left(folder) and time.monotonic() < until:
        time.sleep(0.1)
    return not left(folder)


def variables() -> dict[str, str]:
    return {name: os.environ[name] for name in VARIABLES}


def goes_wrong(number: int) -> bool:
    """Whether this rank is the one that does; the test finds out when that was."""
    chosen = os.environ["RANK"] == str(number)
    if chosen:
        (folder() / "went-wrong").touch()
    return chosen


def seconds_since_it_went_wrong(folder: Path) -> float:
    """A run's start may take long where tests share the cores, and is not counted."""
    return time.time() - (folder / "went-wrong").stat().st_mtime


def fail(number: int) -> None:
    subprocess.Popen(["sleep", "1000"])  # which no process asks to end
    if goes_wrong(number):
        raise ValueError("no such file\nas was said")
    time.sleep(1000)


def die(number: int, by: int = signal.SIGKILL) -> None:
    """The others notice at once, and are sooner to say so than anybody could say of the dead."""
    subprocess.Popen(["sleep", "1000"])
    mark = folder() / "about-to-die"
    if goes_wrong(number):
        mark.touch()
        os.kill(os.getpid(), by)
    while not mark.exists():
        time.sleep(0.001)
    raise ConnectionError("connection reset by peer")


def die_unnoticed(number: int) -> None:
    """The others compute, and mpiexec kills them before they can say a word."""
    if goes_wrong(number):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)


def fail_and_others_abort(number: int) -> None:
    """As JAX's processes do whose partner is gone."""
    mark = folder() / "about-to-fail"
    if goes_wrong(number):
        mark.write_text(str(os.getpid()))
        raise ValueError("no such file")
    while not mark.exists() or processes.lives(int(mark.read_text() or 1)):
        time.sleep(0.001)
    os.abort()


def leave(number: int, code: int) -> None:
    if goes_wrong(number):
        os._exit(code)
    time.sleep(1000)


def hang(number: int) -> None:
    if goes_wrong(number):
        time.sleep(1000)


def wait_inside() -> None:
    (folder() / "inside").touch()
    time.sleep(1000)


def fill_the_disk(number: int) -> None:
    """Write until no more can be written, as a rank that keeps its weights may."""
    if goes_wrong(number):
        with (folder() / "much").open("wb") as file:
            while True:
                file.write(bytes(2**16))
                file.flush()
    wait_inside()


def run_until_killed(folder: str) -> None:
    """A runner, for another process to kill."""
    run(Path(folder), calls("wait_inside"))


def measure() -> dict[str, Any] | None:
    """On a rank: how fast an all-reduce of half a megabyte is, and what was sampled meanwhile."""
    import torch
    import torch.distributed as dist

    place, size = here(), 491_400
    marks = samplers.of_process(folder(), live=False)
    samplers.start(marks)
    rank_info.exchange(None)  # else a rank would mark where no sampler is yet
    dist.init_process_group("gloo", init_method="env://", rank=place.rank, world_size=place.ranks)
    vector = torch.zeros(size // 4)
    dist.all_reduce(vector)  # connections are made in the first
    with marks.phase("all-reduce alone"):
        began = time.perf_counter()
        dist.all_reduce(vector)
        mbit = 8e-6 * size / (time.perf_counter() - began)
    dist.destroy_process_group()
    samplers.stop(marks)
    rank_info.exchange(None)  # all have stopped sampling
    if place.rank:
        return None
    trace = samplers.read(folder())
    devices = [device["name"] for device in trace.devices]
    told = {"interface": place.about["interface"], "mbit": mbit, "devices": devices}
    return told | {"phases": trace.phases()["phase"].tolist()}


def run_over_a_network(folder: str) -> None:
    """A runner on the first of two hosts."""
    print(json.dumps(run(Path(folder), calls("measure"), framework="pytorch")[0]))


def run_in_an_allocation(folder: str) -> None:
    """A runner that Slurm gave its nodes."""
    at = "tools.here().hosts, tools.here().virtual"
    cells = (f"import ranks_tools as tools\ntools.keep([{at}])", calls("die", 1))
    try:
        run(Path(folder), *cells)
    except RankError as error:
        hosts, virtual = json.loads((Path(folder) / "kept-1").read_text())
        print(virtual, *hosts)
        print(error)


if __name__ == "__main__":
    chosen: dict[str, Callable[..., None]] = {
        "slurm": run_in_an_allocation,
        "killed": run_until_killed,
        "network": run_over_a_network,
    }
    chosen[sys.argv[1]](*sys.argv[2:])

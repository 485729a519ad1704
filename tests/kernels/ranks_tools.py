"""What tests have ranks do, and who is left of them afterwards."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from gpumon import allowance
from helpers import network
from helpers.frameworks import devices, place
from helpers.launch import engines, serving
from helpers.launch.causes import RankError
from helpers.launch.coordinator import Order, Ranks
from helpers.training import loader_workers

CELLS = [("cell 1", "from helpers.launch import serving\nserving.hand(lambda f, *args: f(*args))")]
ENGINES = ("mpiexec", "torchrun")
VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")


def start(run: Path, engine: str = "mpiexec", nodes: int = 2, each: int = 1, **how: Any) -> Ranks:
    cells = how.pop("cells", CELLS)
    order = Order(cells, nodes, each, devices=each)
    return Ranks(run, order, engines.choose(engine, nodes), **how)


def left(run: Path) -> list[int]:
    """Processes that were started for a run's ranks, by the mark that they inherit."""
    found = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get(place.VARIABLE, "").startswith(str(run))
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):  # it ends meanwhile
            continue
    return found


def nobody_is_left(run: Path, seconds: float = 15.0) -> bool:
    until = time.monotonic() + seconds
    while left(run) and time.monotonic() < until:
        time.sleep(0.1)
    return not left(run)


def variables() -> dict[str, str]:
    return {name: os.environ[name] for name in VARIABLES}


def is_rank(number: int) -> bool:
    return os.environ["RANK"] == str(number)


def with_a_child() -> int:
    """Leave a process behind that nobody asks to end."""
    return subprocess.Popen(["sleep", "1000"]).pid


def fail(number: int) -> None:
    with_a_child()
    if is_rank(number):
        raise ValueError("no such file\nas was said")
    time.sleep(1000)


def die(number: int) -> None:
    """The others notice at once, and are sooner to say so than anybody could say of the dead."""
    with_a_child()
    here = place.here()
    assert here is not None
    mark = here.folder / "about-to-die"
    if is_rank(number):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while not mark.exists():
        time.sleep(0.001)
    raise ConnectionError("connection reset by peer")


def hang(number: int) -> str:
    if is_rank(number):
        time.sleep(1000)
    return "done"


def wait_inside() -> None:
    time.sleep(1000)


def behind(number: int) -> None:
    """All but one wait inside for one that is somewhere else."""
    serving.step()
    if is_rank(number):
        time.sleep(1000)
    wait_inside()


def fill_the_disk(number: int) -> None:
    """Write until no more can be written, as a rank that keeps its weights may."""
    here = place.here()
    assert here is not None
    if is_rank(number):
        with (here.folder / "much").open("wb") as file:
            while True:
                file.write(bytes(2**16))
                file.flush()
    wait_inside()


def coordinate_a_host_that_goes(run: str) -> None:
    """A coordinator whose second host is going to disappear."""
    ranks = Ranks(Path(run), Order(CELLS, 2, 1), engines.choose("auto", 2))
    print("ready", flush=True)
    try:
        ranks.call(wait_inside)
    except RankError as error:
        print(error, flush=True)


def leave(number: int) -> str:
    if is_rank(number):
        os._exit(3)
    time.sleep(1000)
    return ""


def count(upto: int) -> int:
    for number in range(upto):
        if is_rank(0):
            serving.tell(number)
    return upto


def coordinate_until_killed(run: str) -> None:
    """A coordinator, for another process to kill."""
    ranks = start(Path(run))
    print("ready", flush=True)
    ranks.call(wait_inside)


def coordinate_in_an_allocation(run: str, launcher: str = "auto") -> None:
    """A coordinator that Slurm gave its nodes."""
    order = Order(CELLS, 2, 1)
    ranks = Ranks(Path(run), order, engines.choose(launcher, 2))
    print(ranks.engine.name, ranks.virtual, *ranks.hosts, ranks.call(variables)[1]["GROUP_RANK"])
    try:
        ranks.call(die, 1)
    except RankError as error:
        print(error)


def given() -> dict[str, Any]:
    """What this process was given of its node, as the runner and the monitor see it."""
    cores, memory = allowance.allowance_sources(os.getpid())
    return {
        "host": socket.gethostname(),
        "CUDA": os.environ["CUDA_VISIBLE_DEVICES"].split(","),
        "gpus": [gpu.uuid for gpu in devices.visible()],
        "workers' cores": loader_workers.usable_cores(),
        "monitor's cores": cores.read()[1],
        "monitor's MiB": memory.read()[1],
    }


def coordinate_on_gpus(run: str, launcher: str) -> None:
    """A coordinator of a GPU on each node; it says what it was given, and what its ranks were."""
    gpus = [gpu.uuid for gpu in devices.visible()]
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)  # as the runner starts a kernel
    order = Order(CELLS, 2, 1, devices=1, kind="gpu", gpus=len(gpus))
    # Hosts by name alone: this machine's addresses are those of both.
    network.common = lambda hosts, *_: {each: network.loopback(of) for each, of in hosts.items()}
    Path(run).mkdir()
    ranks = Ranks(Path(run), order, engines.choose(launcher, 2))
    try:
        print(json.dumps([given(), *ranks.call(given)]))
    finally:
        ranks.end()


if __name__ == "__main__":
    chosen: dict[str, Callable[..., None]] = {
        "slurm": coordinate_in_an_allocation,
        "killed": coordinate_until_killed,
        "gone": coordinate_a_host_that_goes,
        "gpus": coordinate_on_gpus,
    }
    chosen[sys.argv[1]](*sys.argv[2:])

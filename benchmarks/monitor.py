"""What monitoring costs a training loop: gpumon against the usual ways, interleaved.

    python benchmarks/monitor.py [--quick] [--rounds N]

The rivals run in the same process as the training, as they do in practice: nvitop's
ResourceMetricCollector (``pip install nvitop``; left out with a word if it is not there), and a
plain sampling thread, which is what most home-made monitors are. Each round runs the same steps
once with every monitor and once without, in a shuffled order; figures are medians over rounds.

Two costs are told apart: the processor time that the monitor itself used (exact, from the
kernel's accounting of its thread or process), and how much longer the steps took (what a user
feels). The second is noisy, so for ours it is measured once more, with the sampler stopped and
continued in turns many times.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import quick

import gpumon
from helpers.results import intervals

Step = Callable[[], None]
Clock = Callable[[], float]


def make_step() -> tuple[str, Step]:
    """A training step of PyTorch, on a GPU if there is one; of NumPy where PyTorch is not."""
    try:
        import torch
    except ImportError:
        import numpy as np

        matrix = np.random.default_rng(0).standard_normal((400, 400))

        def multiply() -> None:
            np.linalg.multi_dot([matrix] * 4)

        return "NumPy products", multiply
    layers = torch.nn
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = layers.Sequential(
        layers.Conv2d(1, 16, 3, padding=1),
        layers.ReLU(),
        layers.Conv2d(16, 16, 3, padding=1),
        layers.ReLU(),
        layers.AdaptiveAvgPool2d(1),
        layers.Flatten(),
        layers.Linear(16, 14),
    ).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    images = torch.randn(16, 1, 48, 48, device=device)
    targets = torch.zeros(16, 14, device=device)

    def train() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss = layers.functional.binary_cross_entropy_with_logits(model(images), targets)
        loss.backward()
        optimiser.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    where = torch.cuda.get_device_name() if device.type == "cuda" else "the CPU"
    return f"PyTorch {torch.__version__} step on {where}", train


def run_time(place: str) -> float:
    """Seconds of processor time of a process or thread, to the nanosecond (Linux)."""
    return int(Path(f"/proc/{place}/schedstat").read_text().split()[0]) / 1e9


@contextlib.contextmanager
def nothing(folder: Path, interval: float) -> Iterator[Clock]:
    yield lambda: 0.0


@contextlib.contextmanager
def ours(folder: Path, interval: float) -> Iterator[Clock]:
    with gpumon.Monitor(folder / "trace", interval=interval):
        sampler = gpumon.read(folder / "trace").header["sampler"]
        yield lambda: run_time(str(sampler))


@contextlib.contextmanager
def sampling_thread(folder: Path, interval: float) -> Iterator[Clock]:
    """The home-made way: a thread that polls and appends to lists."""
    import psutil

    handles: list[Any] = []
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
    rows: list[tuple[Any, ...]] = []
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(interval):
            gpus = [
                (
                    pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                    pynvml.nvmlDeviceGetMemoryInfo(handle).used,
                    pynvml.nvmlDeviceGetPowerUsage(handle),
                    pynvml.nvmlDeviceGetTemperature(handle, 0),
                )
                for handle in handles
            ]
            cores = psutil.cpu_percent(percpu=True)
            rows.append((time.time(), cores, psutil.virtual_memory().used, gpus))

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    yield lambda: run_time(f"self/task/{thread.native_id}")
    ended.set()
    thread.join()


@contextlib.contextmanager
def nvitop_collector(folder: Path, interval: float) -> Iterator[Clock]:
    from nvitop import Device, ResourceMetricCollector

    devices: list[Any] = []
    # Without a driver it says so at length on standard error, once a round.
    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        devices = Device.all()
    before = {thread.native_id for thread in threading.enumerate()}
    collector = ResourceMetricCollector(devices=devices, interval=interval)
    collector.start("train")
    threads = [t.native_id for t in threading.enumerate() if t.native_id not in before]
    yield lambda: sum(run_time(f"self/task/{thread}") for thread in threads)
    collector.collect()
    collector.stop("train")


def block(monitor: Any, interval: float, step: Step, steps: int) -> tuple[float, float]:
    """Seconds a step, and the monitor's processor time as percent of a core, over one block."""
    with (
        tempfile.TemporaryDirectory() as folder,
        monitor(Path(folder), interval) as clock,
    ):
        step()
        used, start = clock(), time.perf_counter()
        for _ in range(steps):
            step()
        seconds = time.perf_counter() - start
        return seconds / steps, 100 * (clock() - used) / seconds


def tell(figure: str, unit: str, mine: float, **more: Any) -> None:
    """One JSON line; ratio above 1 means ours is better."""
    print(json.dumps({"figure": figure, "unit": unit, "ours": round(mine, 4), **more}))


def overhead(step: Step, seconds: float, rounds: int, rates: tuple[int, ...]) -> None:
    rivals: dict[str, Any] = {"sampling thread in-process": sampling_thread}
    try:
        import nvitop

        rivals[f"nvitop {nvitop.__version__} ResourceMetricCollector"] = nvitop_collector
    except ImportError:
        print("nvitop is not installed here (pip install nvitop), so it is left out\n")
    monitors = {"none": nothing, "gpumon": ours, **rivals}
    step()
    start = time.perf_counter()
    for _ in range(10):
        step()
    steps = max(10, round(10 * seconds / (time.perf_counter() - start)))
    for rate in rates:
        longer: dict[str, list[float]] = {name: [] for name in monitors}
        used: dict[str, list[float]] = {name: [] for name in monitors}
        for _ in range(rounds):
            order = list(monitors)
            random.shuffle(order)
            times = {}
            for name in order:
                times[name], share = block(monitors[name], 1 / rate, step, steps)
                used[name].append(share)
            for name in monitors:
                longer[name].append(100 * (times[name] / times["none"] - 1))
        print(f"{rate} Hz: monitor, processor time (% of a core), steps longer by (%)")
        for name in monitors:
            cost, more = statistics.median(used[name]), statistics.median(longer[name])
            print(f"  {name:45s} {cost:8.3f} {more:8.2f}")
        mine = statistics.median(used["gpumon"])
        for name in rivals:
            theirs = statistics.median(used[name])
            tell(
                f"processor time of the monitor at {rate} Hz",
                "% of a core",
                mine,
                rival=round(theirs, 4),
                rival_name=name,
                ratio=round(theirs / mine, 3),
                rounds=rounds,
            )
            slower = statistics.median(longer[name])
            tell(
                f"steps longer by at {rate} Hz",
                "%",
                statistics.median(longer["gpumon"]),
                rival=round(slower, 4),
                rival_name=name,
                ratio=round((100 + slower) / (100 + statistics.median(longer["gpumon"])), 4),
                rounds=rounds,
            )


def slowdown(step: Step, seconds: float, rates: tuple[int, ...]) -> None:
    """How much longer steps take while the sampler runs than while it is stopped.

    The sampler's process is stopped and continued every third of a second, so that what else the
    machine does falls on both halves of a pair alike; the interval is that of the pairs' median.
    """
    for rate in rates:
        with tempfile.TemporaryDirectory() as folder, gpumon.Monitor(Path(folder) / "t", 1 / rate):
            sampler = gpumon.read(Path(folder) / "t").header["sampler"]
            longer: list[float] = []
            started = time.perf_counter()
            while time.perf_counter() - started < seconds:
                times = {}
                for signal_sent in random.sample([signal.SIGSTOP, signal.SIGCONT], 2):
                    os.kill(sampler, signal_sent)
                    times[signal_sent] = _step_time(step, 0.33)
                longer.append(100 * (times[signal.SIGCONT] / times[signal.SIGSTOP] - 1))
            os.kill(sampler, signal.SIGCONT)
        found, low, high = intervals.of_median(longer)
        print(
            f"{rate} Hz: steps longer by {found:.2f} % while the sampler runs "
            f"(95 % interval {low:.2f} to {high:.2f}, {len(longer)} pairs)"
        )
        figure = f"steps longer by at {rate} Hz, sampler stopped and continued"
        tell(figure, "%", found, low=round(low, 3), high=round(high, 3), rounds=len(longer))


def _step_time(step: Step, seconds: float) -> float:
    """Seconds a step, over about ``seconds``."""
    steps, started = 0, time.perf_counter()
    while (taken := time.perf_counter() - started) < seconds:
        step()
        steps += 1
    return taken / steps


def marks() -> None:
    with tempfile.TemporaryDirectory() as folder, gpumon.Monitor(Path(folder) / "t") as monitor:
        costs = []
        with monitor.phase("train"):
            for _ in range(50):
                start = time.process_time()
                for _ in range(200):
                    with monitor.phase("step", epoch=1):
                        pass
                costs.append((time.process_time() - start) / 400 * 1e6)
    cost = statistics.median(costs)
    print(f"\na mark (half a phase) costs {cost:.1f} microseconds of processor time")
    tell("a mark", "microseconds", cost, rival=10, rival_name="the promise", rounds=50)


def cadence(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with gpumon.Monitor(Path(folder) / "t", interval=0.05) as monitor:
            time.sleep(seconds)
        size = (Path(folder) / "t.jsonl").stat().st_size
        header = (Path(folder) / "t.jsonl").open().readline()
        report = monitor.provenance()
    reached, load = report["cadence"], os.getloadavg()[0]
    print(f"\n20 Hz while this program sleeps (load of the machine {load:.1f}): {reached}")
    share = reached["within 10 ms (%)"]
    tell("samples within 10 ms of schedule at 20 Hz", "%", share, load=round(load, 1), rounds=1)
    tell("samples missed at 20 Hz", f"of {reached['samples']}", reached["missed"], rounds=1)
    hourly = (size - len(header)) / report["seconds"] * 3600 / 1e6 / len(report["devices"])
    tell("trace", "MB a device and hour at 20 Hz", hourly, rounds=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=120.0, help="of pairs; blocks: a fortieth")
    options = quick.parse(parser, seconds=10.0)
    name, step = make_step()
    print(f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    overhead(step, options.seconds / 40, options.rounds, (10, 50))
    slowdown(step, options.seconds, (10, 50))
    marks()
    cadence(options.seconds / 4)


if __name__ == "__main__":
    main()

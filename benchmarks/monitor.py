"""What monitoring costs a training loop: gpumon against the usual ways, interleaved.

    python benchmarks/monitor.py [--quick] [--rounds N] [--fake-gpus 8] [--only missed] [--waiting]

The rivals are nvitop's ResourceMetricCollector (``pip install nvitop``; left out with a word if it
is not there) and a plain sampling thread, which is what most home-made monitors are, both in the
training's own process, as in practice; and processes of their own that poll what gpumon reads, or
what DCGM's exporter reads by default or with its profiling metrics. Each round runs the same steps
once with every monitor and once without, in a shuffled order; figures are medians over rounds, with
the ends of their 95 % interval (with fewer than nine rounds, minimum and maximum).

``--fake-gpus 8`` gives all monitors a fake of the driver's library, which answers with noisy
values in no time: what is measured is then the monitors' own cost, not the driver's.

Two costs are distinguished: the processor time that the monitor itself used (exact, from the
kernel's accounting of its thread or process), and how much longer the steps took (what a user
feels). The second is noisy, so for ours it is measured once more, with the sampler stopped and
continued in turns many times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import quick
from monitors import nothing, nvitop_collector, ours, poller, sampling_thread
from turns import report

import gpumon
from helpers import paths
from helpers.results import intervals

Step = Callable[[], None]
PARTS = ("overhead", "slowdown", "marks", "cadence", "missed")
FAKE_SECONDS = 600
"""After which a fake GPU's values stay."""


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
    rivals: dict[str, Any] = {
        "sampling thread in-process": sampling_thread,
        "poller of what gpumon reads, as often": partial(poller, "gpumon"),
        "poller of what gpumon reads of GPUs, as often": partial(poller, "gpumon's GPUs"),
        "poller of DCGM's profiling list": partial(poller, "profiling"),
        "poller of DCGM's default list": partial(poller, "default"),
    }
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
            cost, more = (intervals.of_median(found[name]) for found in (used, longer))
            print(f"  {name:52s} {cost.text('.3f'):>24} {more.text('.2f'):>24}")
        for name in rivals:
            figure = f"processor time of the monitor at {rate} Hz"
            report(figure, "% of a core", used["gpumon"], used[name], name)
        for name in rivals:
            mine, theirs = ([100 + more for more in longer[each]] for each in ("gpumon", name))
            report(f"a step at {rate} Hz", "% of one without a monitor", mine, theirs, name)


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
        report = monitor.metadata()
    reached, load = report["cadence"], os.getloadavg()[0]
    print(f"\n20 Hz while this program sleeps (load of the machine {load:.1f}): {reached}")
    share = reached["within 10 ms (%)"]
    tell("samples within 10 ms of schedule at 20 Hz", "%", share, load=round(load, 1), rounds=1)
    tell("samples missed at 20 Hz", f"of {reached['samples']}", reached["missed"], rounds=1)
    hourly = (size - len(header)) / report["seconds"] * 3600 / 1e6 / len(report["devices"])
    tell("trace", "MB a device and hour at 20 Hz", hourly, rounds=1)


def missed(seconds: float) -> None:
    """Samples missed at 10 Hz while every core computes."""
    spin = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            with gpumon.Monitor(Path(folder) / "t", interval=0.1) as monitor:
                time.sleep(seconds)
            reached = monitor.metadata()["cadence"]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"\n10 Hz with {len(busy)} busy processes: {reached}")
    share = 100 * reached["missed"] / max(1, reached["samples"] + reached["missed"])
    figure = f"samples missed at 10 Hz with {len(busy)} busy processes"
    tell(figure, f"% of {reached['samples']}", share, rounds=1)


def with_fake_gpus(count: int) -> int:
    """Run this script again with a fake of the driver's library that has ``count`` GPUs."""
    sys.path.insert(0, str(paths.ROOT / "tests"))
    import fake_nvml

    rng = random.Random(0)
    steps = 10 * FAKE_SECONDS
    energy = 0.0
    lines = ["step 0.1"]
    for gpu in range(count):
        lines += [fake_nvml.H200.format(gpu=gpu), f"{gpu} gpm 1", f"{gpu} throttle 0"]
        for name, mean, spread in FAKED:
            values = [min(max(0.0, rng.gauss(mean, spread)), 2 * mean) for _ in range(steps)]
            if name == "energy":
                values = [energy := energy + value for value in values]
            lines.append(f"{gpu} {name} " + " ".join(f"{value:.1f}" for value in values))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script"
        script.write_text("\n".join(lines) + "\n")
        env = {**os.environ, **fake_nvml.environment(script)}
        return subprocess.run([sys.executable, *sys.argv], env=env, check=False).returncode


FAKED = [("utilisation", 80.0, 5.0), ("memory_utilisation", 55.0, 5.0), ("memory", 61000.0, 5.0)]
FAKED += [("power", 610e3, 12e3), ("energy", 61e3, 1e3)]
FAKED += [(f"gpm{metric}", 55.0, 2.0) for metric in (1, 2, 3, 5, 10)]
FAKED += [(f"gpm{metric}", 900.0, 90.0) for metric in (20, 21, 60, 61)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="time of all pairs; a block is a fortieth"
    )
    parser.add_argument("--fake-gpus", type=int, help="number of GPUs of a fake driver library")
    parser.add_argument("--only", choices=PARTS, help="one of the measurements")
    waiting = "wait in each step, as for a GPU, instead of computing"
    parser.add_argument("--waiting", action="store_true", help=waiting)
    options = quick.parse(parser, seconds=10.0)
    if options.fake_gpus and "FAKE_NVML_SCRIPT" not in os.environ:
        if not any(map(shutil.which, ("cc", "gcc", "clang"))):
            parser.error("--fake-gpus needs a C compiler")
        return with_fake_gpus(options.fake_gpus)
    name, step = ("waiting", partial(time.sleep, 0.02)) if options.waiting else make_step()
    gpus = f", {options.fake_gpus} fake GPUs" if options.fake_gpus else ""
    print(f"{name}, {os.cpu_count()} cores{gpus}, load {os.getloadavg()[0]:.1f}\n")
    parts: dict[str, Callable[[], None]] = {
        "overhead": lambda: overhead(step, options.seconds / 40, options.rounds, (10, 50)),
        "slowdown": lambda: slowdown(step, options.seconds, (10, 50)),
        "marks": marks,
        "cadence": lambda: cadence(options.seconds / 4),
        "missed": lambda: missed(options.seconds),
    }
    for part in [options.only] if options.only else PARTS:
        parts[part]()
    return 0


if __name__ == "__main__":
    sys.exit(main())

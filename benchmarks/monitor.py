"""Compare the processor time of gpumon with that of other monitors, interleaved.

    python benchmarks/monitor.py [--quick] [--rounds 9] [--seconds 3] [--fake-gpus 8]

The rivals are nvitop's ResourceMetricCollector (``pip install nvitop``; skipped if it is missing),
a plain sampling thread, as most home-made monitors have, and separate processes that poll through
pynvml what gpumon reads, or what DCGM's exporter reads by default. Each runs beside a program that
waits, as for a GPU. Results are medians over rounds with their 95 % interval. The kernel counts the
processor time of the monitor's thread or process exactly.

With ``--fake-gpus 8``, all monitors use a fake driver library that answers at once with noisy
values, so the result is the monitor's own cost, without the driver's.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import common
from interleaved import interleave, report

import gpumon
from helpers import paths
from helpers.results import intervals

Clock = Callable[[], float]
"""The processor time that a monitor has used so far, in seconds."""
FAKE_SAMPLES = 6000
"""Samples of 0.1 s after which a fake GPU's values stay constant."""


def run_time(place: str) -> float:
    """Seconds of processor time of a process or thread, to the nanosecond (Linux)."""
    return int(Path(f"/proc/{place}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def ours(folder: Path, interval: float) -> Iterator[Clock]:
    with gpumon.Monitor(folder / "trace", interval=interval):
        sampler = gpumon.read(folder / "trace").header["sampler"]
        yield lambda: run_time(str(sampler))


@contextmanager
def sampling_thread(folder: Path, interval: float) -> Iterator[Clock]:
    """Monitor as home-made scripts do, with a thread that polls and appends to lists."""
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


@contextmanager
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


POLLER = """
import os, sys, time
import psutil
import pynvml
interval, file, what = float(sys.argv[1]), open(sys.argv[2], "w", buffering=1), sys.argv[3]
handles = []
try:
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
except pynvml.NVMLError:
    pass
def rates(handle):
    found = pynvml.nvmlDeviceGetUtilizationRates(handle)
    return found.gpu, found.memory
def memory(handle):
    found = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return found.free, found.used
def processes(handle):
    return [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
def profile(*metrics):
    samples = {}
    def ask(handle):
        key = id(handle)
        before, after, get = samples.get(key) or (
            pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc(),
            pynvml.c_nvmlGpmMetricsGet_t())
        pynvml.nvmlGpmSampleGet(handle, after)
        known = key in samples
        samples[key] = after, before, get
        if not known:
            return None
        get.version, get.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(metrics)
        get.sample1, get.sample2 = before, after
        for place, number in enumerate(metrics):
            get.metrics[place].metricId = number
        pynvml.nvmlGpmMetricsGet(get)
        return [get.metrics[place].value for place in range(len(metrics))]
    return ask
power = (pynvml.nvmlDeviceGetPowerUsage,)
energy = (pynvml.nvmlDeviceGetTotalEnergyConsumption,)
clocks = [(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
          (pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM)]
temperature = (pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
# What is asked at every sample, or every so many seconds.
ASKED = {
    0: [*clocks, temperature, power, energy, (pynvml.nvmlDeviceGetPcieReplayCounter,), (rates,),
        (pynvml.nvmlDeviceGetEncoderUtilization,), (pynvml.nvmlDeviceGetDecoderUtilization,),
        (memory,), (pynvml.nvmlDeviceGetRemappedRows,)],
} if what == "default" else {
    0: [(rates,), power, energy, (profile(2),)],
    0.5: [*clocks, (memory,), (pynvml.nvmlDeviceGetCurrentClocksThrottleReasons,),
          (profile(3, 5, 10, 20, 21, 61, 60),)],
    1: [temperature],
    5: [(processes,), (pynvml.nvmlDeviceGetProcessUtilization, 0)],
}
program = psutil.Process(os.getppid())
HOST = {
    0.5: [(psutil.cpu_percent,), (program.cpu_affinity,)],
    1: [(psutil.cpu_percent, None, True), (psutil.virtual_memory,), (psutil.disk_io_counters,),
        (psutil.net_io_counters,), (program.cpu_times,), (program.memory_info,)],
} if what == "gpumon" else {}
def works(handle, call, *rest):
    try:
        call(handle, *rest)
    except pynvml.NVMLError:
        return False
    return True
calls = [(max(1, round(every / interval)), [(call, handle, *rest) for handle in handles
          for call, *rest in asked if works(handle, call, *rest)] + HOST.get(every, []))
         for every, asked in ASKED.items()]
due, number = time.monotonic(), 0
print("ready", flush=True)
while True:
    print(time.time(), [call(*rest) for every, them in calls if number % every == 0
                        for call, *rest in them], file=file)
    due, number = due + interval, number + 1
    time.sleep(max(0, due - time.monotonic()))
"""


@contextmanager
def poller(what: str, folder: Path, interval: float) -> Iterator[Clock]:
    """A process of its own that asks through pynvml and writes the answers down as they are.

    what: ``default`` is what NVIDIA's dcgm-exporter asks in its list ``default-counters.csv``, all
    at every sample. ``gpumon`` is what gpumon asks of GPUs and of the host, each as often as gpumon
    does. DCGM itself is on no package index; its C costs less than this Python.
    """
    words = [sys.executable, "-c", POLLER, str(interval), str(folder / "polled"), what]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield lambda: run_time(str(process.pid))
        process.terminate()


def cost(monitor: Any, seconds: float, interval: float) -> tuple[float]:
    """The monitor's processor time, as percent of a core, while this program waits."""
    with tempfile.TemporaryDirectory() as folder, monitor(Path(folder), interval) as clock:
        time.sleep(2 * interval)
        used, start = clock(), time.perf_counter()
        time.sleep(seconds)
        return (100 * (clock() - used) / (time.perf_counter() - start),)


def with_fake_gpus(count: int) -> int:
    """Run this script again with a fake of the driver's library that has ``count`` GPUs."""
    sys.path.insert(0, str(paths.ROOT / "tests"))
    import fake_nvml

    rng = random.Random(0)
    energy = 0.0
    lines = ["step 0.1"]
    for gpu in range(count):
        lines += [fake_nvml.H200.format(gpu=gpu), f"{gpu} gpm 1", f"{gpu} throttle 0"]
        for name, mean, spread in FAKED:
            values = [min(max(0.0, rng.gauss(mean, spread)), 2 * mean) for _ in range(FAKE_SAMPLES)]
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
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of each measurement")
    parser.add_argument("--fake-gpus", type=int, help="number of GPUs of a fake driver library")
    options = common.parse(parser, seconds=0.5)
    if options.fake_gpus and "FAKE_NVML_SCRIPT" not in os.environ:
        if not any(map(shutil.which, ("cc", "gcc", "clang"))):
            parser.error("--fake-gpus needs a C compiler")
        return with_fake_gpus(options.fake_gpus)
    monitors: dict[str, Any] = {
        "gpumon": ours,
        "sampling thread in-process": sampling_thread,
        "poller of what gpumon reads, as often": partial(poller, "gpumon"),
        "poller of DCGM's default list": partial(poller, "default"),
    }
    with contextlib.suppress(ImportError):
        import nvitop

        monitors[f"nvitop {nvitop.__version__} ResourceMetricCollector"] = nvitop_collector
    for rate in (10, 50):
        loads = {
            name: partial(cost, monitor, options.seconds, 1 / rate)
            for name, monitor in monitors.items()
        }
        (used,) = interleave(loads, options.rounds)
        print(f"{rate} Hz, gpumon: {intervals.of_median(used['gpumon']).text('.3f')} % of a core")
        for name in list(monitors)[1:]:
            what = f"processor time of the monitor at {rate} Hz"
            report(what, "% of a core", used["gpumon"], used[name], name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

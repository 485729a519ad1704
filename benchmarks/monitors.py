"""Monitors that are compared: gpumon, and the usual ways to watch GPUs.

Each is a context manager that gets a folder to write to and the seconds between two samples, and
gives a clock: the processor time that the monitor has used so far, from the kernel's accounting.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpumon

Clock = Callable[[], float]


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
rows = (pynvml.nvmlDeviceGetRemappedRows,)
# What is asked at every sample, or every so many seconds.
DEFAULT = [*clocks, temperature, power, energy, (pynvml.nvmlDeviceGetPcieReplayCounter,), (rates,),
           (pynvml.nvmlDeviceGetEncoderUtilization,), (pynvml.nvmlDeviceGetDecoderUtilization,),
           (memory,), rows]
GPUMON = {
    0: [(rates,), power, energy, (profile(2),)],
    0.5: [*clocks, (memory,), (pynvml.nvmlDeviceGetCurrentClocksThrottleReasons,),
          (profile(3, 5, 10, 20, 21, 61, 60),)],
    1: [temperature],
    5: [(processes,), (pynvml.nvmlDeviceGetProcessUtilization, 0)],
}
ASKED = {
    "default": {0: DEFAULT},
    # The GPU's own counters too: graphics engine, tensor cores, DRAM, PCIe both ways.
    "profiling": {0: [*DEFAULT, (profile(1, 5, 10, 20, 21),)]},
    "gpumon's GPUs": GPUMON,
    "gpumon": GPUMON,
}[what]
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


@contextlib.contextmanager
def poller(what: str, folder: Path, interval: float) -> Iterator[Clock]:
    """A process of its own that asks the driver through pynvml, as most do, and writes the answers
    down as they are.

    what: ``default`` is what NVIDIA's dcgm-exporter asks in its list ``default-counters.csv``, and
    ``profiling`` in its ``dcp-metrics-included.csv``, which also has the GPU's own counters (by
    GPM), less what it does not answer, all at every sample. ``gpumon's GPUs`` is what gpumon asks
    of GPUs, each as often as gpumon does; ``gpumon`` also what it asks of the host,
    but for limits and the processes that the program has started. DCGM itself is on
    no package index; its C costs less than this Python, which is what gpumon is written in too."""
    words = [sys.executable, "-c", POLLER, str(interval), str(folder / "polled"), what]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield lambda: run_time(str(process.pid))
        process.terminate()

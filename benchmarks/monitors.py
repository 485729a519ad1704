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


DCGM_LIKE = """
import sys, time
import pynvml
interval, file = float(sys.argv[1]), open(sys.argv[2], "w", buffering=1)
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
ASKED = [
    (pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
    (pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
    (pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
    (pynvml.nvmlDeviceGetPowerUsage,),
    (pynvml.nvmlDeviceGetTotalEnergyConsumption,),
    (pynvml.nvmlDeviceGetPcieReplayCounter,),
    (rates,),
    (pynvml.nvmlDeviceGetEncoderUtilization,),
    (pynvml.nvmlDeviceGetDecoderUtilization,),
    (memory,),
    (pynvml.nvmlDeviceGetRemappedRows,),
]
# Graphics engine, tensor cores, DRAM, PCIe both ways.
PROFILED = (1, 5, 10, 20, 21)
samples = {}
def profile(handle):
    before, after, get = samples.get(id(handle)) or (
        pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc(), pynvml.c_nvmlGpmMetricsGet_t())
    pynvml.nvmlGpmSampleGet(handle, after)
    known = id(handle) in samples
    samples[id(handle)] = after, before, get
    if not known:
        return None
    get.version, get.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(PROFILED)
    get.sample1, get.sample2 = before, after
    for place, number in enumerate(PROFILED):
        get.metrics[place].metricId = number
    pynvml.nvmlGpmMetricsGet(get)
    return [get.metrics[place].value for place in range(len(PROFILED))]
if sys.argv[3] == "profiling":
    ASKED.append((profile,))
def works(handle, call, *rest):
    try:
        call(handle, *rest)
    except pynvml.NVMLError:
        return False
    return True
calls = [(call, handle, rest) for handle in handles for call, *rest in ASKED
         if works(handle, call, *rest)]
due = time.monotonic()
print("ready", flush=True)
while True:
    print(time.time(), [call(handle, *rest) for call, handle, rest in calls], file=file)
    due += interval
    time.sleep(max(0, due - time.monotonic()))
"""


@contextlib.contextmanager
def dcgm_like(folder: Path, interval: float, fields: str = "default") -> Iterator[Clock]:
    """A process that asks the driver for what NVIDIA's dcgm-exporter asks in its list
    ``default-counters.csv``, less what it does not answer, and writes it down. DCGM itself is on no
    package index; its C costs less than this Python, which is what gpumon is written in too."""
    words = [sys.executable, "-c", DCGM_LIKE, str(interval), str(folder / "polled"), fields]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as poller:
        assert poller.stdout is not None
        poller.stdout.readline()
        yield lambda: run_time(str(poller.pid))
        poller.terminate()


def dcgm_profiling(folder: Path, interval: float) -> contextlib.AbstractContextManager[Clock]:
    """The same of its list ``dcp-metrics-included.csv``, which also has the GPU's own counters (by
    GPM): this is what gpumon asks for too."""
    return dcgm_like(folder, interval, "profiling")

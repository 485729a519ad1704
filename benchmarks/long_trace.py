"""What a long recording costs gpumon's readers: 100,000 samples of 8 GPUs, by default.

    python benchmarks/long_trace.py [--quick] [--samples 100000] [--gpus 8]

Noisy samples go through the sampler's own writer. Each reader runs in a process of its own, and
prints a line of JSON: seconds until the trace is open, and in all, of the processor, and the most
memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np

from gpumon.gpu import METRICS
from gpumon.trace_files import FORMAT, Writer

INTERVAL, CORES = 1.0, 32
OF_GPU = {
    "utilisation (%)": 94,
    "memory utilisation (%)": 60,
    "memory used (MiB)": 61_000,
    "power (W)": 610,
    "temperature (C)": 61,
    "SM clock (MHz)": 1900,
    "throttle reasons (bits)": 0,
    "other processes (count)": 0,
    **{name: 55 for _, name, _ in METRICS},
}
"""The mean of each series."""
OF_HOST = {
    "host/cpu (%)": 40,
    **{f"host/cpu{core} (%)": 40 for core in range(CORES)},
    "host/memory used (MiB)": 100_000,
    **{f"host/{way} (MiB/s)": 50 for way in ("disk read", "network sent")},
    "process/cpu (%)": 900,
    "process/memory (MiB)": 80_000,
}
READERS = ("pass", "trace.summary()", "trace.plot()._repr_png_()", "trace.html()",
           "trace.export(sys.argv[1] + '.csv')")  # fmt: skip
PROGRAM = """
import json, re, sys, time
import gpumon
started = time.perf_counter()
trace = gpumon.read(sys.argv[1])
opened = time.perf_counter() - started
{call}
numbers = dict(opened=opened, seconds=time.perf_counter() - started, core=time.process_time())
status = open("/proc/self/status").read()
numbers["megabytes"] = int(re.findall(r"VmHWM:\\s+(\\d+)", status)[0]) / 1024
print(json.dumps({{"result": {call!r}}} | {{name: round(x, 2) for name, x in numbers.items()}}))
"""


def header_of(gpus: int, series: list[str]) -> dict[str, Any]:
    """A trace of H100s."""
    devices: list[dict[str, Any]] = [
        {"name": f"gpu{gpu}", "kind": "gpu", "uuid": f"GPU-{gpu}", "product": "NVIDIA H100"}
        | {"memory total (MiB)": 81559, "power limit (W)": 700.0}
        for gpu in range(gpus)
    ]
    devices.append({"name": "host", "kind": "host", "cores": CORES, "memory total (MiB)": 515_000})
    texts = {"version": "0", "host": "node", "system": "Linux", "boot": "b"}
    times = {"interval (s)": INTERVAL, "start (monotonic s)": 0.0, "start (unix s)": 1.8e9}
    keys = [{"key": key, "api": "", "reason": None} for key in series]
    what = {"gpumon": FORMAT, "rank": None, "thinned": 1, "nvml": {"available": True}}
    return what | texts | times | {"devices": devices, "series": keys}


def write(prefix: Path, gpus: int, samples: int) -> None:
    """So many samples, noisy as training's are."""
    means = {f"gpu{gpu}/{name}": mean for gpu in range(gpus) for name, mean in OF_GPU.items()}
    means |= OF_HOST
    middle = np.array(list(means.values()), float)
    random = np.random.default_rng(0)
    writer = Writer(prefix.with_name(prefix.name + ".jsonl"))
    writer.line(header_of(gpus, list(means)))
    for number in range(samples):
        values = random.normal(middle, middle / 20).round(1).tolist()
        writer.sample(number * INTERVAL, values, range(len(values)))
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--gpus", type=int, default=8)
    options = common.parse(parser, samples=1_000, gpus=2)
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "t"
        write(prefix, options.gpus, options.samples)
        print(f"{prefix.with_name('t.jsonl').stat().st_size / 1e6:.1f} MB")
        for call in READERS:
            words = [sys.executable, "-c", PROGRAM.format(call=call), str(prefix)]
            subprocess.run(words, check=True)


if __name__ == "__main__":
    main()

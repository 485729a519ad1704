"""What a long recording costs gpumon's readers: a week at 10 Hz on 8 GPUs, by default.

    python benchmarks/long_trace.py [--quick] [--days N] [--gpus N]

The samples go through the sampler's own writer, as many and as far apart as a recording of so long
has once its writer has thinned it out. Each reader runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import quick

from gpumon import gpu_activity
from gpumon.trace_format import FORMAT, MOST_VALUES
from gpumon.writer import Writer

INTERVAL = 0.1
CORES = 32
NOISE: dict[str, tuple[float, float, float, int]] = {
    "utilisation (%)": (0.1, 94, 3, 0),
    "memory utilisation (%)": (0.1, 60, 3, 0),
    "memory used (MiB)": (2.0, 61000, 2, 0),
    "power (W)": (0.1, 610, 12, 1),
    "energy (J)": (0.1, 61, 1.2, 1),
    "temperature (C)": (1.0, 61, 1, 0),
    "SM clock (MHz)": (0.5, 1900, 15, 0),
    "memory clock (MHz)": (0.5, 2619, 0, 0),
    "throttle reasons (bits)": (0.5, 4, 0, 0),
    "other processes (count)": (5.0, 0, 0, 0),
    "memory mine (MiB)": (5.0, 60500, 2, 0),
    "memory others (MiB)": (5.0, 0, 0, 0),
    "SM use mine (%)": (5.0, 94, 3, 1),
    "SM use others (%)": (5.0, 0, 0, 1),
    **{
        name: (gpu_activity.LONGER, 55, 2, digits) if digits else (gpu_activity.LONGER, 900, 90, 0)
        for _, name, digits in gpu_activity.METRICS
    },
    "SM activity (%)": (gpu_activity.SHORTEST, 55, 2, 1),
}
"""A GPU's series: seconds between two readings, mean, standard deviation, decimals."""
HOST_NOISE: dict[str, tuple[float, float, float, int]] = {
    "host/cpu (%)": (0.5, 40, 5, 1),
    **{f"host/cpu{core} (%)": (1.0, 40, 9, 0) for core in range(CORES)},
    "host/memory used (MiB)": (1.0, 100_000, 50, 0),
    **{f"host/{way} (MiB/s)": (1.0, 50, 9, 2) for way in (
        "disk read", "disk written", "network received", "network sent")},
    "sampler/cpu (%)": (1.0, 0.5, 0.05, 2),
    "process/cpu (%)": (1.0, 900, 50, 1),
    "process/memory (MiB)": (1.0, 80_000, 50, 0),
    "process/processes (count)": (1.0, 33, 0, 0),
    "process/CPU allowance used (%)": (0.5, 40, 5, 1),
    "process/CPU allowance (cores)": (0.5, CORES, 0, 2),
    "process/memory allowance used (MiB)": (1.0, 90_000, 50, 0),
    "process/memory allowance (MiB)": (1.0, 515_000, 0, 0),
}  # fmt: skip
READERS = {
    "opens": "trace",
    "summary": "trace.summary()",
    "chart": "trace.plot()._repr_png_()",
    "page": "trace.html()",
    "CSV": "trace.export(sys.argv[1] + '.csv')",
}
PROGRAM = """
import json, resource, sys, time
import gpumon
started = time.perf_counter()
trace = gpumon.read(sys.argv[1])
opened = time.perf_counter() - started
{call}
seconds = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([opened, seconds, peak, len(trace.recording.times), time.process_time()]))
"""


def series_of(gpus: int) -> dict[str, tuple[float, float, float, int]]:
    """Every series that a sampler has there, and how it moves."""
    each = {f"gpu{gpu}/{name}": how for gpu in range(gpus) for name, how in NOISE.items()}
    return each | HOST_NOISE


def header_of(gpus: int, thinned: int) -> dict[str, Any]:
    """A trace of H100s with every series that they have, one of ``thinned`` samples kept."""
    devices: list[dict[str, Any]] = [
        {"name": f"gpu{gpu}", "kind": "gpu", "uuid": f"GPU-{gpu}", "product": "NVIDIA H100"}
        | {"memory total (MiB)": 81559, "power limit (W)": 700.0}
        for gpu in range(gpus)
    ]
    devices.append({"name": "host", "kind": "host", "cores": CORES, "memory total (MiB)": 515_000})
    return {
        "gpumon": FORMAT,
        "version": "0",
        "host": "node",
        "system": "Linux",
        "boot": "b",
        "rank": None,
        "clock": "monotonic",
        "interval (s)": INTERVAL * thinned,
        "thinned": thinned,
        "nvml": {"available": True},
        "start (monotonic s)": 0.0,
        "start (unix s)": 1.8e9,
        "devices": devices,
        "series": [{"key": key, "api": "", "reason": None} for key in series_of(gpus)],
    }


def write(prefix: Path, gpus: int, seconds: float) -> int:
    """The samples of so many seconds, noisy as training's are; gives how many there are."""
    rng = random.Random(0)
    series = series_of(gpus)
    thinned = 1
    while seconds / (INTERVAL * thinned) * len(series) > MOST_VALUES:
        thinned *= 2
    step = INTERVAL * thinned
    writer = Writer(prefix.with_name(prefix.name + ".jsonl"))
    writer.line(header_of(gpus, thinned))
    values: list[float | None] = [0.0] * len(series)
    moving = [
        (place, max(1, round(every / step)), mean, spread, digits, key.endswith("energy (J)"))
        for place, (key, (every, mean, spread, digits)) in enumerate(series.items())
    ]
    for number in range(round(seconds / step)):
        for place, every, mean, spread, digits, grows in moving:
            # Like the sampler, which spreads slow readings over different samples.
            if number == 0 or (number + place) % every == 0:
                before = (values[place] or 0.0) if grows else 0.0
                values[place] = round(before + max(0.0, rng.gauss(mean, spread)), digits or None)
        writer.sample(number * step, values)
    writer.close()
    return round(seconds / step)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--gpus", type=int, default=8)
    options = quick.parse(parser, days=0.02, gpus=2)
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "t"
        samples = write(prefix, options.gpus, options.days * 86400)
        size = prefix.with_name("t.jsonl").stat().st_size / 1e6
        print(json.dumps({"figure": "trace, MB", "ours": round(size, 1), "samples": samples}))
        for name, call in READERS.items():
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM.format(call=call), str(prefix)],
                capture_output=True,
                text=True,
                check=True,
            )
            opened, seconds, peak, samples, used = json.loads(done.stdout)
            figures = {"opened, s": round(opened, 2), "in all, s": round(seconds, 2)}
            figures["processor, s"] = round(used, 2)
            entry = {"figure": name, "days": options.days, "gpus": options.gpus, "samples": samples}
            print(json.dumps(entry | figures | {"peak, MB": round(peak), "rounds": 1}))


if __name__ == "__main__":
    main()

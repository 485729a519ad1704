"""What a long recording costs gpumon's readers: a week at 10 Hz on 8 GPUs, by default.

    python benchmarks/long_trace.py [--quick] [--days N] [--gpus N]

The samples of the first hour go through the sampler's own writer, with its parts and rows; the rows
of the rest repeat that hour's, moved on in time, since that is all that a reader takes of it. Each
reader runs in a process of its own. Disk space a day is that of the written hour, times 24.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path
from typing import Any

import quick

from gpumon import gpm, parts
from gpumon.lines import FORMAT
from gpumon.tiers import ROW, tiers_file
from gpumon.writer import Writer

INTERVAL = 0.1
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


def header_of(gpus: int) -> dict[str, Any]:
    """A trace of H100s with every series that they have."""
    names = ["utilisation (%)", "memory utilisation (%)", "memory used (MiB)", "power (W)"]
    names += ["energy (J)", "temperature (C)", "SM clock (MHz)", "memory clock (MHz)"]
    names += ["throttle reasons (bits)", *(name for _, name, _ in gpm.METRICS)]
    keys = [f"gpu{gpu}/{name}" for gpu in range(gpus) for name in names]
    keys += ["host/cpu (%)", "host/memory used (MiB)"]
    keys += [f"host/cpu{core} (%)" for core in range(32)]
    devices: list[dict[str, Any]] = [
        {"name": f"gpu{gpu}", "kind": "gpu", "uuid": f"GPU-{gpu}", "product": "NVIDIA H100"}
        | {"memory total (MiB)": 81559, "power limit (W)": 700.0}
        for gpu in range(gpus)
    ]
    devices.append({"name": "host", "kind": "host", "cores": 32, "memory total (MiB)": 515_000})
    return {
        "gpumon": FORMAT,
        "version": "0",
        "host": "node",
        "system": "Linux",
        "boot": "b",
        "rank": None,
        "clock": "monotonic",
        "interval (s)": INTERVAL,
        "nvml": {"available": True},
        "start (monotonic s)": 0.0,
        "start (unix s)": 1.8e9,
        "devices": devices,
        "series": [{"key": key, "api": "", "reason": None} for key in keys],
    }


def write(prefix: Path, gpus: int, seconds: float) -> None:
    """The first of the samples, as a sampler writes them: noisy, as training's are."""
    rng = random.Random(0)
    header = header_of(gpus)
    keys = [series["key"].partition("/")[2] for series in header["series"]]
    writer = Writer(prefix.with_name(prefix.name + ".jsonl"))
    writer.line(header)
    values: list[float | None] = [0.0] * len(keys)
    for number in range(round(seconds / INTERVAL)):
        for place, key in enumerate(keys):
            if key.startswith(("utilisation", "memory utilisation")):
                values[place] = min(100, round(rng.gauss(96, 3)))
            elif key.startswith("power"):
                values[place] = round(rng.gauss(610, 12), 1)
            elif key.startswith("energy"):
                values[place] = round((values[place] or 0) + rng.gauss(610, 12) * INTERVAL, 1)
            elif key.endswith("(MiB/s)"):
                values[place] = round(rng.gauss(900, 90))
            elif key.startswith("cpu"):
                if number % 10 == place % 10:
                    values[place] = round(rng.gauss(40, 9))
            elif key.endswith("(%)"):
                values[place] = round(rng.gauss(55, 2), 1)
            elif number % 20 == 0:
                values[place] = round(rng.gauss(1000, 2))
        writer.sample(number * INTERVAL, values)
    writer.close()


def prolong(prefix: Path, series: int, seconds: float) -> None:
    """Rows up to so many seconds, which repeat those that there are."""
    file = tiers_file(prefix)
    size = 8 + 16 * series
    data = file.read_bytes()
    rows = [data[place : place + size] for place in range(0, len(data), size)]
    with file.open("ab") as out:
        for number in range(len(rows), round(seconds / ROW)):
            out.write(array("d", [number * ROW]).tobytes() + rows[number % len(rows)][8:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3600.0, help="written sample by sample")
    options = quick.parse(parser, seconds=400.0, days=0.5, gpus=2)
    if options.quick:
        parts.PART = 2**18
        from gpumon import writer

        writer.PART = parts.PART
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "t"
        write(prefix, options.gpus, options.seconds)
        used = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())
        used -= (Path(folder) / "t.jsonl").stat().st_size  # not yet compressed
        header = json.loads((Path(folder) / "t.jsonl").open().readline())
        packed = header["parts"][-1]["to"] / 86400
        print(json.dumps({"figure": "trace, MB a day", "ours": round(used / 1e6 / packed, 1)}))
        # A reader takes rows where the samples are too many: as many as there would be.
        for part in header["parts"]:
            part["samples"] = round(options.days * 86400 / INTERVAL / len(header["parts"]))
        lines = (Path(folder) / "t.jsonl").read_text().splitlines()
        (Path(folder) / "t.jsonl").write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
        prolong(prefix, len(header["series"]), options.days * 86400)
        for name, call in READERS.items():
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM.format(call=call), str(prefix)],
                capture_output=True,
                text=True,
                check=True,
            )
            opened, seconds, peak, rows, used = json.loads(done.stdout)
            figures = {"opened, s": round(opened, 2), "in all, s": round(seconds, 2)}
            figures["processor, s"] = round(used, 2)
            told = {"figure": name, "days": options.days, "gpus": options.gpus, "rows": rows}
            print(json.dumps(told | figures | {"peak, MB": round(peak), "rounds": 1}))


if __name__ == "__main__":
    main()

"""Draws the pictures of docs/gpumon.md: scripted GPUs, replayed through the real monitor.

    python tests/fake_nvml/scenarios.py docs/images

Each scenario is a script for the fake driver (``fake_nvml.c``) that a program of phases runs
beside, under a real Monitor, in real time; only the hardware is made up. Takes about half a
minute: all scenarios run at once.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

STEP = 0.1
PHASES = [("load", 2.4), ("train", 7.0), ("validate", 1.8), ("train", 7.0), ("validate", 1.8),
          ("test", 2.0)]  # fmt: skip
Readings = tuple[float, float, float]
"""Utilisation, SM activity, memory (MiB)."""
Shape = Callable[[str, float, float, int, random.Random], Readings]


def ok(phase: str, into: float, at: float, gpu: int, rng: random.Random) -> Readings:
    """Full, after a pause for tuning the kernels."""
    if phase == "load":
        return 0, 0, 600
    if at < 3.4:  # a first step of trying out kernels, then the pause before the rest
        return (100, 20, 21000) if at < 2.8 else (8, 2, 52000)
    if phase == "train":
        return 97 + rng.random() * 3, 74 + rng.gauss(0, 2), 61000
    if into < 0.5:  # validation begins: its loader has to fill first
        return 4, 1, 61000
    return 88 + rng.gauss(0, 4), 60 + rng.gauss(0, 3), 64000


def input_bound(phase: str, into: float, at: float, gpu: int, rng: random.Random) -> Readings:
    """The loader is slower than the GPU: bursts of work, then waiting."""
    if phase == "load":
        return 0, 0, 600
    period = 0.9 if phase == "train" else 1.1
    work = (at % period) / period < 0.38
    return (98, 61 + rng.gauss(0, 3), 42000) if work else (rng.random() * 6, rng.random(), 42000)


def imbalanced(phase: str, into: float, at: float, gpu: int, rng: random.Random) -> Readings:
    """GPU 0 gathers outputs and gradients; the others wait for it."""
    if phase == "load":
        return 0, 0, 600
    if gpu == 0:
        return 96 + rng.random() * 4, 58 + rng.gauss(0, 3), 88000
    return 52 + rng.gauss(0, 7), 34 + rng.gauss(0, 4), 47000 + 400 * gpu


def low_occupancy(phase: str, into: float, at: float, gpu: int, rng: random.Random) -> Readings:
    """Some kernel always runs, and none of them fills the GPU."""
    if phase == "load":
        return 0, 0, 600
    return 99 + rng.random(), 30 + rng.gauss(0, 2), 9000


SCENARIOS: dict[str, tuple[Shape, int, str]] = {
    "ok": (ok, 2, "Full, with a pause at the start and a gap before each validation"),
    "input_bound": (input_bound, 1, "Input-bound: the loader is too slow"),
    "imbalanced": (imbalanced, 4, "Imbalanced: GPU 0 does more work"),
    "low_occupancy": (low_occupancy, 1, "Low occupancy: 100 % utilisation, 30 % SM activity"),
}


def script(shape: Shape, gpus: int) -> str:
    """The scenario as lines for the fake driver."""
    import fake_nvml

    lines = [f"step {STEP}"]
    for gpu in range(gpus):
        rng = random.Random(gpu)
        columns: dict[str, list[float]] = {k: [] for k in ("u", "sm", "memory", "power")}
        at = 0.0
        for phase, seconds in PHASES:
            for tick in range(round(seconds / STEP)):
                busy, active, memory = shape(phase, tick * STEP, at, gpu, rng)
                columns["u"].append(min(100, max(0, busy)))
                columns["sm"].append(min(100, max(0, active)))
                columns["memory"].append(memory)
                power = 118 + 0.9 * busy + 5.6 * active + rng.gauss(0, 6)
                columns["power"].append(1000 * power)
                at += STEP
        lines += [fake_nvml.H200.format(gpu=gpu), f"{gpu} gpm 1"]
        for name, key in (("utilisation", "u"), ("gpm2", "sm"), ("memory", "memory")):
            lines.append(f"{gpu} {name} " + " ".join(f"{v:.0f}" for v in columns[key]))
        lines.append(f"{gpu} power " + " ".join(f"{v:.0f}" for v in columns["power"]))
    return "\n".join(lines) + "\n"


def play(prefix: Path) -> None:
    """The program beside the script: it only marks the phases."""
    import gpumon

    with gpumon.Monitor(prefix, interval=STEP) as monitor:
        epochs: dict[str, int] = {}
        for phase, seconds in PHASES:
            epochs[phase] = epochs.get(phase, 0) + 1
            more = {"epoch": epochs[phase]} if phase in ("train", "validate") else {}
            with monitor.phase(phase, items=round(420 * seconds), **more):
                time.sleep(seconds)


def main(target: Path) -> None:
    import tempfile

    import fake_nvml
    import gpumon

    with tempfile.TemporaryDirectory() as folder:
        running = []
        for name, (shape, gpus, _) in SCENARIOS.items():
            file = Path(folder) / f"{name}.script"
            file.write_text(script(shape, gpus))
            environment = {**os.environ, **fake_nvml.environment(file)}
            command = [sys.executable, __file__, "--play", str(Path(folder) / name)]
            running.append(subprocess.Popen(command, env=environment))
        for program in running:
            if program.wait():
                raise SystemExit("a scenario failed")
        target.mkdir(parents=True, exist_ok=True)
        traces = {name: gpumon.read(Path(folder) / name) for name in SCENARIOS}
        for name, (_, gpus, title) in SCENARIOS.items():
            lanes = [f"gpu{gpu}" for gpu in range(gpus)]
            theme = "dark" if name == "low_occupancy" else "light"
            chart = traces[name].plot(title=title, devices=lanes, theme=theme)
            chart.savefig(target / f"gpumon-{name.replace('_', '-')}.png", dpi=80)
        both = {"ok": traces["ok"], "input-bound": traces["input_bound"]}
        chart = gpumon.compare(both, title="Two runs on the same axes", align="train")
        chart.savefig(target / "gpumon-compare.png", dpi=80)
        for name in ("input_bound", "imbalanced"):
            print(traces[name].summary().query("phase == 'train'").T.to_string())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        play(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))

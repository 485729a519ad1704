"""How long a report takes, and how large it is: against an exported notebook.

    python benchmarks/report.py [FOLDER] [--runs N] [--quick]

FOLDER holds the runs (default: six made-up demo records with traces; --runs N: N of a sweep over
frameworks, devices and seeds). The rival is what is sent round without a report: Compare.ipynb of
the same batch, executed and exported to HTML by nbconvert. Each is a process of its own, imports
included; rounds are interleaved, figures medians.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import quick
import turns

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "Compare.ipynb"
DEVICES = (1, 2, 4, 8)
NAME = "Compare.ipynb through nbconvert"


def made_up(folder: Path, runs: int) -> Path:
    """Six records as the tests have them, or more, of a sweep of 62 epochs each; with traces."""
    sys.path.insert(0, str(ROOT / "tests"))
    import gpumon_tools
    import records
    import scaling_records

    if runs <= len(records.SIX):
        records.six(folder)
        return folder
    each = [
        (*row, devices, seed) for seed in range(runs) for row in records.SIX for devices in DEVICES
    ]
    contents = [
        scaling_records.make(framework, devices, notebook=notebook, faster=speed / 100, seed=seed)
        for framework, notebook, speed, devices, seed in each[:runs]
    ]
    scaling_records.save(folder, contents)
    for run in folder.iterdir():
        gpumon_tools.write(run / "trace", {"gpu0": [10.0, 90.0] * 300, "gpu1": [30.0] * 600})
    return folder


def ours(batch: Path, into: Path) -> Path:
    command = [sys.executable, "-m", "helpers", "report", str(batch), "--out", str(into)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return into / "report.html"


def rival(batch: Path, into: Path) -> Path:
    notebook, page = into / "Compare.ipynb", into / "Compare.html"
    for command in (
        ["papermill", str(NOTEBOOK), str(notebook), "-p", "runs", str(batch)],
        ["nbconvert", "--to", "html", "--output", str(page), str(notebook)],
    ):
        # Both are modules of this environment, so no PATH is needed to find them.
        subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True, capture_output=True)
    return page


def measured(make: Callable[[Path, Path], Path], batch: Path, into: Path) -> tuple[float, float]:
    """Seconds and megabytes."""
    pages: list[Path] = []
    clock, _ = turns.seconds(lambda: pages.append(make(batch, into)))
    return clock, pages[0].stat().st_size / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("batch", type=quick.folder, nargs="?")
    parser.add_argument("--runs", type=int, default=6, help="more than six: a sweep")
    parser.add_argument("--rounds", type=int, default=5)
    given = quick.parse(parser, rounds=1)
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder)
        batch = (given.batch or made_up(into / "batch", given.runs)).resolve()
        makers = {"ours": ours, NAME: rival}
        loads = {name: partial(measured, make, batch, into) for name, make in makers.items()}
        took, size = turns.by_turns(loads, given.rounds)
    for figure, unit, each in (("build the report", "s", took), ("its size", "MB", size)):
        turns.report(figure, unit, each["ours"], each[NAME], NAME)


if __name__ == "__main__":
    main()

"""The steps of the check, the most wanted first, and what the figures are held to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gpu_place import HERE, ROOT, lacks
from kernels import KERNELS

Outcome = tuple[str, str]
"""``ok``, ``failed`` or ``skipped``, and what the summary says of it."""


class Here(NamedTuple):
    """What decides the steps: where, with which Python, how large."""

    out: Path
    work: Path
    python: Path
    gpus: int
    small: bool


class Step(NamedTuple):
    """Commands that are run one after the other, while each ends in 0.

    ``read`` says what came of them, from the exit code of the last and its last line.
    """

    name: str
    seconds: float
    """All its time, of ten minutes. It is not begun where less than half of that is left."""
    commands: list[list[str]] = []  # noqa: RUF012 (never changed)
    skipped: str = ""
    """Why it cannot be run here."""
    read: Callable[[int, str], Outcome] | None = None


class Goal(NamedTuple):
    """What a figure on GPUs is to reach: ``least`` times its rival's."""

    figure: str
    rival: str
    least: float


GOALS = (
    Goal("ours", "the article's loop", 4),
    Goal("ours", "timm's step", 1.2),
    Goal("ours on files", "ours", 0.97),
    Goal("training on png files", "on noise", 0.97),
)


def goal(figure: dict[str, Any]) -> float | None:
    """The ratio that a benchmark's figure is to reach; None where nothing was asked for."""
    for each in GOALS:
        of, rival = figure["figure"], str(figure.get("rival_name"))
        if of.split(",")[0] == each.figure and rival.split(",")[0].startswith(each.rival):
            return each.least
    return None


def steps(here: Here) -> Iterator[Step]:
    """Every step for this machine, those that it cannot run too."""
    python, out = [str(here.python)], here.out
    bench = [*python, "-W", "ignore"]
    kernels = [kernel for kernel in KERNELS if kernel != "lab" and lacks(kernel) is None]
    yield Step("versions", 40, [[*python, str(HERE / "versions.py"), *kernels], *_tools()])
    yield Step(
        "probe",
        60,
        [
            [
                *_helpers(here, "helpers"),
                "doctor",
                "--here",
                ",".join(kernels),
                "--logs",
                f"{out}/probe",
            ]
        ],
    )
    gpumon, trace = [*python, "-m", "gpumon"], f"{out}/gpumon/load"
    load = [*python, str(HERE / "load.py"), "2" if here.small else "8"]
    yield Step(
        "monitor",
        40,
        [
            [*gpumon, "devices"],
            [*gpumon, "record", "--interval", "0.05", "--out", trace, "--", *load],
            [*gpumon, "summary", trace],
            [*gpumon, "plot", trace, "--out", f"{trace}.png"],
        ],
    )
    yield _images(here)
    notebooks = sorted(_notebooks(), key=lambda found: (found[1] not in kernels, found[0]))
    for notebook, kernel in notebooks:
        yield _compare(here, notebook, notebook, lacks(kernel) or "", 150)
    yield _shared(here)
    yield from _benchmarks(here, bench, lacks("pytorch") or "")


def _tools() -> list[list[str]]:
    if shutil.which("nvidia-smi") is None:
        return []
    return [["nvidia-smi"], ["nvidia-smi", "topo", "-m"], ["nvidia-smi", "-q"]]


def _images(here: Here) -> Step:
    """Generated X-rays, as files ready to train: the size of the article's, or the demo's."""
    count, made, size = (200, 76, 38) if here.small else (1280, 528, 264)
    data_prep = [str(here.python), "-m", "data_prep"]
    source, target = str(here.work / "source"), str(here.work / "images")
    return Step(
        "images",
        90,
        [
            [*data_prep, "generate", source, "--num-images", str(count), "--size", str(made)],
            [*data_prep, "resize", source, target, "--size", str(size)],
        ],
    )


def _notebooks() -> Iterator[tuple[str, str]]:
    """Each framework's notebook and its kernel."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
        if "framework" in metadata.get("rosetta", {}):
            yield path.stem, metadata["kernelspec"]["name"]


def _compare(
    here: Here, batch: str, notebook: str, skipped: str, seconds: int, *options: str
) -> Step:
    """A batch of one notebook: fairness check, training on files, synthetic data, report."""
    runs = here.out / "runs"
    command = [*_helpers(here, "helpers"), "--name", batch, "--notebooks", notebook]
    command += ["--data", str(here.work / "images")]
    command += ["--recipe", "demo" if here.small else "chexnet", *options]
    return Step(batch, seconds, [command], skipped, partial(_of, runs / batch))


def _helpers(here: Here, module: str) -> list[str]:
    return [str(here.python), str(HERE / "into.py"), str(here.out / "runs"), module]


def _shared(here: Here) -> Step:
    why = lacks("pytorch") or ("" if here.gpus else "there is no GPU to share")
    options = "--devices", "2", "--gpus", "1"
    return _compare(here, "shared", "PyTorch_MultiGPU", why, 120, *options)


def _of(batch: Path, code: int, last: str) -> Outcome:
    """How a batch's runs ended, as their records say."""
    said, outcome = [], "ok" if code == 0 else "failed"
    for path in sorted(batch.glob("*/record.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["state"] == "finished":
            said.append(_run(record))
            continue
        outcome = "skipped" if record["state"] == "skipped" else "failed"
        said.append(f"{record['state']}: {record.get('reason')}")
    if not said or (outcome == "failed" and code):
        said.append(last)
    return outcome, "; ".join(filter(None, said))


def _run(record: dict[str, Any]) -> str:
    """A finished run in one line."""
    speeds = [
        f"{record[kind]['images_per_second']:,.0f} images/s {of}"
        f" ({record[kind]['low']:,.0f} to {record[kind]['high']:,.0f})"
        for kind, of in (("files", "on files"), ("synthetic", "synthetic"))
    ]
    checks = record["fairness"]["checks"]
    known = "comparable" if record["fairness"]["comparable"] else "NOT comparable"
    cadence = record["monitor"]["cadence"]
    devices = record["devices"]
    name = devices["names"][0] if devices["kind"] == "gpu" else "CPU device"
    return (
        f"{devices['count']} x {name}: {', '.join(speeds)}; "
        f"fairness check: {known}, {len(checks)} checks; monitor: {cadence.get('missed')} of "
        f"{cadence['samples']} samples missed"
    )


def _benchmarks(here: Here, bench: list[str], skipped: str) -> Iterator[Step]:
    """Ours beside others', and the monitor's cost."""

    def script(name: str, *options: str) -> list[str]:
        return [*bench, str(ROOT / "benchmarks" / f"{name}.py"), *options]

    only = ["--frameworks", "pytorch"]
    if here.small:
        rivals = [
            "--recipe",
            "demo",
            "--batch-size",
            "4",
            "--steps",
            "1",
            "--images",
            "48",
            "--quick",
        ]
        files = [*only, "--quick", "--batch-size", "4"]
    else:
        rivals = ["--precision", "bf16", "--images", "384"]
        files = [*only, "--batch-size", "64"]
    yield Step("rivals", 180, [script("rivals", *rivals)], skipped)
    yield Step("monitor cost", 120, [script("monitor", "--quick")])
    yield Step("files", 120, [script("files", *files)], skipped)

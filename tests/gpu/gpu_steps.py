"""The steps of the check, the most wanted first, and what the figures are held to."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gpu_place import HERE, ROOT, lacks
from kernels import KERNELS

CORES = len(os.sched_getaffinity(0))
Outcome = tuple[str, str]
"""``ok``, ``failed`` or ``skipped``, and what the summary says of it."""


class Here(NamedTuple):
    """What decides the steps: where, with which Python, how large."""

    out: Path
    work: Path
    python: Path
    gpus: int
    """To train on."""
    small: bool
    monitored: int = 0
    """GPUs that the driver names; with ``--cpu`` there may be more than are trained on."""


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
    kept: bool = True
    """Whether its results stay in OUT; what is removed at the end is made anew to continue."""


class Goal(NamedTuple):
    """What a figure on GPUs is to reach: ``least`` times its rival's."""

    figure: str
    rival: str
    least: float


GOALS = (
    Goal("ours", "the article's loop", 4),
    Goal("ours", "timm's step", 1.2),
    Goal("ours on files", "ours", 0.97),
)


def goal(figure: dict[str, Any]) -> float | None:
    """The ratio that a benchmark's figure is to reach; None where nothing was asked for."""
    for each in GOALS:
        of, rival = figure["figure"], str(figure.get("rival_name"))
        if of.split(",")[0] == each.figure and rival.split(",")[0].startswith(each.rival):
            return each.least
    return None


FIRST = ("fp32", "bf16")
THEN = ("tf32", "bf16-compiled", "fp32-compiled")
SMALL_FIRST, SMALL_THEN = ("fp32",), ("fp32-compiled",)
"""Variants of :data:`MEASURED`: a precision, and how steps are executed. A CPU
without instructions for bf16 takes five minutes for a run in it."""
MEASURED = ("PyTorch_MultiGPU", "pytorch"), ("JAX_MultiGPU", "jax")
SMALL = ["--recipe", str(HERE / "small.toml"), "--devices", "1"]
WORDS = {"compiled": ["--execution", "compiled"]}


def steps(here: Here) -> Iterator[Step]:
    """Every step for this machine, those that it cannot run too."""
    python, out = [str(here.python)], here.out
    kernels = [kernel for kernel in KERNELS if kernel != "lab" and lacks(kernel) is None]
    yield Step("versions", 40, [[*python, str(HERE / "versions.py"), *kernels], *_tools()])
    yield _assumptions(here)
    yield _images(here)
    yield from _variants(here, SMALL_FIRST if here.small else FIRST)
    yield _loaders(here, lacks("pytorch") or "")
    yield _monitor(here)
    yield _shared(here)
    yield _rivals(here, lacks("pytorch") or "")
    if not here.small:
        yield from _variants(here, THEN)
    doctor = [*_helpers(here, "helpers"), "doctor", "--here", ",".join(kernels)]
    yield Step("probe", 90, [[*doctor, "--logs", f"{out}/probe"]])
    others = sorted({*_notebooks()} - {*MEASURED}, key=lambda each: (each[1] not in kernels, each))
    for notebook, kernel in others:
        yield _run(here, notebook, notebook, lacks(kernel) or "", 120)
    yield _benchmark(here, "monitor", 120, "--quick")._replace(name="monitor cost")
    if here.small:  # last: it takes half of ten minutes
        yield from _variants(here, SMALL_THEN)


def _variants(here: Here, variants: tuple[str, ...]) -> Iterator[Step]:
    """Each of the notebooks in each variant that its framework has and others have not."""
    for variant in variants:
        precision, *more = variant.split("-")
        for notebook, kernel in MEASURED:
            if kernel == "jax" and "compiled" in more:  # it always is
                continue
            options = ["--precision", precision, *(word for name in more for word in WORDS[name])]
            compiled = "compiled" in more
            seconds = 160 if compiled or here.small else 100
            if compiled and here.small:  # five minutes of two CPU cores
                seconds = 340
            name, why = f"{notebook}-{variant}", lacks(kernel) or ""
            yield _run(here, name, notebook, why, seconds, *options)


def _monitor(here: Here) -> Step:
    gpumon, trace = [str(here.python), "-m", "gpumon"], f"{here.out}/gpumon/load"
    load = [str(here.python), str(HERE / "load.py"), "2" if here.small else "8"]
    which = list[str]()
    if here.monitored > here.gpus:  # they are hidden from what trains, as from the load
        which = ["--gpu-ids", ",".join(map(str, range(here.monitored)))]
    return Step(
        "monitor",
        40,
        [
            ["rm", "-rf", f"{here.out}/gpumon"],
            [*_seeing(here), *gpumon, "devices"],
            [*gpumon, "record", "--interval", "0.05", *which, "--out", trace, "--", *load],
            [*gpumon, "summary", trace],
            [*gpumon, "plot", trace, "--out", f"{trace}.png"],
        ],
    )


def _seeing(here: Here) -> list[str]:
    """What a command begins with to see the GPUs that are monitored only."""
    return ["env", "-u", "CUDA_VISIBLE_DEVICES"] if here.monitored > here.gpus else []


def _assumptions(here: Here) -> Step:
    """What we assume about GPUs: a line each, which are no failures."""
    command = [*_seeing(here), str(here.python), str(HERE / "assumptions.py")]
    return Step("assumptions", 75, [[*command, "gpu" if here.gpus else "cpu"]], read=_last)


def _last(code: int, last: str) -> Outcome:
    return ("failed" if code else "ok"), last


def _tools() -> list[list[str]]:
    if shutil.which("nvidia-smi") is None:
        return []
    return [["nvidia-smi"], ["nvidia-smi", "topo", "-m"], ["nvidia-smi", "-q"]]


def _images(here: Here) -> Step:
    """Generated X-rays, as files ready to train: the size of the article's, or the demo's."""
    count, made, size = (200, 76, 38) if here.small else (1536, 528, 264)  # 1,024 to train on
    data_prep = [str(here.python), "-m", "data_prep"]
    source, target = str(here.work / "source"), str(here.work / "images")
    return Step(
        "images",
        90,
        [
            [*data_prep, "generate", source, "--num-images", str(count), "--size", str(made)],
            [*data_prep, "resize", source, target, "--size", str(size)],
        ],
        kept=False,
    )


def _notebooks() -> Iterator[tuple[str, str]]:
    """Each framework's notebook and its kernel."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
        if "framework" in metadata.get("rosetta", {}):
            yield path.stem, metadata["kernelspec"]["name"]


def _run(here: Here, name: str, notebook: str, skipped: str, seconds: int, *options: str) -> Step:
    """One run of a notebook: fairness check, training on files, synthetic data, report."""
    batch = here.out / "runs" / name
    command = [*_helpers(here, "helpers"), "run", "--name", name, "--notebooks", notebook]
    command += ["--data", str(here.work / "images")]
    command += SMALL if here.small else ["--recipe", "chexnet", "--epochs", "2"]
    command += options
    left = ["rm", "-rf", str(batch)]  # by a try that failed
    return Step(name, seconds, [left, command], skipped, partial(_of, batch))


def _helpers(here: Here, module: str) -> list[str]:
    return [str(here.python), str(HERE / "into.py"), str(here.out / "runs"), module]


def _shared(here: Here) -> Step:
    """Two replicas on one GPU: the fairness check alone, because their speed means nothing."""
    why = lacks("pytorch") or ("" if here.gpus else "there is no GPU to share")
    run = str(here.out / "runs" / "shared" / "PyTorch_MultiGPU")
    recipe = str(HERE / "small.toml") if here.small else "chexnet"
    command = [str(here.python), str(HERE / "shared.py"), run, str(here.work / "images"), recipe]
    return Step("shared", 60, [["rm", "-rf", run], [*command, "2", "1"]], why, _last)


def _of(batch: Path, code: int, last: str) -> Outcome:
    """How a batch's runs ended, as their records say."""
    said, outcome = [], "ok" if code == 0 else "failed"
    for path in sorted(batch.glob("*/record.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["state"] == "finished":
            said.append(_finished(record))
            continue
        outcome = "skipped" if record["state"] == "skipped" else "failed"
        said.append(f"{record['state']}: {record.get('reason')}")
    if not said or (outcome == "failed" and code):
        said.append(last)
    return outcome, "; ".join(filter(None, said))


def _finished(record: dict[str, Any]) -> str:
    """A finished run in one line."""
    speeds = [
        f"{record[kind]['images_per_second']:,.0f} images/s {of}"
        f" ({record[kind]['low']:,.0f} to {record[kind]['high']:,.0f})"
        for kind, of in (("files", "on files"), ("synthetic", "synthetic"))
    ]
    checks = record["fairness"]["checks"]
    known = "comparable" if record["fairness"]["comparable"] else "NOT comparable"
    share, joules = _share(record), record["energy"]["images_per_joule"]
    energy = f"{joules:.2f} images/J; " if joules else ""
    cadence = record["monitor"]["cadence"]
    devices = record["devices"]
    name = devices["names"][0] if devices["kind"] == "gpu" else "CPU device"
    return (
        f"{devices['count']} x {name}, batch {record['recipe']['batch_size']}: "
        f"{', '.join(speeds)}; {share}{energy}"
        f"fairness check: {known}, {len(checks)} checks; monitor: {cadence.get('missed')} of "
        f"{cadence['samples']} samples missed"
    )


def _share(record: dict[str, Any]) -> str:
    found = record["arithmetic"].get("synthetic")
    return f"{found['share']:.1%} of a matrix product; " if found else ""


def _benchmark(here: Here, name: str, seconds: int, *options: str, skipped: str = "") -> Step:
    script = str(ROOT / "benchmarks" / f"{name}.py")
    return Step(name, seconds, [[str(here.python), "-W", "ignore", script, *options]], skipped)


def _loaders(here: Here, skipped: str) -> Step:
    """PNG, JPEG and packed images of 264 px, with a worker on each core."""
    options = ["--frameworks", "pytorch", "--of", "xrays", "--workers", str(CORES)]
    options += ["--quick", "--images", "128"] if here.small else ["--rounds", "5", "--seconds", "1"]
    return _benchmark(here, "loaders", 120, *options, skipped=skipped)


def _rivals(here: Here, skipped: str) -> Step:
    small = ["--recipe", "demo", "--batch-size", "4", "--steps", "1", "--images", "48", "--quick"]
    options = small if here.small else ["--precision", "bf16", "--images", "384"]
    return _benchmark(here, "rivals", 180, *options, skipped=skipped)

"""Handmade records and traces: valid ones, to be bent by the tests that need them bent."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gpumon_tools
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from data_prep import FINDINGS
from helpers import paths, record
from helpers.frameworks import ROWS
from helpers.frameworks.devices import Devices, run_name
from helpers.recipe import lookup
from helpers.record import run_identity, sections
from helpers.results import comparison
from helpers.results.charts import Chart
from helpers.results.comparison import Comparison
from helpers.training import metrics
from helpers.training.figure_style import WIDTH

LOGITS = {"check": "logits", "difference": 1.1e-6, "threshold": 1e-5}


def make(
    framework: str = "PyTorch",
    devices: int = 2,
    *,
    notebook: str | None = None,
    kernel: str | None = None,
    speed: float = 100.0,
    auc: float = 0.75,
    gpu: bool = False,
    cores: int = 0,
    train: int = 1120,
    **sections: Any,
) -> dict[str, Any]:
    """A finished run's record that fits the schema; ``sections`` replace whole sections.

    ``cores``: so many are each CPU device's own. ``train``: images of that split.
    """
    recipe = lookup("demo").on(devices)
    steps = recipe.steps(train)
    images = steps * recipe.global_batch_size
    epochs = [
        {
            "epoch": number,
            "learning_rate": recipe.learning_rate,
            "steps": steps,
            "images": images,
            "train_loss": 0.3 - 0.02 * number,
            "train_seconds": images / speed,
            "images_per_second": speed,
            "valid_loss": 0.31 - 0.015 * number,
            "valid_auc": auc - 0.15 + 0.03 * number,
            "valid_seconds": 1.0,
        }
        for number in range(1, 6)
    ]
    content: dict[str, Any] = {
        "schema": record.SCHEMA,
        "run": {
            "notebook": notebook or f"{framework.replace(' ', '_')}_MultiGPU",
            "started": "2026-11-21T01:00:00+00:00",
            "finished": "2026-11-21T01:02:00+00:00",
            "process": 1,
            "host": "box",
            "commit": "abc",
        },
        "state": "finished",
        "reason": None,
        "framework": {
            "name": framework,
            "kernel": kernel or framework.split()[0].lower(),
            "versions": {"python": "3.11.9", framework.lower(): "1.0"},
        },
        "hardware": {
            "cpu": "A CPU",
            "cores": 2,
            "memory_bytes": 8 * 2**30,
            "platform": "Linux",
            "gpus": ["NVIDIA H100"] * devices if gpu else [],
            "driver": "570.1" if gpu else None,
        },
        "devices": {
            "kind": "gpu" if gpu else "cpu",
            "count": devices,
            "names": ["NVIDIA H100" if gpu else f"CPU device {i}" for i in range(devices)],
            **({"cpus": [cpu(device, cores) for device in range(devices)]} if cores else {}),
        },
        "recipe": recipe.as_record()
        | {"quality_targets": []},  # a test that wants some sets its own
        "data": {
            "folder": "data/demo-small-2-38",
            "kind": "generated",
            "pixels": 38,
            "format": "png",
            "images": {"train": train, "valid": 160, "test": 320},
        },
        "weights": {"source": "random", "sha256": "0" * 64},
        "fairness": {
            "comparable": True,
            "checks": [LOGITS | {"verdict": "pass", "reason": None}],
        },
        "epochs": epochs,
        "training": {
            "seconds": sum(e["train_seconds"] + e["valid_seconds"] for e in epochs),
            "images_per_second": speed,
            "first_step_seconds": 0.5,
        },
        "test": {
            "mean_auc": auc,
            "mean_low": auc - 0.03,
            "mean_high": auc + 0.03,
            "in_mean": list(FINDINGS),
            "resamples": resamples(auc),
            "sample": "a" * 32,
            "findings": [
                {
                    "finding": finding,
                    "auc": auc + 0.01 * (i % 5 - 2),
                    "low": auc - 0.1 + 0.01 * (i % 5 - 2),
                    "high": auc + 0.1 + 0.01 * (i % 5 - 2),
                    "positives": 10,
                    "negatives": 310,
                    "reason": None,
                }
                for i, finding in enumerate(FINDINGS)
            ],
        },
        "files": rounds(speed),
        "synthetic": rounds(1.25 * speed),
        "loader": rounds(900.0),
        "attribution": {
            "shares": {"compute": 0.72, "data": 0.18, "validation": 0.1},
            "intervals": {"compute": [0.7, 0.74], "data": [0.16, 0.2], "validation": [0.09, 0.11]},
            "sentence": "Compute is the limit.",
        },
        "energy": {"joules": None, "images_per_joule": None, "reason": "no GPU"},
        "monitor": {},
    }
    whole: dict[str, Any] = json.loads(json.dumps(content | sections))  # tuples to lists
    return whole


def cpu(device: int, cores: int) -> dict[str, Any]:
    """A device's entry in the section devices, with ``cores`` of its own."""
    own = list(range(device * cores, (device + 1) * cores))
    return {"cores": own, "threads": cores}


def started(folder: Path, devices: Devices | int = 2, **given: Any) -> record.Run:
    """A record that a run has just begun, as a notebook does, on so many virtual devices.

    ``given`` replace what :func:`helpers.record.start` is given.
    """
    if isinstance(devices, int):
        devices = Devices("cpu", tuple(f"CPU device {number}" for number in range(devices)))
    usual: dict[str, Any] = {
        "notebook": paths.NOTEBOOKS / "PyTorch_MultiGPU.ipynb",
        "framework": "PyTorch",
        "kernel": "pytorch",
        "versions": {"torch": "2"},
        "recipe": lookup("demo").on(devices.count),
    }
    return record.start(folder, devices=devices, **usual | given)


def rounds(rate: float) -> dict[str, Any]:
    """What the measurements came to, around ``rate`` images/s."""
    return sections.throughput([rate * part for part in (0.98, 0.99, 1, 1, 1.01, 1.02)])


def resamples(auc: float, half: float = 0.03) -> list[float]:
    """200 resampled means around ``auc``, evenly spread, the middle 95 % within ``half``."""
    width = half / 0.95
    return [round(auc + width * (2 * i / 199 - 1), 6) for i in range(200)]


def evaluate_findings(split: pd.DataFrame, scores: np.ndarray) -> dict[str, Any]:
    """What scores of images with columns image, group and the 14 findings come to."""
    return metrics.evaluate(
        split[list(FINDINGS)].to_numpy(),
        scores,
        split["group"],
        FINDINGS,
        run_identity.images(split, FINDINGS),
    )


def disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the disk from now on: ``sync NAME`` and ``rename OLD NEW``, in order."""
    done: list[str] = []
    fsync, rename = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name}")
        fsync(handle)

    def renamed(old: str | Path, new: str | Path) -> None:
        done.append(f"rename {Path(old).name} {Path(new).name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    return done


def short(framework: str, state: str, reason: str) -> dict[str, Any]:
    """The record of a run that never wrote its own."""
    whole = make(framework)
    return {key: whole[key] for key in ("schema", "run", "framework")} | {
        "state": state,
        "reason": reason,
    }


def save(batch: Path, content: dict[str, Any]) -> Path:
    """Write ``content``, which must fit the schema, as a run of ``batch``; returns its folder."""
    record.check(content)
    found = content.get("devices", {})
    label = content["run"]["notebook"]
    nodes = content.get("cluster", {}).get("nodes", 1)
    each = found.get("count", 2) // nodes
    folder = batch / run_name(label, each, nodes)
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def save_each(batch: Path, contents: Iterable[dict[str, Any]]) -> Path:
    """The batch, each run in a folder of its own, however often it was repeated."""
    for number, content in enumerate(contents):
        save(batch / "new", content).rename(batch / f"run{number:03}")
    (batch / "new").rmdir()
    return batch


def load(batch: Path, *contents: dict[str, Any]) -> Comparison:
    """The comparison of the batch with these runs in it."""
    for content in contents:
        save(batch, content)
    return comparison.load(batch)


def world(nodes: int = 2, *, virtual: bool = True) -> dict[str, Any]:
    """The section ``cluster`` of a run with one rank a node."""
    ranks = [list(range(nodes))] if virtual else [[rank] for rank in range(nodes)]
    hosts = [f"node{number}" for number in range(len(ranks))]
    launcher = {"launcher": "mpiexec", "launcher_version": "5.0.2"}
    about = {"nodes": nodes, "simulated": virtual, "hosts": hosts}
    return {**about, **launcher, "interface": "lo" if virtual else "eth0"}


def shown(chart: Chart | None) -> Chart:
    """A chart that has something to draw."""
    assert chart is not None
    return chart


def drawn(chart: Chart | None, width: float = WIDTH) -> Figure:
    return shown(chart).figure(width)


SIX = tuple(
    (row.framework, row.notebook, speed)
    for row, speed in zip(ROWS, (100.0, 96.0, 80.0, 85.0, 110.0, 30.0), strict=False)
)
"""Framework, notebook and images per second of a demo batch, of the article's six notebooks.

They are the first rows of the registry; one that is added behind them changes no test."""


def six(batch: Path, **sections: Any) -> list[Path]:
    """The records and traces of a demo batch: every notebook once, on two devices.

    The first run's trace is of two GPUs, the others' of a CPU, so that both kinds are drawn.
    """
    folders = []
    for number, (framework, notebook, speed) in enumerate(SIX):
        auc = 0.7 + 0.01 * number
        content = make(framework, notebook=notebook, speed=speed, auc=auc, **sections)
        folders.append(save(batch, content))
        gpus: dict[str, list[float | None]] = {"gpu0": [10.0, 90.0] * 15, "gpu1": [30.0] * 30}
        marks = (
            ("train", 2.0, 14.0, {"epoch": 1}),
            ("validate", 14.0, 16.0, {"epoch": 1}),
            ("train", 16.0, 26.0, {"epoch": 2}),
        )
        gpumon_tools.write(folders[-1] / "trace", gpus if number == 0 else {}, spans=marks)
    return folders

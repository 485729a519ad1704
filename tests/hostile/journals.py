"""Journals of batches, and sweeps' files, from somebody who means harm or has had an accident."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile.case import Case

RUN: dict[str, Any] = {
    "notebook": "PyTorch_MultiGPU",
    "framework": "PyTorch",
    "kernel": "pytorch",
    "devices": 1,
    "sha256": "0" * 64,
    "state": "waiting",
}
JOURNAL: dict[str, Any] = {
    "schema": 2,
    "experiment": "given",
    "started": "2026-11-22T09:00:00+00:00",
    "finished": None,
    "recipe": "demo",
    "data": "nowhere",
    "warmup_epochs": 0,
    "runs": [RUN],
}
RESUME = ["rosetta", "run", "--resume", "given"]


def given(folder: Path) -> Path:
    """The batch, under the runs that the command looks into."""
    batch = folder.parent / "runs" / "given"
    batch.mkdir(parents=True)
    return batch


def raw(text: str | bytes) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        content = text if isinstance(text, bytes) else text.encode()
        (given(folder) / "experiment.json").write_bytes(content)
        return RESUME

    return lay


def changed(**fields: Any) -> Callable[[Path], list[str]]:
    return raw(json.dumps(JOURNAL | fields))


def a_run(**fields: Any) -> Callable[[Path], list[str]]:
    return changed(runs=[RUN | fields])


def without(name: str) -> Callable[[Path], list[str]]:
    return raw(json.dumps({key: value for key, value in JOURNAL.items() if key != name}))


def climbs(variant: str) -> Callable[[Path], list[str]]:
    """A run whose folder would be the one beside the runs, with what is in it."""

    def lay(folder: Path) -> list[str]:
        (folder / "precious").write_text("years of work")
        (folder.parent / "runs" / "given" / "PyTorch_MultiGPU-1x-").mkdir(parents=True)
        path = folder.parent / "runs" / "given" / "experiment.json"
        path.write_text(json.dumps(JOURNAL | {"runs": [RUN | {"variant": variant}]}))
        return RESUME

    return lay


def linked(name: str) -> Callable[[Path], list[str]]:
    """Something in the batch that is a link to a folder, or a file, outside."""

    def lay(folder: Path) -> list[str]:
        (folder / "precious").write_text("years of work")
        batch = given(folder)
        (batch / "experiment.json").write_text(json.dumps(JOURNAL))
        (batch / name).symlink_to(folder if "-1x" in name else folder / "precious")
        return RESUME

    return lay


def linked_batch(folder: Path) -> list[str]:
    (folder / "experiment.json").write_text(json.dumps(JOURNAL))
    (folder.parent / "runs").mkdir()
    (folder.parent / "runs" / "given").symlink_to(folder)
    return RESUME


def linked_to_itself(folder: Path) -> list[str]:
    (folder.parent / "runs").mkdir()
    (folder.parent / "runs" / "given").symlink_to("given")
    return RESUME


def pipe(folder: Path) -> list[str]:
    os.mkfifo(given(folder) / "experiment.json")
    return RESUME


def device_beside(folder: Path) -> list[str]:
    batch = given(folder)
    (batch / "experiment.json").write_text(json.dumps(JOURNAL))
    os.mkfifo(batch / "report.html")
    return RESUME


def strange_name(folder: Path) -> list[str]:
    return ["rosetta", "run", "--resume", "\x1b[2J\x07../\udce9"]


def gpus(value: str) -> Callable[[Path], list[str]]:
    return lambda folder: ["rosetta", "run", "--dry-run", "--devices", "4", "--gpus", value]


def setting(option: str, value: str) -> Callable[[Path], list[str]]:
    return lambda folder: ["rosetta", "run", "--dry-run", option, value]


def sweep(text: str | bytes) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        path = folder / "sweep.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return ["rosetta", "run", "--dry-run", "--sweep", str(path)]

    return lay


def sweep_sparse(folder: Path) -> list[str]:
    with (folder / "sweep.toml").open("wb") as file:
        file.truncate(2**40)
    return ["rosetta", "run", "--dry-run", "--sweep", str(folder / "sweep.toml")]


RUNS = "seeds: !!python/object/apply:os.abort []"
SAME = [RUN, RUN]
KEEPS = ("precious",)

CASES = [
    Case("journal: cut off", raw(json.dumps(JOURNAL)[:100]), "not a JSON file of this"),
    Case("journal: a list", raw("[1]"), r"field \(top\) does not fit"),
    Case("journal: a pipe", pipe, r"experiment\.json: not a file"),
    Case("journal: of a newer version", changed(schema=7), r"newer version .*schema 7.*update"),
    Case("journal: an unknown key", changed(hooks=["rm"]), "field hooks .* it is unknown"),
    Case("journal: without runs", without("runs"), "missing required field `runs`"),
    Case("journal: without data", without("data"), "missing required field `data`"),
    Case("journal: no run at all", changed(runs=[]), "field runs does not fit"),
    Case("journal: 10,001 runs", changed(runs=[RUN] * 10_001), "field runs does not fit"),
    Case("journal: a run that is a number", changed(runs=[3]), "field runs/0 does not fit"),
    Case("journal: two runs in one folder", changed(runs=SAME), "have the same folder"),
    Case("journal: data a list", changed(data=["/"]), "field data does not fit"),
    Case("journal: no epochs", changed(epochs=0), "field epochs does not fit"),
    Case("journal: epochs that are text", changed(epochs="many"), "field epochs does not fit"),
    Case("journal: half an image", changed(batch_size=0.5), "field batch_size does not fit"),
    Case("journal: 100,000 workers", changed(num_workers=100_000), "field num_workers does not"),
    Case("journal: recipe unknown", changed(recipe="../../x"), r"unknown recipe '\.\./\.\./x'"),
    Case("journal: data not there", changed(), "data folder 'nowhere' does not exist"),
    Case("run: kernel null", a_run(kernel=None), "field runs/0/kernel does not fit"),
    Case("run: kernel a path", a_run(kernel="../../bin/sh"), "field runs/0/kernel does not fit"),
    Case("run: notebook a path", a_run(notebook="../mine"), "field runs/0/notebook does not fit"),
    Case("run: notebook empty", a_run(notebook=""), "field runs/0/notebook does not fit"),
    Case("run: a line break at the end", a_run(notebook="a\n"), "data folder"),
    Case("run: moves the cursor", a_run(framework="\x1b[2JX"), "data folder"),
    Case("run: -1 devices", a_run(devices=-1), "field runs/0/devices does not fit"),
    Case("run: half a device", a_run(devices=0.5), "field runs/0/devices does not fit"),
    Case("run: 1e300 devices", a_run(devices=1e300), "no number that was measured"),
    Case("run: on -1 GPUs", a_run(gpus=-1), "field runs/0/gpus does not fit"),
    Case("run: on half a GPU", a_run(gpus=0.5), "field runs/0/gpus does not fit"),
    Case("run: on GPU text", a_run(gpus="GPU-0"), "field runs/0/gpus does not fit"),
    Case("run: true devices", a_run(devices=True), "field runs/0/devices does not fit"),
    Case("run: an unknown state", a_run(state="won"), "field runs/0/state does not fit"),
    Case("run: a reason that is a list", a_run(reason=["x"]), "field runs/0/reason does not fit"),
    Case("run: attempts that are text", a_run(earlier="x"), "field runs/0/earlier does not fit"),
    Case("run: a seed beyond 2^31", a_run(seed=2**31), "field runs/0/seed does not fit"),
    Case("run: an unknown key", a_run(command="rm -r /"), "field runs/0/command .* it is unknown"),
    Case("run: climbs out", climbs("/../../../strange"), "field runs/0/variant", keeps=KEEPS),
    Case("run: variant absolute", climbs("/etc"), "field runs/0/variant", keeps=KEEPS),
    Case("run: variant with a zero", climbs("a\0b"), "field runs/0/variant", keeps=KEEPS),
    Case("batch: a run's folder is a link", linked("PyTorch_MultiGPU-1x"), "a link", keeps=KEEPS),
    Case("batch: its report is a link", linked("report.html"), "a link", keeps=KEEPS),
    Case("batch: its Compare is a link", linked("Compare.ipynb"), "a link", keeps=KEEPS),
    Case("batch: a pipe for a report", device_beside, r"report\.html: a link or a device"),
    Case("batch: itself a link", linked_batch, "leads to .*, out of"),
    Case("batch: a link to itself", linked_to_itself, "(out of|symbolic links|no experiment)"),
    Case(
        "batch: a name with escapes", strange_name, r"experiment name '\\x1b\[2J\\x07\.\./\\udce9'"
    ),
    Case("sweep: nested 100,000 deep", sweep("seeds = " + "[" * 100_000), "not valid TOML"),
    Case("sweep: tables 10,000 deep", sweep(f"a{'.a' * 10_000} = 1"), "too many dots"),
    Case("sweep: a terabyte", sweep_sparse, "too large for a sweep"),
    Case("sweep: YAML that runs a command", sweep(RUNS), "YAML, but a sweep is TOML"),
    Case("sweep: a key with escapes", sweep('"\\u001b[2Jx" = 1'), r"unknown key '\\x1b\[2Jx'"),
    Case("sweep: escapes as they are", sweep("seeds = 1\n\x1b[2J = 1"), "line 2: not TOML"),
    Case("sweep: a key that is a pattern", sweep("'(a+)+$' = 1"), "line 1: unknown key"),
    Case("sweep: -1 GPUs", sweep("gpus = -1"), "line 1: gpus -1: give 0 or more"),
    Case("sweep: which GPUs", sweep("gpus = [0, 2]"), "line 1: 'gpus' is .* give one value"),
    Case("sweep: half a GPU", sweep("gpus = 0.5"), "line 1: 'gpus' is .* give one value"),
    Case("command: escapes for GPUs", gpus("1\x1b[2J"), "gpus '.*': give a number, or auto"),
    Case("command: GPUs that are listed", gpus("0,2"), "gpus '0,2': give a number, or auto"),
    Case("command: more GPUs than there are", gpus("99999"), "gpus 99999: this process sees"),
    Case("sweep: 10^400 devices", sweep(f"devices = [1{'0' * 400}]"), "line 1: devices"),
    Case(
        "sweep: 10^400 images a device", sweep(f"batch_size = 1{'0' * 400}"), "line 1: batch_size"
    ),
    Case("sweep: a number of 5,000 digits", sweep(f"seeds = [{'9' * 5000}]"), r"sweep\.toml"),
    Case("sweep: text with a null", sweep(b"seeds = [\0]"), "line 1: not TOML"),
    Case("command: 10^400 epochs", setting("--epochs", f"1{'0' * 400}"), "epochs is '10+': give"),
    Case(
        "command: escapes for workers",
        setting("--num-workers", "1\x1b[2J"),
        r"num_workers is '1\\x1b",
    ),
    Case("command: a batch size of text", setting("--batch-size", "; rm"), "batch_size is '; rm'"),
]

"""Check with a short job whether the nodes can run a recipe's job, before it is queued.

The short job has the recipe's options. A process on each node writes what it finds into a folder
under ``runs/``, which also shows whether the nodes share that folder. A table lists the results.
"""

import json
import os
import platform
import shlex
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from helpers import network, paths, terminal
from helpers.errors import UserError
from helpers.frameworks import devices
from helpers.runner.plans import counted
from helpers.runner.self_test import starting
from helpers.runner.slurm import inputs, programs, script
from helpers.runner.slurm.inputs import Row
from helpers.runner.slurm.script import Job
from helpers.terminal import say
from helpers.training import loader_workers

SECONDS = 900.0
"""In which the short job is to have run; a queue may be longer."""
MINUTES = 10
"""Its time limit: a shared folder that is slow takes a while to give a framework's files."""
APART = 2.0
"""Seconds by which the nodes' clocks may differ."""
MEET = 180.0
"""Seconds for which a node waits for the others."""
LAB = "lab"
"""The runner's environment, in addition to those of the notebooks."""


def check(job: Job) -> int:
    """Run the short job on the most nodes that are asked for, print the table; the exit code."""
    nodes, began = max(job.nodes), time.monotonic()
    paths.RUNS.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".check-", dir=paths.RUNS))
    try:
        plan = job.plan(nodes)
        kernels = ",".join(dict.fromkeys((LAB, *(state.kernel for state in plan.runs))))
        given = [plan.recipe, str(job.choices.get("data", "auto")), kernels]
        inner = [sys.executable, "-m", __spec__.name, str(folder), str(nodes), *given]
        step = ["srun", "--mpi=none", f"--ntasks={nodes}", "--ntasks-per-node=1", *inner]
        lines = ["#!/bin/bash", *script.setting_up(job.slurm)]
        lines.append(f"PYTHONPATH={shlex.quote(str(paths.ROOT))} {shlex.join(step)}")
        left_out = ("--output=", "--signal=", "--requeue", "--time=", "--nodes=", "--job-name=")
        options = [each for each in script.options(job) if not each.startswith(left_out)]
        head = [f"#SBATCH {option}" for option in options]
        text = "\n".join([lines[0], *head, *lines[1:]]) + "\n"
        own = [f"--nodes={nodes}", f"--job-name={job.name}-check", f"--time={MINUTES}"]
        number = programs.queue(text, "--no-requeue", *own, f"--output={folder / 'log'}")
        say(f"Job {number}: checks {counted(nodes, 'node')}")
        try:
            found = _wait(number, folder, nodes)
        except BaseException:
            with suppress(UserError):
                programs.ask("scancel", number)
            raise
        rows = judged(found, nodes, job, plan.recipe_digests, time.monotonic() - began)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the job may still write what it prints
    shown = [[what, "yes" if right else "NO", said] for what, right, said in rows]
    say(terminal.table(["Asked", "So?", "Found"], shown))
    return 0 if all(right for _, right, _ in rows) else 1


def _wait(number: str, folder: Path, nodes: int) -> list[dict[str, Any]]:
    until = time.monotonic() + SECONDS
    while True:
        how = programs.ask("squeue", "--noheader", f"--jobs={number}", "--format=%T %r").split()
        files = sorted(folder.glob("node-*.json"))
        if len(files) == nodes or not how:
            break
        why = " ".join(how[1:])
        if why in programs.NEVER:
            raise UserError(
                f"job {number} would never run ({why}), and is ended: its partition has no "
                f"{nodes} nodes like these for it; sinfo says what there is"
            )
        if time.monotonic() > until:
            raise UserError(
                f"job {number} has not run in {SECONDS:.0f} s ({how[0]}, {why}), and is ended: try "
                "again when the queue is shorter"
            )
        time.sleep(1)
    found = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    if not found:
        log = folder / "log"
        said = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
        last = (said.splitlines() or ["it printed nothing"])[-1]
        raise UserError(f"job {number} ended and no node has answered: {last}")
    return found


def judged(
    found: Sequence[dict[str, Any]],
    nodes: int,
    job: Job,
    digests: Mapping[str, str],
    seconds: float,
) -> list[Row]:
    """The table's rows, from what each node found (``look_around``).

    ``digests`` are those of the recipe and its custom code on this machine, ``seconds`` what the
    short job took, with its wait in the queue.
    """
    names = sorted({each["node"] for each in found})
    seen = min(each["others"] for each in found)
    rows: list[Row] = [
        (
            f"{nodes} nodes in {job.slurm.get('partition', 'the default partition')}",
            len(names) == nodes,
            f"{', '.join(names)}, {seconds:.0f} s after the question",
        ),
        (f"{paths.RUNS} is shared", seen == nodes, f"each node sees the files of {seen}"),
        *inputs.judged(found, job.recipe.name, digests),
        _each(found, "cores", job.slurm.get("cpus", 1)),
    ]
    wanted = sum(count for _, count in script.gpus(job.slurm))
    if wanted or "gres" in job.slurm:
        rows.append(_each(found, "gpus", wanted or 1))
    kinds = {each["node"]: f"{each['cores']} cores, {each['models']}" for each in found}
    alike = len(set(kinds.values())) == 1
    told = next(iter(kinds.values())) if alike else "; ".join(map(": ".join, kinds.items()))
    rows.append(("nodes are alike", alike, told))
    for kernel in found[0]["kernels"]:
        said = [f"{each['node']}: {each['kernels'][kernel]}" for each in found]
        broken = [text for text in said if not text.endswith(": ")]
        rows.append(
            (f"environment {kernel} works", not broken, "; ".join(broken) or "on each node")
        )
    cut_off = [f"{each['node']}: {each['unreached']}" for each in found if each["unreached"]]
    if len(found) < nodes:
        cut_off.append(f"{len(found)} of {nodes} have answered")
    rows.append(
        ("nodes reach each other", not cut_off, "; ".join(cut_off) or "by a free port of each")
    )
    apart = max(each["apart"] for each in found)
    rows.append((f"clocks within {APART:g} s", apart <= APART, f"{apart:.1f} s apart"))
    return rows


def _each(found: Sequence[dict[str, Any]], what: str, least: int) -> Row:
    counts = {each["node"]: each[what] for each in found}
    said = ", ".join(f"{node} {count}" for node, count in counts.items())
    return (f"{least} or more {what} on each node", min(counts.values()) >= least, said)


def look_around(folder: Path, nodes: int, recipe: str, data: str, kernels: str) -> None:
    """Collect the properties of this node, contact the other nodes, and write the results."""
    rank, models = int(os.environ["SLURM_PROCID"]), devices.visible_gpus()
    gpus = len(models)
    found: dict[str, Any] = {
        "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "system": platform.platform(),
        "cores": loader_workers.usable_cores(),
        "gpus": gpus,
        "models": ", ".join(sorted(models)) or "no GPU",
        "seen": inputs.seen(recipe, data, demo=gpus == 0),
        "kernels": {kernel: starting.import_problem(kernel) for kernel in kernels.split(",")},
    }
    with socket.socket() as listening:
        listening.bind(("", 0))
        listening.listen()
        threading.Thread(target=_tell_time, args=(listening,), daemon=True).start()
        here = {"host": socket.gethostname(), "addresses": network.addresses()}
        here["port"] = listening.getsockname()[1]
        paths.write_atomically(folder / f"met-{rank}.json", json.dumps(here))
        met = _all(folder, "met", nodes)
        found |= {"others": len(met), **_reached(met)}
        paths.write_atomically(folder / f"node-{rank}.json", json.dumps(found))
        _all(folder, "node", nodes)  # no node closes its socket before all are done


def _tell_time(listening: socket.socket) -> None:
    with suppress(OSError):
        while True:
            with listening.accept()[0] as other:
                other.sendall(repr(time.time()).encode())


def _all(folder: Path, kind: str, nodes: int) -> list[dict[str, Any]]:
    until = time.monotonic() + MEET
    while len(files := list(folder.glob(f"{kind}-*.json"))) < nodes and time.monotonic() < until:
        time.sleep(0.05)
    return [json.loads(path.read_text(encoding="utf-8")) for path in files]


def _reached(met: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Why another node is not reached, and by how much the others' clocks differ from this one."""
    apart = [0.0]
    try:
        of = {other["host"]: other["addresses"] for other in met}
        found = network.common(of, met[0]["host"])
        for other in met:
            address = found[other["host"]][1], other["port"]
            with socket.create_connection(address, timeout=10) as one:
                before = time.time()
                said = float(one.makefile().read())
                apart.append(abs(said - (before + time.time()) / 2))
    except (UserError, OSError, ValueError) as error:
        return {"unreached": str(error), "apart": max(apart)}
    return {"unreached": "", "apart": max(apart)}


if __name__ == "__main__":
    look_around(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])

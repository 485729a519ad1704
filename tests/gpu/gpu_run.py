"""Tries everything that this machine's Python and GPUs allow, in ten minutes, without a network.

    tests/gpu/run.sh OUT [--small] [--cpu] [--minutes 10] [--only STEP,...] [--wheels FOLDER]
    tests/gpu/run.sh --have           what of our locks is installed here (for pack.py)

Every step has its own limit of time, a log in OUT/logs and a line in OUT/summary.md and
OUT/summary.json; none stops another. Nothing is installed into this machine's Python. Without a
GPU all of it runs on the CPU, at a small size. The same command again continues: steps that ended
well are kept, those that were not reached come first, those that failed come last.
Exit code: 0 nothing failed, 1 a step failed or it was stopped, 2 it could not begin.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (the machine's Python may be any)
    print(f"run.sh: needs Python 3.11 or newer, this is {sys.version.split()[0]}: "
          "PYTHON=... names another", file=sys.stderr)  # fmt: skip
    sys.exit(2)

import argparse
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gpu_place
import gpu_steps
import gpus
from gpu_place import KERNELS, ROOT, WHEELS, Parser, PlaceError
from gpu_steps import Here, Step
from gpu_summary import write

from helpers.runner import shutdown

MARK = "GPU_CHECK"
"""Environment variable that all we start inherit: our process id, to find them again by."""
KEPT = {"gpus", "driver", "small", "rehearsal", "commands", "machine", "steps", "folders"}
"""What a summary needs for a second command to continue."""
IN_STEPS = 0.95
"""The share of the minutes that steps may have; the rest is for tidying up."""
GRACE_SECONDS = 15
"""What a step that ran out of time gets to write down what it has."""
GONE_SECONDS = 5
"""What a killed process gets to let go of its memory."""


def main(arguments: list[str]) -> int:
    parser = Parser(prog="run.sh", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "out", type=Path, nargs="?", metavar="OUT", help="a folder, new or to continue"
    )
    parser.add_argument("--small", action="store_true", help="the small size, also on GPUs")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU and only monitor GPUs")
    parser.add_argument("--minutes", type=float, default=10, help="for all of it (default: 10)")
    parser.add_argument("--only", metavar="STEP,...", help="some steps, by the summary's names")
    parser.add_argument("--wheels", type=Path, default=WHEELS, metavar="FOLDER")
    parser.add_argument("--have", action="store_true", help="what is installed here, for pack.py")
    given = parser.parse_args(arguments, argparse.Namespace(words=arguments))
    if given.have:
        print(",".join(name for name in gpu_place.pins() if gpu_place.is_installed(name)))
        return 0
    if given.out is None:
        parser.error("name a folder for the results")
    if not 0 < given.minutes < math.inf:
        parser.error(f"--minutes {given.minutes:g}: give more than 0")
    before = _before(given.out)
    if before is None:
        parser.error(f"{given.out}: exists and is neither empty nor a check's; name another folder")
    kernels = [kernel for kernel in KERNELS if kernel != "lab"]
    if all(gpu_place.lacks(kernel) for kernel in kernels):
        why = gpu_place.lacks("pytorch")
        parser.error(f"{why} ({sys.executable}), nor another framework: PYTHON=... names a Python")
    try:
        with shutdown.in_order():  # whoever asks twice gets a summary too
            return check(given, parser, before)
    except (gpus.DriverError, PlaceError, OSError) as error:
        print(f"run.sh: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as asked:
        print(f"run.sh: {asked}", file=sys.stderr)
        return 1


def _before(out: Path) -> dict[str, Any] | None:
    """What an earlier command has left in OUT, empty if it is new; None if OUT holds other things.

    An interrupted command has left ``work``, which is made anew.
    """
    try:
        before = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        return before if isinstance(before, dict) and before.keys() >= KEPT else None
    except (FileNotFoundError, NotADirectoryError):
        return None if out.is_file() or (out.exists() and any(out.iterdir())) else {}
    except ValueError:
        return None


def check(given: Any, parser: Parser, before: dict[str, Any]) -> int:
    """Make the place, run the steps, write the summary; returns the exit code."""
    began = time.monotonic()
    found = gpus.found()
    out = given.out.resolve()
    used = 0 if given.cpu else len(found)
    here = Here(out, out / "work", out / "work/python/bin/python", used,
                given.small or not used, len(found))  # fmt: skip
    chosen = list(gpu_steps.steps(here))
    if given.only is not None:
        names = given.only.split(",")
        known = [step.name for step in chosen]
        if unknown := [name for name in names if name not in known]:
            parser.error(f"no step named '{unknown[0]}': the steps are {', '.join(known)}")
        chosen = [step for step in chosen if step.name in names]
    machine = {
        "gpus": [str(gpu) for gpu in found],
        "driver": found[0].driver if found else None,
        "small": here.small,
        "rehearsal": given.cpu,
    }
    for what, value in machine.items():
        if before and before[what] != value:
            parser.error(f"{given.out}: was begun with {what} {before[what]}, here it is {value}; "
                         "name another folder")  # fmt: skip
    ended = {line["step"]: line["outcome"] for line in before.get("steps", [])}
    chosen = [step for step in chosen if ended.get(step.name) != "ok" or not step.kept]
    if not any(step.kept and not step.skipped for step in chosen):
        chosen = [step for step in chosen if step.name not in ended]
    chosen.sort(key=lambda step: ended.get(step.name) == "failed")
    again = {step.name for step in chosen}
    summary: dict[str, Any] = {
        "state": "running",
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "minutes": given.minutes,
        **machine,
        "folders": list(dict.fromkeys([*before.get("folders", []), str(out), str(ROOT)])),
        "commands": [*before.get("commands", []), shlex.join(["tests/gpu/run.sh", *given.words])],
        "machine": before.get("machine", {}),
        "steps": [line for line in before.get("steps", []) if line["step"] not in again],
    }
    if before:
        shutil.rmtree(here.work, ignore_errors=True)  # of a command that was killed
    (out / "logs").mkdir(parents=True, exist_ok=True)
    said = ", ".join(summary["gpus"]) or "no GPU: on the CPU, at a small size"
    kept = f"; {len(summary['steps'])} steps are done" if before else ""
    print(f"{said}{kept}; {given.minutes:g} minutes at most; all in {out}", flush=True)
    os.environ[MARK] = str(os.getpid())
    if given.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if here.small:  # threads that wait by spinning bring a CPU that is shared to a stop
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        gpu_place.make(out / "work" / "python", given.wheels)
        longer = max(1, given.minutes / 10)  # who has more time gives each step more
        for step in (each._replace(seconds=each.seconds * longer) for each in chosen):
            left = began + IN_STEPS * 60 * given.minutes - time.monotonic()
            _turn(step, left, summary, out)
        summary["state"] = "finished"
    except KeyboardInterrupt as asked:
        summary["state"] = str(asked)
        done = {line["step"] for line in summary["steps"]}
        for step in chosen:
            if step.name not in done:
                _note(summary, step, "skipped", summary["state"])
    except PlaceError:
        if not before:
            shutil.rmtree(out)
        raise
    finally:
        with shutdown.held():
            end_all()
            shutil.rmtree(here.work, ignore_errors=True)
            for weights in out.glob("runs/*/*/*.safetensors"):  # 28 MiB each, good for nothing
                weights.unlink()
    summary["seconds"] = round(time.monotonic() - began, 1)
    with shutdown.held():
        write(summary, out)
    outcomes = [line["outcome"] for line in summary["steps"]]
    counted = ", ".join(f"{outcomes.count(each)} {each}" for each in ("ok", "failed", "skipped"))
    print(f"{counted}; {summary['seconds']:.0f} s: {out / 'summary.md'}", flush=True)
    return int("failed" in outcomes or summary["state"] != "finished")


def _turn(step: Step, left: float, summary: dict[str, Any], out: Path) -> None:
    """One step, if it can be run and there is time; its line is written before the next begins."""
    log = out / "logs" / f"{step.name.replace(' ', '-')}.log"
    began, told = time.monotonic(), None
    if step.skipped:
        outcome, said = "skipped", step.skipped
    elif left < step.seconds / 2:
        outcome, said = "skipped", f"{max(left, 0):.0f} s are left, it may take {step.seconds:.0f}"
    else:
        try:
            outcome, said = run(step, min(step.seconds, left), log)
        except KeyboardInterrupt as asked:
            _note(summary, step, "failed", str(asked), time.monotonic() - began, log)
            raise
        told = _told(log, summary["machine"])
    _note(summary, step, outcome, said, time.monotonic() - began, log, told)
    write(summary, out)


def _note(
    summary: dict[str, Any],
    step: Step,
    outcome: str,
    said: str,
    seconds: float = 0.0,
    log: Path | None = None,
    told: dict[str, Any] | None = None,
) -> None:
    line: dict[str, Any] = {"step": step.name, "outcome": outcome, "said": said}
    line |= {"limit": step.seconds, "seconds": round(seconds, 1), "log": None}
    line |= told or {"figures": [], "assumptions": []}
    if log is not None and log.exists():
        line["log"] = f"logs/{log.name}"
    summary["steps"].append(line)
    print(f"  {step.name:24} {outcome:8} {seconds:4.0f} s  {said}".rstrip(), flush=True)


def run(step: Step, seconds: float, log: Path) -> gpu_steps.Outcome:
    """Run a step's commands, and end all that they started."""
    end, code = time.monotonic() + seconds, 0
    with log.open("wb") as file:
        for command in step.commands:
            file.write(f"$ {' '.join(command)}\n".encode())
            file.flush()
            try:
                code = _call(command, end - time.monotonic(), file)
            except subprocess.TimeoutExpired:
                return "failed", f"ran past its {seconds:.0f} s"
            except OSError as error:
                return "failed", str(error)
            if code:
                break
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = said[-1][:300]
    if step.read:
        return step.read(code, last)
    return ("failed", last) if code else ("ok", "")


def _call(command: list[str], seconds: float, log: Any) -> int:
    """A command's exit code. Raises subprocess.TimeoutExpired once it is ended."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=gpu_place.environment(),
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        return child.wait(max(seconds, 0))
    finally:
        if child.poll() is None:
            child.terminate()  # compare stops its kernels and writes its records
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_SECONDS)
        end_all()
        child.wait()


def end_all() -> None:
    """End whatever we have started, in whatever session it is: it has our mark.

    It is gone afterwards, and what it held is free for the next step. A process that is just
    becoming another program has no environment for a moment, so nothing is to be seen twice.
    """
    end, unseen = time.monotonic() + GONE_SECONDS, 0
    while unseen < 2 and time.monotonic() < end:
        found = list(_started())
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        unseen = 0 if found else unseen + 1
        time.sleep(0.01)


def _started() -> Iterator[int]:
    mark = f"{MARK}={os.getpid()}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        process = int(environ.parent.name)
        with suppress(OSError):  # gone, or somebody else's
            if process != os.getpid() and mark in environ.read_bytes().split(b"\0"):
                yield process


def _told(log: Path, machine: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """What a step printed as JSON, by kind; what it says of the machine goes into ``machine``."""
    told: dict[str, list[dict[str, Any]]] = {"figures": [], "assumptions": []}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith("{"):
            continue
        with suppress(ValueError):
            found = json.loads(line)
            if "figure" in found:
                told["figures"].append(found | {"goal": gpu_steps.goal(found)})
            elif "assumption" in found:
                told["assumptions"].append(found)
            machine |= found.get("machine", {})
    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

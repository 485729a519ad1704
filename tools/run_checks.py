"""Run all checks for `make test`, each in its environment, even if some fail.

    python3 tools/run_checks.py                    everything
    python3 tools/run_checks.py lint pytorch       some parts, by the names the closing lines show
    python3 tools/run_checks.py --quick            style, types, quick tests, `make quick`
    python3 tools/run_checks.py --soak             the long forms of checks, `make soak`
    python3 tools/run_checks.py --write-times      everything, and tests/times.json anew

Standard library only. Environments come first; then some parts run at a time, the longest first,
and what one prints is shown when it has ended. Ends with one line a part, and with exit code 1 if
any failed. A signal ends all parts, with whatever they have started.

`tests/times.json` holds the seconds of every part, by the clock and of the processor, as one run on
an idle machine measured them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "environments"))

import kernels  # noqa: E402

from helpers.frameworks import ROWS, optional_kernels  # noqa: E402

TIMES = ROOT / "tests" / "times.json"
FOLDERS = {f"ROSETTA_{what.upper()}": str(ROOT / ".test-runs" / what) for what in ("runs", "data")}
"""A user's experiments and images are left alone (helpers/paths.py; tests/conftest.py says so too,
for those who call pytest themselves)."""


class Part(NamedTuple):
    """A program of a kernel's environment, and its arguments."""

    kernel: str
    words: tuple[str, ...]


class Ended(NamedTuple):
    """How a part ended."""

    wrong: str
    """"" if it passed, else why not. What begins with "skipped" is not a failure."""
    processor: float = 0
    """The CPU seconds of its process and of all descendants that a process waited for."""
    seconds: float = 0

    @property
    def verdict(self) -> str:
        return "skipped" if self.wrong.startswith("skipped") else "FAILED" if self.wrong else "ok"


SIDE_BY_SIDE = 4
"""Parts at a time, for two cores: each of them waits a while for processes that it has started."""
KERNELS = "tests/kernels"
EXECUTED = "tests/executed_notebooks"
STUDY_TESTS = f"{EXECUTED}/test_study_devices.py"
RECORDS = f"{EXECUTED}/test_records.py"

#: Tests that start processes, draw or install, the longest first. Each is a part of its own; what
#: is not named here is in `make quick` too.
APART = (
    "tests/runner",
    "tests/results",
    "tests/gpumon",
    "tests/data_prep",
    "tests/power",
    "tests/docs/test_adding_a_framework.py",
    "tests/environments/test_offline.py",
    "tests/networks",
    "tests/gpu",
    "tests/test_hostile.py",
    "tests/test_closed_pipe.py",
    "tests/benchmarks",
    "tests/docs/test_docs_site.py",
)
LATER = (
    "tests/power",
    "tests/docs/test_adding_a_framework.py",
    "tests/environments/test_offline.py",
    "tests/executed_notebooks/test_real_xrays.py",
    "tests/executed_notebooks/test_your_own.py",
    "tests/kernels/test_nodes_jax.py",
    "tests/kernels/test_nodes_mxnet.py",
    "tests/kernels/test_nodes_tensorflow.py",
)
"""What only `make soak` runs: minutes each, for what changes seldom."""
QUICK = ("tests/docs", "tests/training", "tests/fairness")
"""Parts of `make quick` beside "tests", so that they run at the same time."""

# Two frameworks live in one kernel, the limits and the all-reduce need any, and ranks one with both
# launchers; other files are named after theirs, behind "stand_in_" where they go through what a
# framework does on GPUs, behind "nodes_" over several nodes, behind "planted_" with something in
# the notebook that the fairness check has to notice. All of a framework but its nodes is one part,
# which imports it once.
OF_ANY = ("all_reduce", "limits", "ranks")
KERNEL_OF = {row.module: row.kernel for row in ROWS} | dict.fromkeys(OF_ANY, "pytorch")

HUNG_SECONDS = 1200
"""After which pytest shows where a test hangs, and ends: twice what the longest notebook took."""
PART_SECONDS = 5400
"""After which a part is ended: a process may hang behind its last test."""
NO_TESTS = 5
"""pytest's exit code where none was left to run."""
GRACE_SECONDS = 5.0
"""What a part gets to end after Ctrl-C's signal, and again after SIGTERM."""

_signals: list[int] = []
"""The signals that asked to stop."""


def tests(*words: str, kernel: str = "lab") -> Part:
    hangs = ("faulthandler_timeout", HUNG_SECONDS), ("faulthandler_exit_on_timeout", "true")
    never = [f"--override-ini={name}={value}" for name, value in hangs]
    return Part(kernel, ("pytest", *never, "--durations=25", *words))


def style() -> dict[str, Part]:
    commands = {"types": "mypy", "lint": "ruff check", "format": "ruff format --check"}
    commands["spelling"] = "codespell"
    return {name: Part("lab", tuple(text.split())) for name, text in commands.items()}


def quick_tests() -> dict[str, Part]:
    """The tests that run in the lab, without those that are apart or of executed notebooks."""
    ignored = [f"--ignore={path}" for path in (KERNELS, EXECUTED, *APART)]
    others = [f"--ignore={place}" for place in QUICK]
    return {
        "tests": tests("tests", *ignored, *others),
        **{place: tests(place, *ignored) for place in QUICK},
    }


def quick_parts() -> dict[str, Part]:
    """For a contributor, while writing; they need the lab's environment alone."""
    return {**quick_tests(), **style()}


def parts() -> dict[str, Part]:
    """Every part by name, in the order in which they begin: the longest first, to end together."""
    ignored = [f"--ignore={file}" for file in (STUDY_TESTS, RECORDS, *LATER) if EXECUTED in file]
    files: dict[str, list[str]] = {}
    for name, file in kernel_files():
        files.setdefault(re.sub("^(stand_in|planted)_", "", name), []).append(file)
    of_kernels = {name: tests(*each, kernel=kernel_of(each[0])) for name, each in files.items()}
    long = {name for name in of_kernels if name.startswith("nodes_") or name in KERNEL_OF}
    long -= set(OF_ANY)
    return {
        **style(),
        "batches": tests(EXECUTED, *ignored),
        **{place: tests(place) for place in APART if place not in LATER},
        **{name: part for name, part in of_kernels.items() if name in long},
        **quick_tests(),
        **{name: part for name, part in of_kernels.items() if name not in long},
    }


def kernel_files() -> list[tuple[str, str]]:
    """The test files that run in a framework's kernel, by name, without the later ones."""
    files = [f"{KERNELS}/{file.name}" for file in sorted((ROOT / KERNELS).glob("test_*.py"))]
    # Stand-ins fork, before there are threads; a plant's notebook ends on one device, which stays.
    files.sort(key=lambda file: ("stand_in" not in file, "planted" in file))
    return [(Path(file).stem[len("test_") :], file) for file in files if file not in LATER]


def kernel_of(file: str) -> str:
    """The environment of a test file."""
    if not file.startswith(KERNELS):
        return "lab"
    name = Path(file).stem[len("test_") :]
    for kind in ("stand_in_", "nodes_", "planted_"):
        name = name.removeprefix(kind)
    return KERNEL_OF.get(name, name)


def long_parts() -> dict[str, Part]:
    """What takes too long for every day: all in LATER, and elsewhere what is marked slow."""
    files: dict[str, list[str]] = {}
    for _, file in kernel_files():
        files.setdefault(kernel_of(file), []).append(file)
    notebooks = ("pytest", "--nbmake", "--durations=0", "notebooks", STUDY_TESTS, RECORDS)
    slow = {place: ("lab", [place]) for place in APART if place not in LATER} | {
        kernel: (kernel, places) for kernel, places in files.items()
    }
    every = ("-m", "slow or not slow")
    return {
        "mutants": Part("lab", ("python", "tests/mutation/mutants.py")),
        "notebooks": Part("lab", notebooks),
        **{name: Part(of, ("pytest", *at, "-m", "slow")) for name, (of, at) in slow.items()},
        **{place: Part(kernel_of(place), ("pytest", place, *every)) for place in LATER},
    }


def run(part: Part, out: IO[bytes] | None = None) -> Ended:
    """Runs a program of a kernel's environment, as if that environment were active.

    out: where it prints (None: the terminal).
    """
    status = kernels.status(part.kernel)
    if not status["ok"]:
        if part.kernel in optional_kernels():
            cure = f'make envs ARGS="--environments {part.kernel}"'
            return Ended(f"skipped: {cure} makes its environment")
        return Ended(f"no {part.kernel} environment: {status['reason']}")
    # Parts share the cores: a thread that has nothing to do leaves its own to another part.
    env = kernels.activation(part.kernel, status["form"]) | {"OMP_WAIT_POLICY": "passive"} | FOLDERS
    program, *words = part.words
    ended = start([str(kernels.VENVS / part.kernel / "bin" / program), *words], out, env)
    if ended.wrong == f"exit code {NO_TESTS}" and part.words[-1] == "slow":
        return Ended("skipped: nothing is marked slow")
    return ended


def start(
    words: Sequence[str],
    out: IO[bytes] | None = None,
    env: dict[str, str] | None = None,
    seconds: float = PART_SECONDS,
) -> Ended:
    """Runs a program to its end, or until a signal came or so many seconds are over."""
    if _signals:
        return Ended("not begun")
    began = time.monotonic()
    process = subprocess.Popen(
        words, cwd=ROOT, env=env, stdout=out, stderr=out, start_new_session=True
    )
    while not (found := os.wait4(process.pid, os.WNOHANG))[0]:
        if _signals or time.monotonic() - began > seconds:
            _end(process)
            return Ended("stopped" if _signals else f"ended after {seconds:.0f} s: it hangs")
        time.sleep(0.05)
    process.returncode = code = os.waitstatus_to_exitcode(found[1])
    used = found[2].ru_utime + found[2].ru_stime
    return Ended(f"exit code {code}" if code else "", used, time.monotonic() - began)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a part and its process group: as on Ctrl-C, so that tests tidy up, then by force."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            until = time.monotonic() + GRACE_SECONDS
            while time.monotonic() < until:
                process.poll()
                os.killpg(process.pid, 0)  # an error once all are gone
                time.sleep(0.05)


def _in_parallel(name: str, part: Part) -> Ended:
    """Runs a part while another runs, and prints what it said when it has ended."""
    with tempfile.TemporaryFile() as out:
        ended = run(part, out)
        out.seek(0)
        text = out.read().decode(errors="replace")
    print(f"\n=== {name} ({ended.seconds:.0f} s)\n{text}", end="", flush=True)
    return ended


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    form = parser.add_mutually_exclusive_group()
    for option in ("--quick", "--soak", "--write-times"):
        form.add_argument(option, action="store_true")
    parser.add_argument("parts", nargs="*")
    given = parser.parse_args(words)
    known = quick_parts() if given.quick else long_parts() if given.soak else parts()
    builds = not (given.quick or given.soak)
    names = ["environments"] * builds + list(known)
    if unknown := set(given.parts) - set(names):
        parser.error(f"no part named {', '.join(unknown)}: the parts are {', '.join(names)}")
    if given.parts and given.write_times:
        parser.error("--write-times writes the seconds of all parts: name none")
    began = time.monotonic()
    chosen = given.parts or names
    results = {}
    if "environments" in chosen:
        print("\n=== environments", flush=True)
        results["environments"] = start([sys.executable, str(ROOT / "environments" / "build.py")])
    if len(rest := [name for name in chosen if name != "environments"]) == 1:
        results[rest[0]] = run(known[rest[0]])
    else:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            done = pool.map(_in_parallel, rest, map(known.__getitem__, rest))
            results |= dict(zip(rest, done, strict=True))
    print("\n=== summary")
    for name, (wrong, processor, seconds) in results.items():
        print(f"{name:34} {results[name].verdict:7} {seconds:6.0f} s"
              f" {processor:6.0f} s of processor  {wrong}".rstrip())  # fmt: skip
    verdicts = [ended.verdict for ended in results.values()]
    failed, skipped = verdicts.count("FAILED"), verdicts.count("skipped")
    left_out = f", {skipped} skipped" * bool(skipped)
    passed = len(results) - failed - skipped
    print(f"parts: {passed} passed, {failed} failed{left_out}", flush=True)
    if _signals:
        return 128 + _signals[0]
    if given.write_times:
        write_times(results, time.monotonic() - began)
    return 1 if failed else 0


def write_times(results: dict[str, Ended], seconds: float) -> None:
    """Writes what each part took, the most processor time first."""
    rows = {
        name: {"clock": round(ended.seconds), "processor": round(ended.processor)}
        for name, ended in sorted(results.items(), key=lambda item: -item[1].processor)
    }
    total = sum(row["processor"] for row in rows.values())
    told = {"unit": "s", "cores": os.cpu_count(), "clock": round(seconds), "processor": total}
    TIMES.write_text(json.dumps(told | {"parts": rows}, indent=1) + "\n")


def obey_signals() -> None:
    """From now on a signal ends all parts; one that is ignored, as nohup has it, still is."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: _signals.append(number))


if __name__ == "__main__":
    obey_signals()
    sys.exit(main(sys.argv[1:]))

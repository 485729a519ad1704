"""Run all checks for `make test`, each in its environment, even if some fail.

    python3 tools/run_checks.py                    everything
    python3 tools/run_checks.py lint pytorch       some parts, by the names the closing lines show
    python3 tools/run_checks.py --quick            style, types, quick tests, `make quick`
    python3 tools/run_checks.py --soak             the long forms of checks, `make soak`
    python3 tools/run_checks.py --write-times      everything, and tests/times.json anew

Standard library only. Environments come first; then some parts run at a time, the longest first,
and what one prints is shown when it has ended. Notebooks are run so too: what they measure
meanwhile is checked, and not kept. Ends with one line a part, and with exit code 1 if any failed.

A signal ends all parts, with whatever they have started.

`tests/times.json` holds the seconds of every part, by the clock and of the processor, as one run on
an idle machine measured them. Only `--write-times` writes it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
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


class Ended(NamedTuple):
    """How a part ended."""

    wrong: str
    """"" if it passed, else why not. What begins with "skipped" is no failure."""
    processor_seconds: float = 0
    """The CPU time of its process and of all descendants that a process waited for."""


#: Runs one part, called with `out`, where it prints (None: the terminal).
Part = Callable[..., Ended]

SIDE_BY_SIDE = 4
"""Parts at a time, for two cores: each of them waits a while for processes that it has started."""

NOTEBOOKS = ROOT / "notebooks"
NBMAKE = ("--nbmake", "--durations=0")
KERNELS = "tests/kernels"
EXECUTED = "tests/executed_notebooks"
NOTEBOOK_MUTANTS = "tests/mutation/notebook_mutants.py"
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
# the notebook that the fairness check has to notice.
OF_ANY = ("all_reduce", "hosts_network", "limits", "ranks")
KERNEL_OF = {row.module: row.kernel for row in ROWS} | dict.fromkeys(OF_ANY, "pytorch")


HUNG_SECONDS = 1200
"""After which pytest shows where a test hangs, and ends: twice what the longest notebook took."""
PART_SECONDS = 5400
"""After which a part of `make test` is ended: a process may hang behind its last test."""
NOT_FOR_EVER = (
    *("-o", f"faulthandler_timeout={HUNG_SECONDS}"),
    *("-o", "faulthandler_exit_on_timeout=true"),
)
NO_TESTS = 5
"""pytest's exit code where none was left to run."""
GRACE_SECONDS = 5.0
"""What a part gets to end after Ctrl-C's signal, and again after SIGTERM."""

_signals: list[int] = []
"""The signals that asked to stop."""


def tested(kernel: str, *words: str | Path, out: IO[bytes] | None) -> Ended:
    """Runs pytest in a kernel's environment, which cannot hang for longer than is said above."""
    return command(kernel, "pytest", *NOT_FOR_EVER, *words, out=out)


def command(kernel: str, *words: str | Path, out: IO[bytes] | None) -> Ended:
    """Runs a program of a kernel's environment, as if that environment were active."""
    status = kernels.status(kernel)
    if not status["ok"]:
        if kernel in optional_kernels():
            cure = f'make envs ARGS="--environments {kernel}"'
            return Ended(f"skipped: {cure} makes its environment")
        return Ended(f"no {kernel} environment: {status['reason']}")
    # Parts share the cores: a thread that has nothing to do leaves its own to another part.
    env = kernels.activation(kernel, status["form"]) | {"OMP_WAIT_POLICY": "passive"} | FOLDERS
    program = kernels.VENVS / kernel / "bin" / words[0]
    return _run([program, *words[1:]], out, env)


def environments(out: IO[bytes] | None) -> Ended:
    return _run([sys.executable, ROOT / "environments" / "build.py"], out)


def _run(
    words: list[str | Path],
    out: IO[bytes] | None,
    env: dict[str, str] | None = None,
    seconds: float = PART_SECONDS,
) -> Ended:
    if _signals:
        return Ended("not begun")
    process = subprocess.Popen(
        words, cwd=ROOT, env=env, stdout=out, stderr=out, start_new_session=True
    )
    late = time.monotonic() + seconds
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if _signals or time.monotonic() > late:
            _end(process)
            hangs = f"ended after {seconds:.0f} s: it hangs"
            return Ended("stopped" if _signals else hangs)
        time.sleep(0.05)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    return Ended(f"exit code {code}" if code else "", used.ru_utime + used.ru_stime)


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


def obey_signals() -> None:
    """From now on a signal ends all parts; one that is ignored, as nohup has it, still is."""

    def stop(number: int, frame: object) -> None:
        _signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def executed(*files: Path | str, out: IO[bytes] | None) -> Ended:
    """Executes notebooks, each in the kernel it names, at the size that its metadata says."""
    return tested("lab", *NBMAKE, *files, out=out)


def batches(out: IO[bytes] | None) -> Ended:
    """Runs all notebooks but studies, by nbmake and by `rosetta run`, with tiny networks."""
    ignored = (f"--ignore={file}" for file in (STUDY_TESTS, RECORDS))
    return tested("lab", "--durations=0", EXECUTED, *ignored, out=out)


def quick_tests() -> dict[str, Part]:
    """The tests that run in the lab, without those that are apart or of executed notebooks."""
    ignored = [f"--ignore={path}" for path in (KERNELS, EXECUTED, *APART)]
    others = [f"--ignore={place}" for place in QUICK]
    found = {place: partial(tested, "lab", place, "--durations=10", *ignored) for place in QUICK}
    return {"tests": partial(tested, "lab", "tests", "--durations=25", *ignored, *others), **found}


def style() -> dict[str, Part]:
    return {
        "types": partial(command, "lab", "mypy"),
        "lint": partial(command, "lab", "ruff", "check"),
        "format": partial(command, "lab", "ruff", "format", "--check"),
        "spelling": partial(command, "lab", "codespell"),
    }


def quick_parts() -> dict[str, Part]:
    """For a contributor, while writing; they need the lab's environment alone."""
    return {**quick_tests(), **style()}


def parts() -> dict[str, Part]:
    """Every part by name, in the order in which they begin: the longest first, to end together."""
    found: dict[str, Part] = {"environments": environments, **style(), "batches": batches}
    apart = [place for place in APART if place not in LATER]
    found |= {place: partial(tested, "lab", place, "--durations=25") for place in apart}
    files = kernel_files()
    found |= {_name(file): of_kernel(file) for file in files if takes_long(file)}
    found |= quick_tests()
    found |= {_name(file): of_kernel(file) for file in files if not takes_long(file)}
    return found


def kernel_files() -> list[Path]:
    """The test files that run in a framework's kernel, without the later ones."""
    later = {ROOT / place for place in LATER}
    return [file for file in sorted((ROOT / KERNELS).glob("test_*.py")) if file not in later]


def _name(file: Path) -> str:
    return file.stem[len("test_") :]


def of_kernel(file: Path) -> Part:
    """A test file that runs in a framework's kernel."""
    return partial(tested, _kernel(_name(file)), "--durations=10", file)


def _kernel(name: str) -> str:
    framework = name.removeprefix("stand_in_").removeprefix("nodes_").removeprefix("planted_")
    return KERNEL_OF.get(framework, framework)


def takes_long(file: Path) -> bool:
    """Whether a test file is that of a framework as it runs on this machine, or over nodes."""
    name = _name(file)
    return name.startswith("nodes_") or any(name == row.module for row in ROWS)


def slow(kernel: str, *where: str | Path, out: IO[bytes] | None) -> Ended:
    """Runs the tests there that are marked slow."""
    ended = command(kernel, "pytest", *where, "-m", "slow", out=out)
    none = ended.wrong == f"exit code {NO_TESTS}"
    return Ended("skipped: nothing is marked slow") if none else ended


def whole(where: str, out: IO[bytes] | None) -> Ended:
    """Runs all tests there, slow or not."""
    kernel = _kernel(_name(Path(where))) if where.startswith(KERNELS) else "lab"
    return command(kernel, "pytest", where, "-m", "slow or not slow", out=out)


def long_parts() -> dict[str, Part]:
    """What takes too long for every day."""
    files: dict[str, list[Path]] = {}
    for file in kernel_files():
        files.setdefault(_kernel(_name(file)), []).append(file)
    return {
        "mutants": partial(command, "lab", "python", "tests/mutation/mutants.py", "--all"),
        "notebook_mutants": partial(command, "lab", "python", NOTEBOOK_MUTANTS, "--all"),
        "notebooks": partial(executed, NOTEBOOKS, STUDY_TESTS, RECORDS),
        **{place: partial(slow, "lab", place) for place in APART if place not in LATER},
        **{kernel: partial(slow, kernel, *tests) for kernel, tests in files.items()},
        **{place: partial(whole, place) for place in LATER},
    }


def main(wanted: list[str]) -> int:
    forms = {"--quick": quick_parts, "--soak": long_parts, "--write-times": parts}
    asked = [word for word in dict.fromkeys(wanted) if word in forms]
    if len(asked) > 1:
        print(f"{' and '.join(asked)} at once: give one of them", file=sys.stderr)
        return 2
    known = forms[asked[0]]() if asked else parts()
    wanted = [name for name in wanted if name not in forms]
    if unknown := [name for name in wanted if name not in known]:
        print(f"no part named {', '.join(unknown)}: the parts are {', '.join(known)}",
              file=sys.stderr)  # fmt: skip
        return 2
    if wanted and asked == ["--write-times"]:
        print("--write-times writes the seconds of all parts: name none", file=sys.stderr)
        return 2
    began = time.monotonic()
    chosen = wanted or list(known)
    alone = [name for name in chosen if name == "environments"]
    together = [name for name in chosen if name not in alone]
    if len(together) == 1:
        alone, together = [*alone, *together], []
    results = {name: _alone(name, known[name]) for name in alone}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        done = pool.map(_in_parallel, together, (known[name] for name in together))
        results |= dict(zip(together, done, strict=True))
    words = {name: verdict(ended.wrong) for name, (ended, _) in results.items()}
    failed = list(words.values()).count("FAILED")
    skipped = list(words.values()).count("skipped")
    lines = [
        f"{name:34} {words[name]:7} {seconds:6.0f} s {ended.processor_seconds:6.0f} s of processor"
        f"  {ended.wrong}".rstrip()
        for name, (ended, seconds) in results.items()
    ]
    print("\n=== summary", *lines, sep="\n")
    left_out = f", {skipped} skipped" * bool(skipped)
    passed = len(lines) - failed - skipped
    print(f"parts: {passed} passed, {failed} failed{left_out}", flush=True)
    if _signals:
        return 128 + _signals[0]
    if asked == ["--write-times"]:
        write_times(results, time.monotonic() - began)
    return 1 if failed else 0


def write_times(results: dict[str, tuple[Ended, float]], seconds: float) -> None:
    """Writes what each part took, the most processor time first."""
    most = sorted(results.items(), key=lambda item: -item[1][0].processor_seconds)
    rows = {
        name: {"clock": round(clock), "processor": round(ended.processor_seconds)}
        for name, (ended, clock) in most
    }
    total = sum(row["processor"] for row in rows.values())
    told = {"unit": "s", "cores": os.cpu_count(), "clock": round(seconds), "processor": total}
    TIMES.write_text(json.dumps(told | {"parts": rows}, indent=1) + "\n")


def verdict(wrong: str) -> str:
    """How a part ended, in one word."""
    if wrong.startswith("skipped"):
        return "skipped"
    return "FAILED" if wrong else "ok"


def _alone(name: str, part: Part) -> tuple[Ended, float]:
    """Runs a part on the terminal; how it ended, and its seconds."""
    print(f"\n=== {name}", flush=True)
    began = time.monotonic()
    return part(out=None), time.monotonic() - began


def _in_parallel(name: str, part: Part) -> tuple[Ended, float]:
    """Runs a part while another runs, and prints what it said when it has ended."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        ended, seconds = part(out=out), time.monotonic() - began
        out.seek(0)
        text = out.read().decode(errors="replace")
    print(f"\n=== {name} ({seconds:.0f} s)\n{text}", end="", flush=True)
    return ended, seconds


if __name__ == "__main__":
    obey_signals()
    sys.exit(main(sys.argv[1:]))

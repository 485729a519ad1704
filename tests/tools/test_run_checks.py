"""`make test` leaves no test file out, `make quick` is its quick part, and forges call both."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import run_checks
from processes import ended

from helpers import paths


def files(places: Iterable[str]) -> set[str]:
    """The test files in some folders, or those files."""
    found: set[str] = set()
    for place in places:
        path = paths.ROOT / place
        each = path.rglob("test_*.py") if path.is_dir() else [path]
        found |= {str(file.relative_to(paths.ROOT)) for file in each}
    return found


def files_run(parts: Iterable[run_checks.Part]) -> list[str]:
    """The test files that these parts run, as often as they do."""
    found: list[str] = []
    for program, *words in (part.words for part in parts):
        if program == "pytest":
            left_out = files(word.split("=")[1] for word in words if word.startswith("--ignore="))
            found += files(word for word in words if word.startswith("tests")) - left_out
    return found


LATER = files([run_checks.STUDY_TESTS, run_checks.RECORDS, *run_checks.LATER])


def test_every_test_file_is_run_once() -> None:
    assert sorted(files_run(run_checks.parts().values())) == sorted(files(["tests"]) - LATER)
    assert set(files_run(run_checks.long_parts().values())) >= LATER
    words = {word for part in run_checks.long_parts().values() for word in part.words}
    assert words >= {"notebooks", "tests/mutation/mutants.py"}


def test_the_quick_choice_is_there_and_leaves_the_slow_ones_out() -> None:
    quick = run_checks.quick_parts()
    assert set(quick) < set(run_checks.parts())
    for place in run_checks.APART:
        assert (paths.ROOT / place).exists(), f"{place} is no more: take it out of APART"
    found = set(files_run(quick.values()))
    assert found and not found & files(run_checks.APART)
    elsewhere = files(["tests/kernels", "tests/executed_notebooks"])
    assert found | files(run_checks.APART) | elsewhere == files(["tests"])


def test_soak_runs_whatever_is_marked_slow_in_the_kernel_that_has_it_every_day() -> None:
    parts = [part for part in run_checks.long_parts().values() if part.words[-1] == "slow"]
    for file in files(["tests"]) - LATER:
        if re.search(r"\bmark\.slow\b|\bOPTIMIZERS\b", (paths.ROOT / file).read_text("utf-8")):
            where = [part.kernel for part in parts if file in files_run([part])]
            assert where == [run_checks.kernel_of(file)], file


def test_a_part_is_charged_for_the_processor_time_of_the_processes_it_started() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    starter = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    ended = run_checks.start([sys.executable, "-c", starter])
    assert ended.wrong == "" and 0.3 <= ended.processor < 10
    hung = run_checks.start([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.2)
    assert "hangs" in hung.wrong


STOPPED = """
import sys
import run_checks
run_checks.GRACE_SECONDS = 0.5
words = [sys.executable, "-c", sys.argv[2], sys.argv[1]]
run_checks.run = lambda part, out: run_checks.start(words, out)
run_checks.obey_signals()
sys.exit(run_checks.main(["lint", "types"]))
"""
DEAF = """
import os, pathlib, signal, subprocess, sys, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1], str(os.getpid())).touch()
pathlib.Path(sys.argv[1], str(child.pid)).touch()
time.sleep(600)
"""


def test_a_signal_ends_all_parts_and_what_they_have_started(tmp_path: Path) -> None:
    """Also parts that do not listen."""
    command = [sys.executable, "-c", STOPPED, str(tmp_path), DEAF]
    env = os.environ | {"PYTHONPATH": f"{paths.ROOT}:{paths.ROOT / 'tools'}"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 60
        while len(found := [int(path.name) for path in tmp_path.iterdir()]) < 4:
            assert time.monotonic() < until and running.poll() is None
            time.sleep(0.05)
        running.terminate()
        said, _ = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM
    assert "parts: 0 passed, 2 failed" in said
    assert all(ended(pid, seconds=10) for pid in found)

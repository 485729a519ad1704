"""`make test` leaves no test file out, `make quick` is its quick part, and forges call both."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import run_checks
from processes import ended

from helpers import paths
from helpers.frameworks import ROWS


def files(places: Iterable[str]) -> set[str]:
    """The test files in some folders, or those files."""
    found: set[str] = set()
    for place in places:
        path = paths.ROOT / place
        each = path.rglob("test_*.py") if path.is_dir() else [path]
        found |= {str(file.relative_to(paths.ROOT)) for file in each}
    return found


@pytest.fixture(name="ran")
def ran_fixture(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The words of every program that a part begins; nothing is run."""
    ran: list[tuple[str, ...]] = []

    def note(kernel: str, *words: str | Path, out: Any) -> run_checks.Ended:
        ran.append(tuple(str(word).removeprefix(f"{paths.ROOT}/") for word in words))
        return run_checks.Ended("")

    monkeypatch.setattr(run_checks, "command", note)
    monkeypatch.setattr(run_checks, "environments", lambda out: run_checks.Ended(""))
    return ran


def files_run(ran: list[tuple[str, ...]]) -> list[str]:
    """The test files that these programs run, as often as they do."""
    found: list[str] = []
    for program, *words in ran:
        if program == "pytest":
            left_out = files(word.split("=")[1] for word in words if word.startswith("--ignore="))
            found += files(word for word in words if word.startswith("tests")) - left_out
    return found


def test_every_test_file_is_run_once(ran: list[tuple[str, ...]]) -> None:
    for part in run_checks.parts().values():
        part(out=None)
    later = [run_checks.STUDY_TESTS, run_checks.RECORDS, *run_checks.LATER]
    assert sorted(files_run(ran)) == sorted(files(["tests"]) - files(later))
    ran.clear()
    for part in run_checks.long_parts().values():
        part(out=None)
    assert files(later) <= set(files_run(ran))


def notebooks_run(ran: list[tuple[str, ...]]) -> set[str]:
    words = {word for words in ran for word in words}
    folder = paths.NOTEBOOKS.glob("*.ipynb") if "notebooks" in words else []
    return {Path(word).stem for word in words if word.endswith(".ipynb")} | {f.stem for f in folder}


def test_soak_runs_every_notebook(ran: list[tuple[str, ...]]) -> None:
    """`make test` runs those of frameworks in batches."""
    there = {file.stem for file in paths.NOTEBOOKS.glob("*.ipynb")}
    for part in run_checks.long_parts().values():
        part(out=None)
    assert notebooks_run(ran) == there
    studies = {name for name in there if name.startswith("Study_")}
    assert there - studies == {row.notebook for row in ROWS} | {"Compare"}


def test_the_quick_choice_is_there_and_leaves_the_slow_ones_out(
    ran: list[tuple[str, ...]],
) -> None:
    quick = run_checks.quick_parts()
    assert set(quick) < set(run_checks.parts())
    for part in quick.values():
        part(out=None)
    for place in run_checks.APART:
        assert (paths.ROOT / place).exists(), f"{place} is no more: take it out of APART"
    found = set(files_run(ran))
    assert found and not found & files(run_checks.APART)
    elsewhere = files(["tests/kernels", "tests/executed_notebooks"])
    assert found | files(run_checks.APART) | elsewhere == files(["tests"])


def test_soak_runs_whatever_is_marked_slow() -> None:
    """In the kernel that has it every day."""
    parts = [
        part.args
        for part in run_checks.long_parts().values()
        if isinstance(part, partial) and part.func is run_checks.slow
    ]
    for file in (paths.ROOT / "tests").rglob("test_*.py"):
        if str(file.relative_to(paths.ROOT)) in files(run_checks.LATER):  # whole
            continue
        if re.search(r"\bmark\.slow\b|\bOPTIMIZERS\b", file.read_text(encoding="utf-8")):
            where = [
                kernel
                for kernel, *given in parts
                if any(file.is_relative_to(paths.ROOT / each) for each in given)
            ]
            of_kernel = file.parent == paths.ROOT / run_checks.KERNELS
            name = run_checks._kernel(run_checks._name(file)) if of_kernel else "lab"
            assert where == [name], file


def test_a_part_is_charged_for_the_processor_time_of_the_processes_it_started() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    starter = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    ended = run_checks._run([sys.executable, "-c", starter], None)
    assert ended.wrong == "" and 0.3 <= ended.processor_seconds < 10
    hung = run_checks._run([sys.executable, "-c", "import time; time.sleep(60)"], None, seconds=0.2)
    assert "hangs" in hung.wrong


STOPPED = """
import sys
from functools import partial
import run_checks
run_checks.GRACE_SECONDS = 0.5
part = partial(run_checks._run, [sys.executable, "-c", sys.argv[2], sys.argv[1]])
run_checks.parts = lambda: {"one": part, "two": part}
run_checks.obey_signals()
sys.exit(run_checks.main([]))
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

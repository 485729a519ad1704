"""Adds a toy framework to a copy of the repository by doing what docs/adding-a-framework.md says.

A diff is applied, a block with a title is that file, Python without one is run, and so is ``cp``.
What stands in a block of plain text at the end of a step is what the tests must say then: the names
of all tests that fail, or ``passed``. All of them run at the beginning and at the end, between the
two those that failed the time before.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import paths

GUIDE = paths.ROOT / "docs" / "adding-a-framework.md"
COPIED = (
    *("tools", "helpers", "data_prep", "gpumon", "notebooks", "tests", "environments"),
    *("benchmarks", "recipes"),
)
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)


def steps() -> dict[str, list[tuple[str, str, str]]]:
    """The blocks of each section of the guide, by its heading: kind, title and text."""
    sections = re.split(r"^## (.+)$", GUIDE.read_text(encoding="utf-8"), flags=re.M)[1:]
    return {
        heading: FENCE.findall(body)
        for heading, body in zip(sections[::2], sections[1::2], strict=True)
    }


def apply(diff: str, root: Path) -> None:
    """Replaces the old lines by the new ones, in the one place where they stand."""
    head, *lines = diff.splitlines()
    file = root / head.removeprefix("--- ")
    old = "".join(line[1:] + "\n" for line in lines if line[0] in " -")
    new = "".join(line[1:] + "\n" for line in lines if line[0] in " +")
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{head}: what the guide replaces is there {text.count(old)} times"
    file.write_text(text.replace(old, new), encoding="utf-8")


def run(words: list[str], root: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "400"}
    done = subprocess.run(
        [sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def ask(command: str, root: Path, *more: str) -> set[str]:
    """The tests that fail, by name; ``passed`` where none does."""
    words = re.findall(r'"[^"]*"|\S+', command)
    assert words[0] == ".venvs/lab/bin/pytest"
    plain = [word.strip('"') for word in words[1:]]
    said = run(["-m", "pytest", "-rf", *more, *plain], root)
    assert re.search(r"\d+ (passed|failed)", said), said
    return set(re.findall(r"^FAILED \S+::(\S+)", said, re.M)) or {"passed"}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in COPIED:
        shutil.copytree(
            paths.ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in ("pyproject.toml", "environment.yml"):
        shutil.copy(paths.ROOT / file, tmp_path)
    return tmp_path


def test_the_contract_tells_what_is_missing_until_all_is_there(copy: Path) -> None:
    question, asked = "", 0
    for heading, blocks in steps().items():
        for kind, title, text in blocks:
            if title:
                (copy / title).write_text(text, encoding="utf-8")
            elif kind == "diff":
                apply(text, copy)
            elif kind == "python":
                assert not run(["-c", text], copy)
            elif kind == "console":
                for line in text.splitlines():
                    if line.startswith("cp "):
                        source, target = line.split()[1:]
                        shutil.copy(copy / source, copy / target)
                    elif "bin/pytest" in line:
                        question = line
            elif kind == "text":
                between = ("--last-failed",) if asked and "passed" not in text else ()
                assert ask(question, copy, *between) == set(text.split()), heading
                asked += 1
    assert asked == 7

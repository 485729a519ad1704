"""What the checks catch and which recipes run, by name: to be compared before and after a change.

    python tools/baseline.py FILE                  everything, into FILE (JSON)
    python tools/baseline.py FILE recipes          some parts: mutants, planted, recipes

Runs in the lab; the other environments have to be there. A part replaces its own entry in FILE,
which is written as results come.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
sys.path[:0] = [str(ROOT), str(TESTS / "kernels"), str(TESTS / "mutation")]

import mutants as mutation  # noqa: E402
import own_networks  # noqa: E402
import run_checks  # noqa: E402

from helpers import paths, record  # noqa: E402
from helpers.frameworks import ROWS  # noqa: E402

DATA = {
    "resnet44-cifar10": ("cifar10", "--num-images", "400"),
    "resnet50-imagenet": ("imagefolder", "--num-images", "200", "--size", "64"),
    "demo": ("nih", "--num-images", "160", "--size", "64"),
    "chexnet": ("nih", "--num-images", "64", "--size", "264"),
}
"""The generated images of each recipe, the quickest first: few, for what counts is that it runs."""


def run(command: list[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False, **more
    )


def lab(program: str) -> Path:
    return paths.VENVS / "lab" / "bin" / program


def mutants() -> Iterator[dict[str, str]]:
    """How many changes of each module of the fairness check the tests notice."""
    for module in mutation.TESTS:
        done = run([lab("python"), mutation.__file__, module])
        row = re.search(rf"^{module} +(\d+) +(\d+) ", done.stdout, re.M)
        surprises = done.stdout.count("SURVIVED")
        yield {module: f"{row[2]} of {row[1]}, {surprises} not listed" if row else "no result"}


def planted() -> Iterator[dict[str, str]]:
    """Whether each difference planted in a notebook is noticed, by the name of its test."""
    for file in sorted((TESTS / "kernels").glob("test_planted_*.py")):
        kernel = run_checks.KERNEL_OF[file.stem.removeprefix("test_planted_")]
        with tempfile.TemporaryDirectory() as folder, Path(folder, "said").open("wb") as out:
            xml = Path(folder) / "results.xml"
            every = "-m", "slow or not slow"
            words = "pytest", *every, f"--junitxml={xml}", str(file)
            found = run_checks.run(run_checks.Part(kernel, words), out)
            cases = ET.parse(xml).iter("testcase") if xml.exists() else ()
            named = {f"{file.stem}: {case.get('name')}": ended(case) for case in cases}
            yield named or {file.stem: found.wrong}


def ended(case: ET.Element) -> str:
    """How a test ended, from its element of JUnit's file."""
    words = {"failure": "FAILED", "error": "FAILED", "skipped": "skipped"}
    return next((word for tag, word in words.items() if case.find(tag) is not None), "passed")


def recipes() -> Iterator[dict[str, str]]:
    """The state of each run of each recipe: all notebooks, on two devices and on one."""
    notebooks = [row.notebook for row in ROWS if not (row.many_nodes_only or row.optional)]
    choices = ["--epochs", "1", "--batch-size", "4"]
    choices += ["--notebooks", ",".join(notebooks)]
    with tempfile.TemporaryDirectory() as folder:
        own = str(own_networks.recipe_of_all(Path(folder) / "own"))
        for devices, recipe in product((2, 1), (own, *DATA)):
            name = recipe if recipe in DATA else "custom network and reader"
            given: list[str | Path] = ["--recipe", recipe, "--devices", str(devices)]
            if recipe in DATA:
                layout, *options = DATA[recipe]
                data = Path(folder) / recipe
                run([lab("data-prep"), "generate", "--layout", layout, *options, data])
                given += ["--data", data]
            batch = f"baseline-{os.getpid()}-{name.split()[0]}-{devices}"
            run([lab("rosetta"), "run", "--name", batch, *choices, *given])
            yield {
                f"{name}: {row} on {devices}": outcome(paths.RUNS / batch / f"{row}-{devices}x")
                for row in notebooks
            }


def outcome(folder: Path) -> str:
    """The state of a run, and the rows of the fairness check that failed."""
    if not (folder / "record.json").exists():
        return "no record"
    content = record.read(folder)
    rows = content.get("fairness", {"checks": []})["checks"]
    failed = [row["check"] for row in rows if row["verdict"] == "fail"]
    return " ".join([content["state"], *(f"[{name}]" for name in failed)])


PARTS: dict[str, Callable[[], Iterator[dict[str, str]]]] = {
    "recipes": recipes,
    "planted": planted,
    "mutants": mutants,
}


def main(words: list[str]) -> int:
    if not words or set(words[1:]) - PARTS.keys():
        print(f"usage: baseline.py FILE [{'|'.join(PARTS)} ...]", file=sys.stderr)
        return 2
    file = Path(words[0])
    found = json.loads(file.read_text()) if file.exists() else {}
    for name in words[1:] or PARTS:
        found[name] = {}
        for entries in PARTS[name]():
            found[name] |= entries
            file.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{name}: {len(found[name])} entries", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

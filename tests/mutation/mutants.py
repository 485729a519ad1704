"""Would the tests notice? Changes the fairness check's code, and runs the tests on each change.

A mutant is one module with one change: a limit three times as wide, ``<`` for ``<=``, a row less in
a table, a statement left out. Tests that fail have killed it; one that survives is a fault that
nobody would notice, unless it is none: ``mutants.toml`` lists those, with reasons.

    python tests/mutation/mutants.py --sample 40           some of them, the same each time (--seed)
    python tests/mutation/mutants.py --all                 all of them, as `make soak` does
    python tests/mutation/mutants.py --all fairness.training_loop    all of one module

Runs in the lab. The lab's tests come first, those in a framework's kernel for what survived them.
Nothing on disk is changed: each mutant is tried in a process of its own that has it in memory,
forked from one that has imported the libraries. Exit code 1: something survived that is not listed.
"""

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mutations import ROOT, Mutant, mutants, path_of

TESTS = {
    "results.shared_settings": {
        "lab": ["results/test_shared_settings.py", "results/test_other_recipes.py"]
    },
    "fairness.check_results": {"lab": ["fairness/test_check_results.py"]},
    "training.checkpoint": {"lab": ["training/test_checkpoint.py"]},
    "fairness.reference_checks": {
        "lab": ["fairness/test_reference_checks.py"],
        "pytorch": ["kernels/test_limits.py"],
    },
    "fairness.training_loop": {"lab": ["fairness/test_training_loop.py"]},
    "fairness.process_checks": {"lab": ["fairness/test_process_checks.py"]},
}
KERNELS = {
    "lab": (
        "pytest",
        "hypothesis",
        "pandas",
        "PIL.Image",
        "helpers.record",
        "helpers.fairness.reference",
    ),
    "pytorch": ("pytest", "pandas", "torchvision", "helpers.fairness.reference"),
}
"""Where tests run, in order, and what takes long to import there and is no mutant."""
SECONDS = 300
"""A mutant that keeps the tests waiting for longer is killed by that."""
TIMES = 5
"""And one that makes them compute for so many times as long as they do without it."""


def survivors(tried: Sequence[Mutant], jobs: int) -> list[Mutant]:
    """Those that the tests of no kernel killed."""
    for kernel in KERNELS:
        mine = [mutant for mutant in tried if kernel in TESTS[mutant.module]]
        if mine:
            python = ROOT / ".venvs" / kernel / "bin" / "python"
            asked = json.dumps([asdict(mutant) for mutant in mine])
            command = [str(python), __file__, "--in", kernel, "--jobs", str(jobs)]
            alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                command, input=asked, stdout=subprocess.PIPE, text=True, env=alone, check=False
            )
            if done.returncode:
                sys.exit(f"mutants.py: the {kernel} kernel gave up (exit code {done.returncode})")
            alive = json.loads(done.stdout)
            killed = [mutant for mutant, lives in zip(mine, alive, strict=True) if not lives]
            tried = [mutant for mutant in tried if mutant not in killed]
    return list(tried)


def work(kernel: str, jobs: int) -> list[bool]:
    """For each of the mutants on standard input whether it survives the tests in this kernel."""
    tried = [Mutant(**said) for said in json.load(sys.stdin)]
    for name in KERNELS[kernel]:
        importlib.import_module(name)
    limits = {}
    for module in {mutant.module for mutant in tried}:
        source = (ROOT / path_of(module)).read_text(encoding="utf-8")
        files = _files(module, kernel)
        _, status, used = os.wait4(_start(Mutant(module, 0, "", "", source), files, SECONDS), 0)
        if status:
            sys.exit(f"mutants.py: the tests of {module} fail as it is: {', '.join(files)}")
        limits[module] = TIMES * (1 + int(used.ru_utime + used.ru_stime))
    waiting, alive = list(enumerate(tried)), [False] * len(tried)
    running: dict[int, int] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            index, mutant = waiting.pop(0)
            files = _files(mutant.module, kernel)
            running[_start(mutant, files, limits[mutant.module])] = index
        process, status = os.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what it started
        alive[running.pop(process)] = status == 0
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return alive


def _files(module: str, kernel: str) -> list[str]:
    return [str(ROOT / "tests" / file) for file in TESTS[module][kernel]]


def _start(mutant: Mutant, files: list[str], limit: int) -> int:
    """The process that runs the tests on ``mutant``, for ``limit`` seconds of computing at most.

    It ends with 0 if they pass.
    """
    process = os.fork()
    if process:
        return process
    try:
        os.setsid()
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        _put_in_place(mutant)
        pytest = importlib.import_module("pytest")
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files]))
    finally:
        os._exit(1)  # it cannot even be imported


def _put_in_place(mutant: Mutant) -> None:
    """Make ``import helpers.<module>`` give the mutant in this process."""
    name = f"helpers.{mutant.module}"
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin == str(ROOT / path_of(mutant.module))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(mutant.source, spec.origin, "exec"), vars(module))
    package, _, own = name.rpartition(".")
    setattr(importlib.import_module(package), own, module)


def report(
    tried: Sequence[Mutant], alive: Sequence[Mutant], listed: list[dict[str, str]], *, whole: bool
) -> int:
    """Print the share killed of each module and who survived; 1 if somebody should not have."""
    known = {(row["module"], row["line"], row["change"]) for row in listed}
    unlisted = [mutant for mutant in alive if mutant.key not in known]
    print(f"{'':12} mutants  killed  share  survivors listed")
    for module in (*TESTS, ""):
        mine = [m for m in tried if module in ("", m.module)]
        left = [m for m in alive if module in ("", m.module)]
        if mine:
            share, killed = 1 - len(left) / len(mine), len(mine) - len(left)
            fine = sum(m.key in known for m in left)
            print(f"{module or 'all':12} {len(mine):7}  {killed:6}  {share:5.1%}  {fine:16}")
    for mutant in unlisted:
        print(f"SURVIVED {mutant}")
    modules = {mutant.module for mutant in tried}
    stale = {key for key in known if whole and key[0] in modules} - {m.key for m in alive}
    for module, line, change in sorted(stale):
        print(f"NO SURVIVOR, take it off the list: {module}: {line}\n    {change}")
    return 1 if unlisted or stale else 0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(TESTS)}")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sample", type=int, default=40, help="how many, of all (default: 40)")
    which.add_argument("--all", action="store_true", help="every one, which takes long")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at the same time")
    parser.add_argument("--in", dest="kernel", help=argparse.SUPPRESS)
    said = parser.parse_args(words)
    if said.kernel:
        print(json.dumps(work(said.kernel, said.jobs)))
        return 0
    if unknown := set(said.modules) - TESTS.keys():
        parser.error(f"no module {unknown.pop()}: they are {', '.join(TESTS)}")
    tried = [mutant for module in said.modules or TESTS for mutant in mutants(module)]
    if not said.all:
        tried = random.Random(said.seed).sample(tried, min(said.sample, len(tried)))
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return report(tried, survivors(tried, said.jobs), listed["survivor"], whole=said.all)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))

"""Would the tests notice? Changes the fairness check's code, and runs the tests on each change.

A mutant is one module with one change: a limit three times as wide, ``<`` for ``<=``, a row less in
a table, a statement left out. Tests that fail have killed it; one that survives is a fault that
nobody would notice, unless it is none: ``mutants.toml`` lists those, with reasons.

    python tests/mutation/mutants.py                           all of them, as `make soak` does
    python tests/mutation/mutants.py fairness.training_loop    all of one module

Runs in the lab, and from there in the kernel that a module's tests need. Nothing on disk is
changed: each mutant is tried in a process of its own that has it in memory, forked from one that
has imported the libraries. Exit code 1: something survived that is not listed.
"""

import argparse
import contextlib
import importlib
import importlib.util
import os
import resource
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from mutations import ROOT, Mutant, mutants, path_of

TESTS = {
    "results.shared_settings": (
        "lab",
        ["results/test_shared_settings.py", "results/test_other_recipes.py"],
    ),
    "fairness.check_results": ("lab", ["fairness/test_check_results.py"]),
    "training.checkpoint": ("lab", ["training/test_checkpoint.py"]),
    "fairness.training_loop": ("lab", ["fairness/test_training_loop.py"]),
    "fairness.kept_statistics": ("lab", ["fairness/test_training_loop.py"]),
    "fairness.process_checks": ("lab", ["fairness/test_process_checks.py"]),
    "fairness.reference_checks": (
        "pytorch",
        ["fairness/test_reference_checks.py", "kernels/test_limits.py"],
    ),
}
"""Where each module's tests run, and the tests."""
KERNELS = {
    "lab": ("pytest", "hypothesis", "pandas", "PIL.Image", "helpers.fairness.reference"),
    "pytorch": ("pytest", "pandas", "torchvision", "helpers.fairness.reference"),
}
"""What takes long to import there and is no mutant."""
SECONDS = 300
"""A mutant that keeps the tests waiting for longer is killed by that."""
TIMES = 5
"""And one that makes them compute for so many times as long as they do without it."""


def survivors(tried: Sequence[Mutant]) -> list[Mutant]:
    """Those that their tests did not kill, in this kernel."""
    limits = {}
    for module in {mutant.module for mutant in tried}:
        source = (ROOT / path_of(module)).read_text(encoding="utf-8")
        _, status, used = os.wait4(_start(Mutant(module, 0, "", "", source), SECONDS), 0)
        if status:
            sys.exit(f"mutants.py: the tests of {module} fail as it is: {TESTS[module][1]}")
        limits[module] = TIMES * (1 + int(used.ru_utime + used.ru_stime))
    waiting, alive = list(tried), []
    running: dict[int, Mutant] = {}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            mutant = waiting.pop(0)
            running[_start(mutant, limits[mutant.module])] = mutant
        process, status = os.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what it started
        mutant = running.pop(process)
        alive += [mutant] if status == 0 else []
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return alive


def _start(mutant: Mutant, limit: int) -> int:
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
        files = [str(ROOT / "tests" / file) for file in TESTS[mutant.module][1]]
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
    tried: Sequence[Mutant], alive: Sequence[Mutant], listed: Sequence[Mapping[str, str]]
) -> int:
    """Print the share killed of each module and who survived; 1 if somebody should not have."""
    modules = {mutant.module: None for mutant in tried}
    known = {(r["module"], r["line"], r["change"]) for r in listed if r["module"] in modules}
    unlisted = [mutant for mutant in alive if mutant.key not in known]
    print(f"{'':12} mutants  killed  share  survivors listed")
    for module in modules:
        mine, left = ([m for m in some if m.module == module] for some in (tried, alive))
        killed, fine = len(mine) - len(left), sum(m.key in known for m in left)
        print(f"{module:12} {len(mine):7}  {killed:6}  {killed / len(mine):5.1%}  {fine:16}")
    for mutant in unlisted:
        print(f"SURVIVED {mutant}")
    stale = known - {m.key for m in alive}
    for module, line, change in sorted(stale):
        print(f"NO SURVIVOR, take it off the list: {module}: {line}\n    {change}")
    return 1 if unlisted or stale else 0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(TESTS)}")
    parser.add_argument("--in", dest="kernel", help=argparse.SUPPRESS)
    said = parser.parse_args(words)
    if unknown := set(said.modules) - TESTS.keys():
        parser.error(f"no module {unknown.pop()}: they are {', '.join(TESTS)}")
    if said.kernel:
        for name in KERNELS[said.kernel]:
            importlib.import_module(name)
        tried = [mutant for module in said.modules for mutant in mutants(module)]
        listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
        return report(tried, survivors(tried), listed["survivor"])
    code = 0
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
    for kernel in KERNELS:
        if mine := [name for name in said.modules or TESTS if TESTS[name][0] == kernel]:
            python = str(ROOT / ".venvs" / kernel / "bin" / "python")
            command = [python, __file__, "--in", kernel, *mine]
            code = max(code, abs(subprocess.run(command, env=alone, check=False).returncode))
    return code


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))

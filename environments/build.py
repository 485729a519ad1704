#!/usr/bin/env python3
"""Build the Python environments under .venvs/, each from its lock (docs/environments.md).

    python3 environments/build.py                   build all but the optional ones
    python3 environments/build.py --environments lab,pytorch
                                                    build only these
    python3 environments/build.py --rebuild         delete and build again
    python3 environments/build.py --show            show which of them use the GPUs here; build none
    python3 environments/build.py --offline wheels  build from a folder that download.py filled
    python3 environments/build.py --lock            write the locks again (-U: newest versions)

An environment that is complete is left alone. The script needs only the standard library of Python
3.9 or newer, and finds or downloads Python 3.11 and uv.
Exit code: 0 all are complete, 1 at least one could not be built (the others were), 2 the build
could not start.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environment
import gpus
import kernels
import python311
import sources
from environment import BuildError, Maker
from kernels import HERE, KERNELS, VENVS

# --- What several environments need ----------------------------------------------------------


def make_small(venv: Path, maker: Callable[[], Maker]) -> None:
    """Create an environment that is not a kernel from the lock of its name, unless it exists."""
    name = venv.name.lstrip(".")
    mark, lock = venv / "stamp", HERE / f"{name}.txt"
    same = mark.is_file() and mark.read_text() == lock.read_text()
    if same and (venv / "bin" / "python").exists():
        return
    shutil.rmtree(venv, ignore_errors=True)
    run = environment.runner(VENVS / f"{name}.log")
    by = maker()
    try:
        run([by.uv, "venv", "--python", by.python, "--prompt", name, venv])
        run([by.uv, "pip", "sync", "--python", venv, "--require-hashes", lock])
    except BuildError as error:
        raise BuildError(f"{lock.name}: {error} (details in .venvs/{name}.log)") from None
    mark.write_text(lock.read_text())


def get_maker(machine: kernels.Machine, folder: Path | None = None) -> Maker:
    """Find or download uv and Python 3.11. Raises python311.NoPython."""
    python311.set_up_uv(VENVS)
    if folder:
        environment.use_wheels(folder)
    uv = python311.find_uv(VENVS)
    return Maker(uv, python311.find_python(uv) or python311.fetch_python(uv), machine)


def make_pillow_simd() -> Path:
    """Build the wheel that replaces Pillow. Raises BuildError if that is impossible."""
    if not sources.compiler() and sources.pillow_simd_there(environment.wheels()) is None:
        raise BuildError("no C compiler for pillow-simd (Debian: gcc)")
    run = environment.runner(VENVS / "pillow-simd.log")
    try:
        return sources.pillow_simd(environment.tools_python(), environment.wheels(), run)
    except BuildError:
        raise BuildError(
            "pillow-simd did not compile, see .venvs/pillow-simd.log; it needs headers"
            " (Debian: python3-dev zlib1g-dev libjpeg-dev)"
        ) from None


def instead_of_pillow() -> list[Path]:
    """pillow-simd, and an empty package "pillow" that depends on it. Raises BuildError."""
    found, folder = make_pillow_simd(), environment.wheels() / "pillow"
    shutil.rmtree(folder, ignore_errors=True)  # a wheel of another version would be installed too
    run = environment.runner(VENVS / "pillow-stand-in.log")
    try:
        sources.wheel(environment.tools_python(), folder, run, HERE / "pillow-stand-in")
    except BuildError as error:
        raise BuildError(f"{error} (see .venvs/pillow-stand-in.log)") from None
    return [found, *folder.glob("*.whl")]


def build_all(todo: list[str], maker: Maker) -> list[dict[str, Any]]:
    """Build these environments in parallel, because each spends most of its time downloading."""
    done = []
    make_small(VENVS / ".tools", lambda: maker)
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(todo) + 2) as pool:
        project = pool.submit(environment.editable_wheels)
        pillow_simd = pool.submit(instead_of_pillow)  # compiled during the downloads
        jobs = [
            pool.submit(environment.bring_up_to_date, kernel, maker, project, pillow_simd)
            for kernel in todo
        ]
        try:
            for job in concurrent.futures.as_completed(jobs):
                done.append(status := job.result())
                print(line(status), flush=True)
        except KeyboardInterrupt:
            environment.STOP.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return done


def line(status: dict[str, Any]) -> str:
    """One environment's line on the terminal."""
    good = "; ".join(filter(None, (status["pillow"], status["note"])))
    word, rest = ("ok", good) if status["ok"] else ("FAILED", status["reason"])
    return f"{status['kernel']:11} {word:6} {status['seconds']:5.0f} s  {status['form']}  {rest}"


ALONE = ("pillow-simd", "chainercv", "horovod-source", "rivals")
"""Installed in addition to a lock, which has their dependencies."""


def make_locks(uv: Path, python: str, more: list[str]) -> int:
    """Write all locks from their .in files; pins that still hold are kept, unless `more` is -U."""
    names = {p.stem for p in HERE.glob("*.in") if p.stem != "common"}
    for name in sorted(names, key="tools".__ne__):  # first the tools, which build the others
        alone = ["--no-deps"] * (name in ALONE)
        tools = ["--build-constraints", "tools.txt"] * (name != "tools")
        code = subprocess.run(
            [uv, "pip", "compile", f"{name}.in", "-o", f"{name}.txt", "--python", python,
             "--python-platform", "x86_64-manylinux_2_28", "--generate-hashes", "--no-header",
             "--quiet", *alone, *tools, *more], cwd=HERE, check=False,
        ).returncode  # fmt: skip
        print(f"{name:15} {'locked' if not code else 'FAILED'}", flush=True)
        if code:
            return 1
    return 0


# --- The command -----------------------------------------------------------------------------


def run_locked(
    wanted: list[str], options: argparse.Namespace, more: list[str], variants: dict[str, str]
) -> int:
    """Run the command; no other build runs in this checkout at the same time."""
    machine = kernels.this_machine(True if variants else options.gpu)
    if variants:
        machine = machine._replace(gpu=True, variants=tuple(variants.items()))
    if (processor := platform.machine()) != "x86_64":
        print(f"This machine is {processor}: no build was tried on it.", flush=True)
    anew = options.rebuild or options.lock
    todo = [k for k in wanted if anew or not environment.whole(k, machine)]
    for kernel in wanted if options.rebuild else []:
        environment.discard(kernel)
    failed = []
    if todo:
        maker = get_maker(machine, options.offline)
        if options.lock:
            return make_locks(maker.uv, maker.python, more)
        kind = "GPU" if any(kernels.variant(k, machine) != "cpu" for k in todo) else "CPU"
        print(f"Building {', '.join(todo)} in .venvs/ ({kind} variants) with {maker.python}; "
              "details in .venvs/<environment>.log", flush=True)  # fmt: skip
        failed = [one for one in build_all(todo, maker) if not one["ok"]]
    else:
        print(f"All environments are complete: {', '.join(wanted)}.")
    if environment.stamped("lab"):
        for kernel in (k for k in KERNELS if environment.stamped(k) and kernels.status(k)["ok"]):
            kernels.register(kernel, kernels.status(kernel)["form"])
    if machine.gpus:
        print(*kernels.prospects(wanted, machine), sep="\n", flush=True)
    return 1 if failed else 0


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose environments and their variants."""
    which = "use these environments (default: all but the optional ones)"
    parser.add_argument("--environments", metavar="A,B", help=which)
    variants = parser.add_mutually_exclusive_group()
    other = "use the GPU variants, for this GPU (compute capability and driver) of another machine"
    variants.add_argument("--gpu", nargs="?", const=True, metavar="7.0:535.129.03", help=other)
    variants.add_argument(
        "--cpu", action="store_false", dest="gpu", help="use the CPU variants, also with a GPU"
    )
    variants.set_defaults(gpu=None)


def chosen(options: argparse.Namespace, usual: list[str]) -> tuple[list[str], str]:
    """The chosen environments, and the mistake in the options ("" if there is none)."""
    named = usual if options.environments is None else options.environments.split(",")
    wanted = [k for k in dict.fromkeys(named) if k]
    if isinstance(options.gpu, str):
        if not (found := re.fullmatch(r"(\d{1,3})\.(\d):(\d{3}(\.\d+)*)", options.gpu, re.ASCII)):
            right = "give a compute capability and a driver version, as in 7.0:535.129.03"
            return wanted, f"--gpu {options.gpu}: {right}"
        capability = int(found[1]), int(found[2])
        options.gpu = kernels.Gpu("GPU elsewhere", capability, found[3])
    unknown = ", ".join(k for k in wanted if k not in KERNELS)
    if wanted and not unknown:
        return wanted, ""
    no = f"no environment named {unknown}" if unknown else "--environments names no environment"
    return wanted, f"{no}: choose from {', '.join(KERNELS)}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="build.py", description=(__doc__ or "").split("\n")[0])
    add_choices(parser)
    parser.add_argument("--rebuild", action="store_true", help="build complete ones again too")
    parser.add_argument(
        "--offline", type=Path, metavar="FOLDER", help="build from a folder of make wheels"
    )
    parser.add_argument("--show", action="store_true", help="show what runs on the GPUs here")
    lock = "write the locks again (other options go to uv)"
    parser.add_argument("--lock", action="store_true", help=lock)
    options, more = parser.parse_known_args(arguments)
    variants, usual = dict[str, str](), list(KERNELS) if options.lock else kernels.USUAL
    try:
        if options.offline is not None:
            variants = environment.read_wheels(options.offline)
            usual = list(variants)
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 2
    wanted, wrong = chosen(options, usual)
    if more and not options.lock:
        wrong = f"unknown arguments: {' '.join(more)}; --help lists the options"
    elif variants and (lacking := [kernel for kernel in wanted if kernel not in variants]):
        wrong = f"{options.offline}: has no packages for {', '.join(lacking)}, only for"
        wrong += f" {', '.join(variants)}"
    elif variants and (options.lock or options.gpu is not None):
        wrong = "--offline uses the variants in the folder: leave out --lock, --gpu and --cpu"
    if wrong:
        print(f"build.py: {wrong}", file=sys.stderr)
        return 2
    if options.show:
        try:
            print(*kernels.prospects(wanted, kernels.this_machine(options.gpu)), sep="\n")
        except gpus.DriverError as error:
            print(f"build.py: {error}", file=sys.stderr)
            return 2
        return 0
    return alone(lambda: run_locked(wanted, options, more, variants), "build.py")


def alone(work: Callable[[], int], command: str) -> int:
    """Wait for any other build in this checkout, do the work, and return the exit code."""
    try:
        VENVS.mkdir(exist_ok=True)
        with (VENVS / ".lock").open("w") as held:
            os.set_inheritable(held.fileno(), True)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                print("Waiting for another build of these environments to finish.", flush=True)
                fcntl.flock(held, fcntl.LOCK_EX)
            return work()
    except (gpus.DriverError, python311.NoPython, BuildError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{command}: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{command}: interrupted; run it again to continue", file=sys.stderr)
        return 130


def start(command: Callable[[list[str]], int]) -> None:
    """Run ``command`` with this process's arguments, and exit with its exit code."""
    if sys.version_info < (3, 9):  # noqa: UP036 (this Python is not the one in the environments)
        sys.exit("This Python is too old: run make envs PYTHON=... with Python 3.9 or newer.")
    for own in [name for name in os.environ if name.startswith("PYTHON")]:
        del os.environ[own]  # it could add other packages to the builds
    sys.exit(command(sys.argv[1:]))


if __name__ == "__main__":
    start(main)

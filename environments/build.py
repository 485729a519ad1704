#!/usr/bin/env python3
"""Makes the environments of the kernels under .venvs/, each from its lock (docs/environments.md).

    python3 environments/build.py                         all but optional ones; a second run finds
                                                          nothing to do
    python3 environments/build.py --kernels lab,pytorch   some of them
    python3 environments/build.py --rebuild               all anew, whatever is there
    python3 environments/build.py --show                  what runs on the GPUs here; makes nothing
    python3 environments/build.py --offline wheels        from a folder that download.py filled
    python3 environments/build.py --lock                  re-makes the locks (-U: newest versions)

Standard library only, on whatever Python 3 is at hand: it finds or fetches Python 3.11 and uv.
Exit code: 0 all there, 1 at least one could not be built (the others were), 2 could not start.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environment
import gpus
import installed
import kernels
import locks
import python311
import sources
import wheel_folder
from environment import BuildError, Maker
from kernels import HERE, KERNELS, ROOT, VENVS

# --- What several need -----------------------------------------------------------------------


def make_tools(maker: Maker) -> None:
    """The environment that builds from source, made once."""
    mark, lock = VENVS / ".tools" / "stamp", HERE / "tools.txt"
    same = mark.is_file() and mark.read_text() == lock.read_text()
    if same and environment.tools_python().exists():
        return
    shutil.rmtree(VENVS / ".tools", ignore_errors=True)
    run = environment.runner(VENVS / "tools.log")
    try:
        run([maker.uv, "venv", "--python", maker.python, VENVS / ".tools"])
        run([maker.uv, "pip", "sync", "--python", VENVS / ".tools", "--require-hashes", lock])
    except BuildError as error:
        raise BuildError(f"could not install the first packages: {error}") from None
    mark.write_text(lock.read_text())


def get_maker(machine: kernels.Machine, folder: wheel_folder.Folder | None = None) -> Maker:
    """Finds or fetches uv and Python 3.11. Raises python311.NoPython."""
    python311.set_up_uv(VENVS)
    if folder:
        wheel_folder.go_offline(folder)
    python = python311.find_python()
    uv = python311.find_uv(VENVS, python)
    if not python and folder:
        python = wheel_folder.bring_python(folder, VENVS)
    return Maker(uv, python or python311.fetch_python(uv), machine, folder)


def make_pillow_simd() -> Path:
    """The wheel that computes in Pillow's place. Raises BuildError: why it cannot be had."""
    if not sources.compiler() and sources.pillow_simd_there(environment.wheels()) is None:
        raise BuildError("no C compiler for pillow-simd (Debian: gcc)")
    log = VENVS / "pillow-simd.log"
    run = environment.runner(log)
    try:
        return sources.pillow_simd(environment.tools_python(), environment.wheels(), run)
    except BuildError:
        raise BuildError(sources.why_no_pillow_simd(log.read_text())) from None


def instead_of_pillow() -> list[Path]:
    """pillow-simd, and a package of Pillow's name and version that needs it. Raises BuildError."""
    found, folder = make_pillow_simd(), environment.wheels() / "stand-in"
    shutil.rmtree(folder, ignore_errors=True)  # one of another version would be taken as well
    run = environment.runner(VENVS / "pillow-stand-in.log")
    try:
        sources.wheel(environment.tools_python(), folder, run, HERE / "pillow-stand-in")
    except BuildError as error:
        raise BuildError(f"{error} (see .venvs/pillow-stand-in.log)") from None
    return [found, *folder.glob("*.whl")]


def build_all(todo: list[str], maker: Maker) -> list[dict[str, Any]]:
    """Builds those, all at once: they wait for the network more than for each other."""
    done = []
    make_tools(maker)
    if maker.folder:
        wheel_folder.bring_built(maker.folder, environment.tools_python(), environment.wheels())
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(todo) + 2) as pool:
        project = pool.submit(environment.editable_wheels)
        pillow_simd = pool.submit(instead_of_pillow)  # compiled beside the downloads
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


def what_is_slow() -> str:
    """One line where data_prep has no compiled part; empty where it has. Nothing needs it."""
    if any((ROOT / "data_prep").glob("_grey*.so")):
        return ""
    if sources.compiler():
        return (
            "data_prep's compiled part is missing (see .venvs/project.log): preparing images takes"
            " two to three times as long without it."
        )
    return (
        "Without a C compiler preparing images takes two to three times as long: install one"
        " (Debian: gcc) and run make envs again."
    )


# --- The command -----------------------------------------------------------------------------


def run_locked(
    wanted: list[str],
    options: argparse.Namespace,
    more: list[str],
    folder: wheel_folder.Folder | None,
) -> int:
    """The command, when no other build is going on here."""
    machine = kernels.this_machine(True if folder else options.gpu)
    if folder:
        machine = machine._replace(gpu=True, forms=tuple(folder.forms.items()))
    anew = list(wanted) if options.rebuild else []
    for kernel in wanted:
        if not anew and environment.whole(kernel, machine) and (wrong := installed.damage(kernel)):
            print(f"{kernel}: {wrong}, so it is made anew", flush=True)
            anew.append(kernel)
    todo = [k for k in wanted if options.lock or k in anew or not environment.whole(k, machine)]
    if folder and todo:
        print(f"Checking {folder.path}", flush=True)
        wheel_folder.check(folder, todo)
    for kernel in anew:
        environment.discard(kernel)
    failed = []
    if todo:
        maker = get_maker(machine, folder)
        if options.lock:
            return locks.make(maker.uv, maker.python, wanted, more)
        forms = "GPU" if any(kernels.form(k, machine) != "cpu" for k in todo) else "CPU"
        print(f"Making {', '.join(todo)} in .venvs/ ({forms} forms) with {maker.python}; "
              "details in .venvs/<kernel>.log", flush=True)  # fmt: skip
        failed = [one for one in build_all(todo, maker) if not one["ok"]]
    else:
        print(f"Environments: {', '.join(wanted)} are there.")
    if slow := what_is_slow():
        print(slow)
    if environment.stamped("lab"):
        for kernel in (k for k in KERNELS if environment.stamped(k) and kernels.status(k)["ok"]):
            kernels.register(kernel, kernels.status(kernel)["form"])
    if machine.gpus:
        print(*kernels.prospects(wanted, machine), sep="\n", flush=True)
    return 1 if failed else 0


def add_choices(parser: argparse.ArgumentParser) -> None:
    """The options that say which environments are meant."""
    parser.add_argument("--kernels", metavar="A,B", help="these; else all but optional ones")
    forms = parser.add_mutually_exclusive_group()
    other = "the GPU forms, also without a GPU; or those for this compute capability and driver"
    forms.add_argument("--gpu", nargs="?", const=True, metavar="7.0:535.129.03", help=other)
    forms.add_argument(
        "--cpu", action="store_false", dest="gpu", help="the CPU forms, also with a GPU"
    )
    forms.set_defaults(gpu=None)


def chosen(options: argparse.Namespace, usual: list[str]) -> tuple[list[str], str]:
    """The kernels that are meant, and what is wrong with the options ("" if nothing).

    A GPU that was named becomes a Gpu.
    """
    named = usual if options.kernels is None else options.kernels.split(",")
    wanted = [k for k in dict.fromkeys(named) if k]
    if isinstance(options.gpu, str):
        if not (found := re.fullmatch(r"(\d{1,3})\.(\d):(\d{3}(\.\d+)*)", options.gpu, re.ASCII)):
            return wanted, (
                f"--gpu {options.gpu}: give compute capability and driver, such as 7.0:535.129.03, "
                "or --gpu alone"
            )
        capability = int(found[1]), int(found[2])
        options.gpu = kernels.Gpu("GPU elsewhere", capability, found[3])
    unknown = ", ".join(k for k in wanted if k not in KERNELS)
    if wanted and not unknown:
        return wanted, ""
    no = f"no kernel named {unknown}" if unknown else "no kernel named"
    return wanted, f"{no}: choose among {', '.join(KERNELS)}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="build.py", description=(__doc__ or "").split("\n")[0])
    add_choices(parser)
    parser.add_argument("--rebuild", action="store_true", help="make them again, even if whole")
    parser.add_argument("--offline", metavar="FOLDER", help="from what make wheels put there")
    parser.add_argument("--show", action="store_true", help="what runs on the GPUs here, no more")
    parser.add_argument("--lock", action="store_true", help="re-make the locks (more goes to uv)")
    options, more = parser.parse_known_args(arguments)
    folder, usual = None, list(KERNELS) if options.lock else kernels.USUAL
    try:
        if options.offline is not None:
            folder = wheel_folder.read(Path(options.offline))
            usual = list(folder.forms)
    except wheel_folder.NotUsable as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 2
    wanted, wrong = chosen(options, usual)
    if more and not options.lock:
        wrong = f"what is {' '.join(more)}?"
    elif folder and (options.lock or options.gpu is not None):
        wrong = "--offline takes the forms that the folder holds: leave out --lock, --gpu and --cpu"
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
    return alone(lambda: run_locked(wanted, options, more, folder), "build.py")


def alone(work: Callable[[], int], command: str) -> int:
    """Does the work once no other build is going on here; returns the exit code.

    What a user can do something about (a full disk, folders of somebody else, a file in the way)
    is one line.
    """
    try:
        VENVS.mkdir(exist_ok=True)
        with (VENVS / ".lock").open("w") as held:
            os.set_inheritable(held.fileno(), True)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                print("Waiting for another build of these environments to end.", flush=True)
                fcntl.flock(held, fcntl.LOCK_EX)
            return work()
    except (gpus.DriverError, python311.NoPython, wheel_folder.NotUsable, BuildError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{command}: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{command}: interrupted; run it again to go on", file=sys.stderr)
        return 130


def start(command: Callable[[list[str]], int]) -> None:
    """Runs a command as a program of its own."""
    if sys.version_info < (3, 9):  # noqa: UP036 (what runs this need not be what it makes)
        sys.exit("needs Python 3.9 or newer to run (PYTHON=... make envs)")
    for own in [name for name in os.environ if name.startswith("PYTHON")]:
        del os.environ[own]  # it would bring other packages into what is built
    sys.exit(command(sys.argv[1:]))


if __name__ == "__main__":
    start(main)

#!/usr/bin/env python3
"""Makes the environments of the kernels under .venvs/, each from its lock (docs/environments.md).

    python3 environments/build.py                         all; a second run finds nothing to do
    python3 environments/build.py --kernels lab,pytorch   some of them
    python3 environments/build.py --rebuild               all anew, whatever is there
    python3 environments/build.py --show                  what runs on the GPUs here; makes nothing
    python3 environments/build.py --lock                  re-makes the locks (-U: newest versions)

Standard library only, on whatever Python 3 is at hand: it finds or fetches Python 3.11 and uv.
Exit code: 0 all there, 1 at least one could not be built (the others were), 2 could not start.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import hashlib
import inspect
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import installed
import kernels
import locks
import python311
import sources
from kernels import HERE, KERNELS, ROOT, VENVS

STOP = threading.Event()  # set by Ctrl-C: start nothing more


class BuildError(Exception):
    """An environment could not be built; its text is one line that says why."""


class Maker(NamedTuple):
    """What environments are made with."""

    uv: Path
    python: str
    machine: kernels.Machine


# --- Is there anything to do? ----------------------------------------------------------------


def stamp(kernel: str, machine: kernels.Machine) -> dict[str, str]:
    """What a kernel's environment is made of. Another stamp, another build.

    "project" is apart: when only the project's own package changed, its metadata or what is
    compiled of it, only that is installed again. (Its Python files are used where they are.)
    """
    kind = kernels.form(kernel, machine)
    parts = [kernels.lock_of(kernel, kind), Path(sources.__file__)]
    parts += [
        HERE / "tools.txt",
        HERE / "pillow-simd.txt",
        HERE / "pillow-stand-in" / "pyproject.toml",
    ]
    parts += [HERE / "chainercv.txt"] * (kernel == "chainer")
    parts += [HERE / "horovod-source.txt"] * (kernel == "horovod")
    recipe = hashlib.sha256(f"{ROOT} {kind} {python311.VERSION} {inspect.getsource(make)}".encode())
    # The instruction set, and a compiler that has come or gone, decide what takes Pillow's place.
    recipe.update(f"{sources.instruction_set()} {bool(sources.compiler())}".encode())
    for part in parts:
        recipe.update(part.read_bytes())
    project = hashlib.sha256()
    for part in [
        ROOT / "pyproject.toml",
        *sorted(ROOT.glob("setup.py")),
        *sorted(ROOT.glob("gpumon/pyproject.toml")),
        *sorted(ROOT.glob("*/*.c")),
    ]:
        project.update(part.read_bytes())
    return {"recipe": recipe.hexdigest(), "project": project.hexdigest()}


def stamped(kernel: str) -> dict[str, str]:
    """The stamp of what is in .venvs/<kernel>; empty if there is nothing, or nothing whole."""
    if not (VENVS / kernel / "bin" / "python").exists():  # the Python it stands on may have gone
        return {}
    return kernels.read_json(VENVS / kernel / "stamp.json")


def whole(kernel: str, machine: kernels.Machine) -> bool:
    return stamped(kernel) == stamp(kernel, machine) and kernels.status(kernel)["ok"]


def discard(kernel: str) -> None:
    """Have an environment made from nothing."""
    (VENVS / kernel / "stamp.json").unlink(missing_ok=True)


# --- Making one ------------------------------------------------------------------------------


def make(kernel: str, maker: Maker, pillow_simd: concurrent.futures.Future[Path]) -> str:
    """Makes an environment from nothing and returns what took Pillow's place.

    Its log is .venvs/<kernel>.log. Raises BuildError.
    """
    venv, kind = VENVS / kernel, kernels.form(kernel, maker.machine)
    run = runner(VENVS / f"{kernel}.log")
    pip = [maker.uv, "pip"]
    if kernel == "horovod" and (lacking := sources.why_no_horovod()):
        raise BuildError(lacking)
    shutil.rmtree(venv, ignore_errors=True)
    run([maker.uv, "venv", "--python", maker.python, "--prompt", kernel, venv])
    run([*pip, "sync", "--python", venv, "--require-hashes", "--build-constraints",
         HERE / "tools.txt", kernels.lock_of(kernel, kind)])  # fmt: skip
    local: list[str | Path] = ["--editable", ROOT]
    if kernel == "chainer":
        local.append(sources.chainercv(tools_python(), wheels(), run))
    if kernel == "horovod":
        local.append(sources.horovod(venv / "bin" / "python", wheels(), run))
    try:
        local += [pillow_simd.result(), HERE / "pillow-stand-in"]
        pillow = f"{sources.PILLOW_SIMD} ({sources.instruction_set()})"
    except BuildError as reason:
        pillow = f"{sources.PILLOW} ({reason})"
    install_local(venv, maker, run, local)
    run([*pip, "check", "--python", venv])
    check = f"import PIL.Image, {KERNELS[kernel].imports}"
    run([venv / "bin" / "python", "-c", check], kernels.activation(kernel, kind))
    return pillow


#: One at a time: each environment's editable install compiles into the same file of the checkout.
IN_CHECKOUT = threading.Lock()


def install_local(venv: Path, maker: Maker, run: sources.Run, what: list[str | Path]) -> None:
    """Installs what the lock does not hold, and gpumon, which the project depends on by its folder.

    Without their dependencies: those the lock holds.
    """
    with IN_CHECKOUT:
        run([maker.uv, "pip", "install", "--python", venv, "--no-deps", "--build-constraints",
             HERE / "tools.txt", "--editable", ROOT / "gpumon", *what])  # fmt: skip


def bring_up_to_date(
    kernel: str, maker: Maker, pillow_simd: concurrent.futures.Future[Path]
) -> dict[str, Any]:
    """Makes an environment, or installs the project in it anew; keeps and returns its status."""
    began, venv = time.monotonic(), VENVS / kernel
    want, have = stamp(kernel, maker.machine), stamped(kernel)
    status = kernels.status(kernel)
    pillow = status["pillow"]
    status.update(ok=False, form=kernels.form(kernel, maker.machine), reason="interrupted")
    # From here to the end it is not whole, and whoever looks must see that.
    (venv / "stamp.json").unlink(missing_ok=True)
    kernels.unregister(kernel)
    kernels.write_json(kernels.status_file(kernel), status)
    try:
        if have.get("recipe") == want["recipe"] and pillow:
            run = runner(VENVS / f"{kernel}.log")
            install_local(venv, maker, run, ["--editable", ROOT])
        else:
            pillow = make(kernel, maker, pillow_simd)
        if wrong := installed.damage(kernel):
            raise BuildError(f"{wrong}, in uv's cache too: {maker.uv} cache clean, then again")
        kernels.write_json(venv / "stamp.json", want)
        status.update(ok=True, reason="", pillow=pillow)
    except (BuildError, concurrent.futures.CancelledError) as error:
        status.update(reason=str(error) or "interrupted", pillow=None)
    status["seconds"] = round(time.monotonic() - began, 1)
    kernels.write_json(kernels.status_file(kernel), status)
    return status


def runner(log: Path) -> sources.Run:
    """A function that runs a command with its output in `log`; raises BuildError if it fails."""
    log.write_text("")

    def run(command: list[str | Path], env: dict[str, str] | None = None) -> None:
        if STOP.is_set():
            raise BuildError("interrupted")
        with log.open("a") as out:
            print("$", *command, file=out, flush=True)
            # close_fds: the lock of main() stays held until the last command has ended.
            code = subprocess.run(
                [str(word) for word in command], env={**os.environ, **(env or {})}, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, close_fds=False, check=False,
            ).returncode  # fmt: skip
        if STOP.is_set():
            raise BuildError("interrupted")
        if code:
            raise BuildError(reason_in(log.read_text()) or f"exit code {code}")

    return run


def reason_in(log: str) -> str:
    """The line of a log that says best why it failed: uv's and pip's cause, or the last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    causes = [line for line in lines if line.lower().startswith(("error:", "cause:", "caused by:"))]
    return (causes or lines or [""])[-1][:300]


# --- What several need -----------------------------------------------------------------------


def wheels() -> Path:
    (VENVS / ".wheels").mkdir(parents=True, exist_ok=True)
    return VENVS / ".wheels"


def tools_python() -> Path:
    return VENVS / ".tools" / "bin" / "python"


def make_tools(maker: Maker) -> None:
    """The environment that builds from source, made once."""
    mark, lock = VENVS / ".tools" / "stamp", HERE / "tools.txt"
    if tools_python().exists() and mark.is_file() and mark.read_text() == lock.read_text():
        return
    shutil.rmtree(VENVS / ".tools", ignore_errors=True)
    run = runner(VENVS / "tools.log")
    try:
        run([maker.uv, "venv", "--python", maker.python, VENVS / ".tools"])
        run([maker.uv, "pip", "sync", "--python", VENVS / ".tools", "--require-hashes", lock])
    except BuildError as error:
        raise BuildError(f"could not install the first packages: {error}") from None
    mark.write_text(lock.read_text())


def make_pillow_simd() -> Path:
    """The wheel that takes Pillow's place. Raises BuildError with the reason it cannot be had."""
    if not sources.compiler():
        raise BuildError("no C compiler for pillow-simd (Debian: gcc)")
    log = VENVS / "pillow-simd.log"
    try:
        return sources.pillow_simd(tools_python(), wheels(), runner(log))
    except BuildError:
        raise BuildError(sources.why_no_pillow_simd(log.read_text())) from None


def build_all(todo: list[str], maker: Maker) -> list[dict[str, Any]]:
    """Builds those, all at once: they wait for the network more than for each other."""
    done = []
    make_tools(maker)
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(todo) + 1) as pool:
        pillow_simd = pool.submit(make_pillow_simd)  # a minute of compiling beside the downloads
        jobs = [pool.submit(bring_up_to_date, kernel, maker, pillow_simd) for kernel in todo]
        try:
            for job in concurrent.futures.as_completed(jobs):
                done.append(one := job.result())
                print(line(one), flush=True)
        except KeyboardInterrupt:
            STOP.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return done


def line(status: dict[str, Any]) -> str:
    """One environment's line on the terminal."""
    word, rest = ("ok", status["pillow"]) if status["ok"] else ("FAILED", status["reason"])
    return f"{status['kernel']:11} {word:6} {status['seconds']:5.0f} s  {status['form']}  {rest}"


def what_is_slow() -> str:
    """One line where data_prep has no compiled part; empty where it has. Nothing needs it."""
    if any((ROOT / "data_prep").glob("_grey*.so")):
        return ""
    if sources.compiler():
        return (
            "data_prep's compiled part is missing (see .venvs/lab.log): preparing images takes"
            " two to three times as long without it."
        )
    return (
        "Without a C compiler preparing images takes two to three times as long: install one"
        " (Debian: gcc) and run make envs again."
    )


# --- The command -----------------------------------------------------------------------------


def run_locked(wanted: list[str], options: argparse.Namespace, more: list[str]) -> int:
    """The command, when no other build is going on here."""
    machine = kernels.this_machine(options.gpu)
    for kernel in wanted:
        if options.rebuild:
            discard(kernel)
        elif whole(kernel, machine) and (wrong := installed.damage(kernel)):
            print(f"{kernel}: {wrong}, so it is made anew", flush=True)
            discard(kernel)
    todo = [k for k in wanted if options.lock or not whole(k, machine)]
    failed = []
    if todo:
        python311.set_up_uv(VENVS)
        python = python311.find_python()
        uv = python311.find_uv(VENVS, python)
        python = python or python311.fetch_python(uv)
        if options.lock:
            return locks.make(uv, python, wanted, more)
        print(f"Making {', '.join(todo)} in .venvs/ ({'GPU' if machine.gpu else 'CPU'} forms) "
              f"with {python}; details in .venvs/<kernel>.log", flush=True)  # fmt: skip
        failed = [one for one in build_all(todo, Maker(uv, python, machine)) if not one["ok"]]
    else:
        print(f"Environments: {', '.join(wanted)} are there.")
    if slow := what_is_slow():
        print(slow)
    if stamped("lab"):
        for kernel in (k for k in KERNELS if stamped(k) and kernels.status(k)["ok"]):
            kernels.register(kernel, kernels.status(kernel)["form"])
    if machine.gpus:
        print(*kernels.prospects(wanted, machine), sep="\n", flush=True)
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="build.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kernels", metavar="A,B", help="these; else all but optional ones")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--gpu", action="store_true", default=None, help="the GPU forms, whatever")
    forms.add_argument("--cpu", action="store_false", dest="gpu", help="the CPU forms, whatever")
    parser.add_argument("--rebuild", action="store_true", help="make them anew, whatever is there")
    parser.add_argument("--show", action="store_true", help="what runs on the GPUs here, no more")
    parser.add_argument("--lock", action="store_true", help="re-make the locks (more goes to uv)")
    options, more = parser.parse_known_args(arguments)
    usual = list(KERNELS) if options.lock else kernels.USUAL
    named = usual if options.kernels is None else options.kernels.split(",")
    wanted = [k for k in dict.fromkeys(named) if k]
    wrong = f"what is {' '.join(more)}?" if more and not options.lock else ""
    if unknown := [k for k in wanted if k not in KERNELS]:
        wrong = f"no kernel named {', '.join(unknown)}: choose among {', '.join(KERNELS)}"
    elif not wanted:
        wrong = f"no kernel named: choose among {', '.join(KERNELS)}"
    if wrong:
        print(f"build.py: {wrong}", file=sys.stderr)
        return 2
    if options.show:
        print(*kernels.prospects(wanted, kernels.this_machine(options.gpu)), sep="\n")
        return 0
    try:
        return build_here(wanted, options, more)
    except OSError as error:  # a full disk, folders of somebody else, a file in the way
        where = f"{error.filename}: " if error.filename else ""
        print(f"build.py: {where}{error.strerror or error}", file=sys.stderr)
        return 2


def build_here(wanted: list[str], options: argparse.Namespace, more: list[str]) -> int:
    """The command, once no other build is going on here. Raises OSError for what stands in .venvs'
    way."""
    VENVS.mkdir(exist_ok=True)
    with (VENVS / ".lock").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        try:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                print("Waiting for another build of these environments to end.", flush=True)
                fcntl.flock(held, fcntl.LOCK_EX)
            return run_locked(wanted, options, more)
        except (python311.NoPython, BuildError) as error:
            print(f"build.py: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("build.py: interrupted; run it again to go on", file=sys.stderr)
            return 130


if __name__ == "__main__":
    if sys.version_info < (3, 9):  # noqa: UP036 (what runs this need not be what it makes)
        sys.exit("build.py: needs Python 3.9 or newer to run (PYTHON=... make envs)")
    for own in [name for name in os.environ if name.startswith("PYTHON")]:
        del os.environ[own]  # it would bring other packages into what is built
    sys.exit(main(sys.argv[1:]))

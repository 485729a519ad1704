"""One environment: what it is made of, whether it is there and whole, and how it is made.

``build.py`` makes those that somebody wants.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import inspect
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import installed
import kernels
import python311
import sources
import wheel_folder
from kernels import HERE, KERNELS, ROOT, VENVS

if TYPE_CHECKING:  # no Python before 3.9 could read it
    Wheels = concurrent.futures.Future[list[Path]]  # that are being built, for all environments

STOP = threading.Event()  # set by Ctrl-C: start nothing more


class BuildError(Exception):
    """An environment could not be built; its text is one line that says why."""


class Maker(NamedTuple):
    """What environments are made with."""

    uv: Path
    python: str
    machine: kernels.Machine
    folder: wheel_folder.Folder | None = None  # where everything comes from, without a network

    def lock(self, kernel: str) -> Path:
        found = kernels.lock_of(kernel, kernels.form(kernel, self.machine))
        return wheel_folder.lock_with_built(found, self.folder, wheels()) if self.folder else found


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
    project = hashlib.sha256(inspect.getsource(editable_wheels).encode())
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


def make(kernel: str, maker: Maker, project: Wheels, pillow_simd: Wheels) -> tuple[str, str]:
    """Makes an environment from nothing.

    Returns what took Pillow's place, and what could not be tried here ("" if nothing). Its log is
    .venvs/<kernel>.log. Raises BuildError.
    """
    venv, kind = VENVS / kernel, kernels.form(kernel, maker.machine)
    run = runner(VENVS / f"{kernel}.log")
    pip = [maker.uv, "pip"]
    if kernel == "horovod" and (lacking := sources.why_no_horovod()):
        raise BuildError(lacking)
    shutil.rmtree(venv, ignore_errors=True)
    run([maker.uv, "venv", "--python", maker.python, "--prompt", kernel, venv])
    run([*pip, "sync", "--python", venv, "--require-hashes", "--build-constraints",
         HERE / "tools.txt", maker.lock(kernel)])  # fmt: skip
    local = [*project.result()]
    if kernel == "chainer":
        local.append(sources.chainercv(tools_python(), wheels(), run))
    if kernel == "horovod":
        local.append(sources.horovod(venv / "bin" / "python", wheels(), run))
    try:
        local += pillow_simd.result()
        pillow = f"{sources.PILLOW_SIMD} ({sources.instruction_set()})"
    except BuildError as reason:
        pillow = f"{sources.PILLOW} ({reason})"
    install_wheels(venv, maker, run, local)
    run([*pip, "check", "--python", venv])
    check = f"import PIL.Image, {KERNELS[kernel].imports}"
    try:
        run([venv / "bin" / "python", "-c", check], kernels.activation(kernel, kind))
    except BuildError as error:
        if kind == "cpu" or kernels.DRIVER not in str(error):
            raise
        # MXNet's needs it. A login node has none, and its compute nodes have.
        return pillow, f"not imported: NVIDIA's driver ({kernels.DRIVER}) is missing here"
    return pillow, ""


def install_wheels(venv: Path, maker: Maker, run: sources.Run, what: list[Path]) -> None:
    """Installs what the lock does not hold; without its dependencies, for those the lock holds."""
    run([maker.uv, "pip", "install", "--python", venv, "--no-deps", "--reinstall", *what])


def editable_wheels() -> list[Path]:
    """Wheels of the project and of gpumon that hold no code, but point to this checkout.

    Built once, for every environment. Raises BuildError.
    """
    folder = wheels() / "editable"
    shutil.rmtree(folder, ignore_errors=True)
    run = runner(VENVS / "project.log")
    build = (
        "import os, sys; from setuptools.build_meta import build_editable;"
        " os.chdir(sys.argv[1]); build_editable(sys.argv[2])"
    )
    try:
        for source in (ROOT / "gpumon", ROOT):
            run([tools_python(), "-c", build, source, folder / source.name])
    except BuildError as error:
        raise BuildError(f"{error} (see .venvs/project.log)") from None
    return sorted(folder.glob("*/*.whl"))


def bring_up_to_date(
    kernel: str, maker: Maker, project: Wheels, pillow_simd: Wheels
) -> dict[str, Any]:
    """Makes an environment, or installs the project in it anew; keeps and returns its status."""
    began, venv = time.monotonic(), VENVS / kernel
    want, have = stamp(kernel, maker.machine), stamped(kernel)
    status = kernels.status(kernel)
    pillow, note = status["pillow"], status["note"]
    status.update(ok=False, form=kernels.form(kernel, maker.machine), reason="interrupted")
    # From here to the end it is not whole, and whoever looks must see that.
    (venv / "stamp.json").unlink(missing_ok=True)
    kernels.unregister(kernel)
    kernels.write_json(kernels.status_file(kernel), status)
    try:
        if have.get("recipe") == want["recipe"] and pillow:
            run = runner(VENVS / f"{kernel}.log")
            install_wheels(venv, maker, run, project.result())
        else:
            pillow, note = make(kernel, maker, project, pillow_simd)
        if wrong := installed.damage(kernel):
            raise BuildError(f"{wrong}, in uv's cache too: {maker.uv} cache clean, then again")
        kernels.write_json(venv / "stamp.json", want)
        status.update(ok=True, reason="", pillow=pillow, note=note)
    except (BuildError, concurrent.futures.CancelledError) as error:
        status.update(reason=str(error) or "interrupted", pillow=None, note="")
    status["seconds"] = round(time.monotonic() - began, 1)
    kernels.write_json(kernels.status_file(kernel), status)
    return status


# --- What it is made with ----------------------------------------------------------------------


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


def wheels() -> Path:
    (VENVS / ".wheels").mkdir(parents=True, exist_ok=True)
    return VENVS / ".wheels"


def tools_python() -> Path:
    return VENVS / ".tools" / "bin" / "python"

"""Build one environment, and decide whether it is complete and up to date."""

from __future__ import annotations

import concurrent.futures
import hashlib
import inspect
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import kernels
import python311
import sources
from kernels import HERE, KERNELS, ROOT, VENVS

if TYPE_CHECKING:  # Python before 3.9 cannot evaluate it
    Wheels = concurrent.futures.Future[list[Path]]  # wheels in the making, for all environments

STOP = threading.Event()  # set by Ctrl-C: start no further command


class BuildError(Exception):
    """An environment could not be built; the message is one line with the reason."""


class Maker(NamedTuple):
    """The programs and sources that environments are built with."""

    uv: Path
    python: str
    machine: kernels.Machine


# --- Is there anything to do? ----------------------------------------------------------------


def stamp(kernel: str, machine: kernels.Machine) -> dict[str, str]:
    """Hashes of everything that an environment is built from; it is rebuilt when they change.

    If only "project" changed (its metadata or C code), only the project is installed again.
    """
    kind = kernels.variant(kernel, machine)
    names = ["tools.txt", "pillow-simd.txt", "pillow-stand-in/pyproject.toml"]
    names += ["chainercv.txt"] * (kernel == "chainer")
    names += ["horovod-source.txt"] * (kernel == "horovod")
    parts = [kernels.lock_of(kernel, kind), Path(sources.__file__), *(HERE / n for n in names)]
    recipe = hashlib.sha256(f"{ROOT} {kind} {python311.VERSION} {inspect.getsource(make)}".encode())
    # The instruction set and the presence of a compiler decide which package replaces Pillow.
    recipe.update(f"{sources.instruction_set()} {bool(sources.compiler())}".encode())
    for part in parts:
        recipe.update(part.read_bytes())
    project = hashlib.sha256(inspect.getsource(editable_wheels).encode())
    for pattern in ("pyproject.toml", "setup.py", "gpumon/pyproject.toml", "*/*.c"):
        for part in sorted(ROOT.glob(pattern)):
            project.update(part.read_bytes())
    return {"recipe": recipe.hexdigest(), "project": project.hexdigest()}


def stamped(kernel: str) -> dict[str, str]:
    """The stamp of .venvs/<kernel>; empty if the environment is missing or incomplete."""
    if not (VENVS / kernel / "bin" / "python").exists():  # its base Python may have been removed
        return {}
    return kernels.read_json(VENVS / kernel / "stamp.json")


def whole(kernel: str, machine: kernels.Machine) -> bool:
    return stamped(kernel) == stamp(kernel, machine) and kernels.status(kernel)["ok"]


def discard(kernel: str) -> None:
    """Mark an environment for a complete rebuild."""
    (VENVS / kernel / "stamp.json").unlink(missing_ok=True)


# --- Building an environment -----------------------------------------------------------------


def make(kernel: str, maker: Maker, project: Wheels, pillow_simd: Wheels) -> tuple[str, str]:
    """Make an environment; return what took Pillow's place, and what was not tried here, or ""."""
    venv, kind = VENVS / kernel, kernels.variant(kernel, maker.machine)
    run = runner(VENVS / f"{kernel}.log")
    pip = [maker.uv, "pip"]
    if kernel == "horovod" and (lacking := sources.why_no_horovod()):
        raise BuildError(lacking)
    shutil.rmtree(venv, ignore_errors=True)
    run([maker.uv, "venv", "--python", maker.python, "--prompt", kernel, venv])
    run([*pip, "sync", "--python", venv, "--require-hashes", "--build-constraints",
         HERE / "tools.txt", kernels.lock_of(kernel, kind)])  # fmt: skip
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
    """Install packages that are not in the lock; their dependencies are."""
    run([maker.uv, "pip", "install", "--python", venv, "--no-deps", "--reinstall", *what])


def editable_wheels() -> list[Path]:
    """Wheels of the project and of gpumon that hold no code, but point to this checkout."""
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
    """Build an environment, or only install the project again; save and return its status."""
    began, venv = time.monotonic(), VENVS / kernel
    want, have = stamp(kernel, maker.machine), stamped(kernel)
    status = kernels.status(kernel)
    pillow, note = status["pillow"], status["note"]
    status.update(ok=False, form=kernels.variant(kernel, maker.machine), reason="interrupted")
    # Other processes must see that the environment is incomplete from here to the end.
    (venv / "stamp.json").unlink(missing_ok=True)
    kernels.unregister(kernel)
    kernels.write_json(kernels.status_file(kernel), status)
    try:
        if have.get("recipe") == want["recipe"] and pillow:
            run = runner(VENVS / f"{kernel}.log")
            install_wheels(venv, maker, run, project.result())
        else:
            pillow, note = make(kernel, maker, project, pillow_simd)
        kernels.write_json(venv / "stamp.json", want)
        status.update(ok=True, reason="", pillow=pillow, note=note)
    except (BuildError, concurrent.futures.CancelledError) as error:
        status.update(reason=str(error) or "interrupted", pillow=None, note="")
    status["seconds"] = round(time.monotonic() - began, 1)
    kernels.write_json(kernels.status_file(kernel), status)
    return status


# --- Without a network ------------------------------------------------------------------------

INDEX = "wheels.json"
"""The environments that the folder has packages for, and their variants."""


def locks_of(variants: Mapping[str, str]) -> list[Path]:
    """Every lock that these variants of environments are built from."""
    names = ["uv.txt", "tools.txt", "pillow-simd.txt"]
    names += ["chainercv.txt"] * ("chainer" in variants)
    names += ["horovod-source.txt"] * ("horovod" in variants)
    return [HERE / name for name in names] + [kernels.lock_of(*both) for both in variants.items()]


def read_wheels(path: Path) -> dict[str, str]:
    """The variant of each environment that a folder of `make wheels` has packages for."""
    if not path.is_dir():
        raise BuildError(f"{path}: no such folder (make wheels creates one, with a network)")
    if variants := kernels.read_json(path / INDEX):
        return variants
    raise BuildError(
        f"{path / INDEX}: missing or damaged: run make wheels again, or copy the folder again"
    )


def use_wheels(folder: Path) -> None:
    """Make pip and uv use only the folder from here on, whatever their settings are."""
    # A file URL, because pip ends a folder's name at a space, and uv at a comma.
    address = folder.resolve().as_uri()
    os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=address)
    os.environ.update(UV_OFFLINE="1", UV_FIND_LINKS=address, UV_PYTHON_DOWNLOADS="never")


# --- Helpers -----------------------------------------------------------------------------------


def runner(log: Path) -> sources.Run:
    """Return a function that runs a command, logs its output, and raises BuildError."""
    log.write_text("")

    def run(command: list[str | Path], env: dict[str, str] | None = None) -> None:
        if STOP.is_set():
            raise BuildError("interrupted")
        with log.open("a") as out:
            print("$", *command, file=out, flush=True)
            # close_fds=False: the commands inherit main()'s lock and hold it until they end.
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
    """The line of a log that best explains a failure: the cause from uv or pip, else the last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    causes = [line for line in lines if line.lower().startswith(("error:", "cause:", "caused by:"))]
    reason = (causes or lines or [""])[-1][:300]
    if found := re.search(r"(?:Failed to fetch: `|request for url \()([^`)]+)", log):
        reason = f"{found[1]}: {reason}; for a mirror, set UV_DEFAULT_INDEX or pip's index-url"
    return reason


def wheels() -> Path:
    (VENVS / ".wheels").mkdir(parents=True, exist_ok=True)
    return VENVS / ".wheels"


def tools_python() -> Path:
    return VENVS / ".tools" / "bin" / "python"

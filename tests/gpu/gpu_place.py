"""What runs the check: this machine's own Python, and beside it, in a folder, what that lacks.

Standard library only: it begins where nothing of ours is installed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / "environments"
WHEELS = HERE / "wheels"

sys.path[:0] = [str(ROOT), str(ENVIRONMENTS)]

from kernels import KERNELS, write_json  # noqa: E402

RUNNER = "jinja2", "papermill", "rich"
"""What `compare` needs beside what every kernel does."""
BESIDE = {"jax": "grain"}
"""What a framework's notebook loads images with, where the framework does not bring it."""
RIVALS = "timm", "nvitop"
"""What benchmarks measure ours against where it is there."""


class PlaceError(Exception):
    """The check cannot run here; its text is one line that says why, and what to do."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a command in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help shows the options)\n")


def needs(have: Callable[[str], bool]) -> list[str]:
    """The packages that the notebooks and their runner need beside the frameworks we ``have``."""
    loaders = {loader for framework, loader in BESIDE.items() if have(framework)}
    return sorted(_named("common") | loaders | set(RUNNER))


def _named(name: str) -> set[str]:
    """The packages that a file of ``environments/`` names itself, pip and pytest apart."""
    lines = (ENVIRONMENTS / f"{name}.in").read_text(encoding="utf-8").splitlines()
    return {re.split(r"[^\w.-]", line)[0] for line in lines} - {"", "-r", "pip", "pytest"}


def differing(kernel: str) -> list[str]:
    """What is installed here in another version than a kernel's lock has, of what it names."""
    lock = (ENVIRONMENTS / f"{kernel}.txt").read_text(encoding="utf-8")
    named, found = _named(kernel) | _named("common"), []
    for package, locked in re.findall(r"^([\w.-]+)==(\S+)", lock, re.M):
        here = metadata.version(package) if is_installed(package) else "missing"
        if package in named and here != locked:
            found.append(f"{package} {here} (locked: {locked})")
    return found


def pins() -> dict[str, str]:
    """Each package of the locks that is carried if missing: its lines there, hashes and all."""
    locks = [ENVIRONMENTS / f"{name}.txt" for name in (*BESIDE, "lab", "rivals")]
    blocks = re.split(r"^(?=\w)", "".join(lock.read_text("utf-8") for lock in locks), flags=re.M)
    return {block.split("==")[0]: block for block in blocks if "==" in block}


def is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def lacks(kernel: str) -> str | None:
    """Why this Python cannot run a kernel's notebooks, in a clause; None where it can."""
    modules = [name.strip().split(".")[0] for name in KERNELS[kernel].imports.split(",")]
    carried = needs(is_installed)
    missing = [name for name in modules if name not in carried and util.find_spec(name) is None]
    return f"{missing[0]} is not installed here" if missing else None


def make(folder: Path, wheels: Path) -> Path:
    """A Python in ``folder`` that sees what this one sees, and ``wheels`` for what that lacks.

    Nothing is written elsewhere. A virtual environment alone would not do: of a Python that stands
    in one itself it sees the base, not what is installed there.

    Raises:
        PlaceError: something is missing, here and among the wheels.
    """
    needed = needs(is_installed)
    missing = [name for name in needed if not is_installed(name)]
    extra = [n for n in RIVALS if not is_installed(n) and any(wheels.glob(f"{n}-*.whl"))]
    pip = next(iter(wheels.glob("pip-*.whl")), None)
    if missing and pip is None:
        raise PlaceError(
            f"missing here: {', '.join(missing)}; and no wheels in {wheels}: make them where there "
            f"is a network, with tests/gpu/pack.py --python {version()} (tests/gpu/README.md)"
        )
    venv.EnvBuilder(symlinks=True).create(folder)
    python = folder / "bin" / "python"
    seen = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    seen += [str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in dict.fromkeys(seen)]
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "machine.pth").write_text("".join(lines), encoding="utf-8")
    if pip:
        install: list[str | Path] = [
            python,
            pip / "pip",
            "--isolated",
            "install",
            "--quiet",
            "--no-index",
        ]
        install += ["--disable-pip-version-check", "--no-cache-dir", "--find-links", wheels]
        if missing:
            print(f"missing here, from the wheels: {', '.join(missing)}", flush=True)
            run([*install, *needed])
        if extra:
            run([*install, "--no-deps", *extra])
    _register(python, folder / "share" / "jupyter")
    run(
        [
            python,
            "-c",
            "import data_prep, gpumon, ipykernel, helpers.results.report, "
            "helpers.runner.run_experiment",
        ]
    )
    return python


def _register(python: Path, jupyter: Path) -> None:
    """Let Jupyter find every kernel whose framework is here: all are this one Python."""
    os.environ["JUPYTER_PATH"] = str(jupyter)  # before what the user has under the same name
    for kernel in (name for name in KERNELS if name != "lab" and not lacks(name)):
        write_json(jupyter / "kernels" / kernel / "kernel.json", {
            "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": KERNELS[kernel].title,
            "language": "python",
        })  # fmt: skip


def run(command: list[str | Path]) -> None:
    """Runs a command of :func:`make`. Raises PlaceError with the error it ends in."""
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        error = next((line for line in said if line.startswith("ERROR")), said[-1])
        raise PlaceError(f"{error} (wheels for another Python? here it is {version()})")


def environment() -> dict[str, str]:
    """This process's environment variables for what it starts: this checkout's packages first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"

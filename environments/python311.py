"""Finds the two programs that everything else is made with: Python 3.11 and uv."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "3.11"
_PROBE = "import sys; print('%d.%d' % sys.version_info[:2], sys._base_executable)"


class NoPython(Exception):
    """Neither found nor fetched; its text is the line for the user."""


def find_python() -> str | None:
    """The path of a Python 3.11: the one running this, else a `python3.11` on PATH that runs.

    Being there is not enough: pyenv puts a `python3.11` on PATH that only says that no such
    version is active. Hence each is asked for its version. The path given is that of the
    interpreter itself, never of a shim or of a virtual environment, which may go away.
    """
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    candidates = [sys.executable, *(str(Path(f) / f"python{VERSION}") for f in folders if f)]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK) and (found := _base(candidate)):
            return found
    return None


def _base(candidate: str) -> str | None:
    try:
        answer = subprocess.run(
            [candidate, "-c", _PROBE], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, _, path = answer.stdout.strip().partition(" ")
    return path if answer.returncode == 0 and version == VERSION and path else None


def fetch_python(uv: Path) -> str:
    """Lets uv fetch Python 3.11 (into uv's own folder in the home directory).

    Raises NoPython where it cannot.
    """
    install = [str(uv), "python", "install", "--no-bin", "--quiet", VERSION]
    subprocess.run(install, stderr=subprocess.DEVNULL, check=False)
    find = [str(uv), "python", "find", "--managed-python", VERSION]
    found = subprocess.run(find, capture_output=True, text=True, check=False)
    if found.returncode or not found.stdout.strip():
        raise NoPython(
            f"Python {VERSION} is not on PATH and could not be fetched: install it "
            f"(Debian: apt install python{VERSION}; pyenv: pyenv install {VERSION}) "
            f"and put `python{VERSION}` on PATH"
        )
    return found.stdout.strip()


def find_uv(venvs: Path, python: str | None) -> Path:
    """The pinned uv, fetched by pip into `venvs/.uv` the first time.

    `pip install --target` works where a virtual environment cannot be made (Debian's Python
    without ensurepip) and where the system's Python is externally managed (PEP 668). A uv on PATH
    serves where there is no pip. Raises NoPython where there is neither.
    """
    uv, stamp = venvs / ".uv" / "bin" / "uv", venvs / ".uv" / "stamp"
    lock = HERE / "uv.txt"
    if stamp.is_file() and stamp.read_text() == lock.read_text():
        return uv
    shutil.rmtree(venvs / ".uv", ignore_errors=True)
    said = ""
    for pip in dict.fromkeys([sys.executable, python]):
        if not pip:
            continue
        done = subprocess.run(
            [pip, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target",
             venvs / ".uv", "--require-hashes", "--no-deps", "-r", lock],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if done.returncode == 0 and uv.exists():
            stamp.write_text(lock.read_text())
            return uv
        said = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else said
    if on_path := shutil.which("uv"):
        return Path(on_path)
    raise NoPython(f"uv, which makes the environments, could not be installed by pip: {said}")


def set_up_uv(venvs: Path) -> None:
    """Settings of uv that suit this machine, where the user has not made them.

    And two of pip's that would stop it, whatever the user has made of them: it is to install uv
    into a folder, not for the user and not into a virtual environment.
    """
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 (it never fails)
    if not home.exists() or home.stat().st_dev != venvs.stat().st_dev:
        # uv installs by hard links, which need its cache and .venvs on one file system.
        os.environ.setdefault("UV_CACHE_DIR", str(venvs / ".cache"))
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        # The machine's own fairness checks, as pip and Python use them: there may be a proxy's.
        os.environ.setdefault("UV_SYSTEM_CERTS", "1")
    os.environ.update(UV_NO_PROGRESS="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    os.environ.update(PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0")

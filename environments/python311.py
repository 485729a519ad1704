"""Find or download the two programs that build the environments: Python 3.11 and uv."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "3.11"
SOUND = (3, 11, 8)
"""Older ones may hang as a process forks: https://github.com/python/cpython/issues/112275. PyTorch
forks its loader workers. They are used if there is no other."""


class NoPython(Exception):
    """Python or uv was neither found nor downloaded; the message is for the user."""


def find_python(uv: Path) -> str | None:
    """The path of a Python 3.11: the one that runs this, otherwise one that uv finds on PATH.

    One from ``SOUND`` on is preferred.
    """
    own = str(getattr(sys, "_base_executable", sys.executable))
    is_311 = sys.version_info[:2] == SOUND[:2]
    if is_311 and sys.version_info >= SOUND:
        return own
    find: list[str | Path] = [uv, "python", "find", "--system", "--no-managed-python"]
    sound = _answer([*find, f">={'.'.join(map(str, SOUND))},<3.12"])
    return sound or (own if is_311 else _answer([*find, VERSION]))


def _answer(command: list[str | Path]) -> str | None:
    """The path that a command prints; None if it fails."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def fetch_python(uv: Path) -> str:
    """Let uv download Python 3.11 into its folder in the home directory, or raise NoPython."""
    install = [str(uv), "python", "install", "--no-bin", "--quiet", VERSION]
    subprocess.run(install, stderr=subprocess.DEVNULL, check=False)
    found = _answer([uv, "python", "find", "--managed-python", VERSION])
    if found is None:
        raise NoPython(
            f"Python {VERSION} is not on PATH and could not be downloaded: install it "
            f"(Debian: apt install python{VERSION}) and put `python{VERSION}` on PATH"
        )
    return found


def find_uv(venvs: Path) -> Path:
    """The pinned uv, which pip installs into `venvs/.uv` the first time, or else the one on PATH.

    `pip install --target` works without virtual environments (Debian's Python without ensurepip)
    and with an externally managed Python (PEP 668).
    """
    uv, stamp = venvs / ".uv" / "bin" / "uv", venvs / ".uv" / "stamp"
    lock = HERE / "uv.txt"
    if stamp.is_file() and stamp.read_text() == lock.read_text():
        return uv
    shutil.rmtree(venvs / ".uv", ignore_errors=True)
    said = ""
    for pip in dict.fromkeys([sys.executable, shutil.which(f"python{VERSION}")]):
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
    raise NoPython(f"pip could not install uv, which builds the environments: {said}")


def set_up_uv(venvs: Path) -> None:
    """Set the variables of uv for this machine, unless the user has set them."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 (it never fails)
    if not home.exists() or home.stat().st_dev != venvs.stat().st_dev:
        # uv installs by hard links, which need its cache and .venvs on one file system.
        os.environ.setdefault("UV_CACHE_DIR", str(venvs / ".cache"))
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        # The machine's TLS certificates, which pip and Python use too: a proxy may have its own.
        os.environ.setdefault("UV_SYSTEM_CERTS", "1")
    if not {"UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_CONFIG_FILE"} & os.environ.keys():
        _hand_on_index()
    os.environ.update(UV_NO_PROGRESS="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    os.environ.update(PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0")


def _hand_on_index() -> None:
    """Give uv the package indexes, folders and trusted hosts that pip is configured with."""
    said = _answer([sys.executable, "-m", "pip", "config", "list"]) or ""
    lines = re.findall(r"^(global|user|site|:env:)\.([\w-]+)='(.*)'$", said, re.M)
    lines.sort(key=lambda line: ("global", "user", "site", ":env:").index(line[0]))
    found = {key: value.replace("\\n", " ").strip() for _, key, value in lines}
    for theirs, ours in {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
        "trusted-host": "UV_INSECURE_HOST",
    }.items():
        if theirs in found:
            os.environ.setdefault(ours, found[theirs])
    # As pip searches: every index has packages, and the locks' hashes choose the files.
    os.environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")

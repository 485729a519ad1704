"""Wheels of what a machine without a network lacks, for tests/gpu/gpu_run.py to use there.

    .venvs/lab/bin/python tests/gpu/pack.py --python 3.12 --have numpy,scipy,...

They are what the locks of `environments/` pin, by its hash, for that Python on x86-64 Linux.
`python3 -m pip list --format=freeze` on that machine lists what it has.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / "environments"
NEEDED = {"jinja2", "papermill", "rich", "pytest", "nvitop", "timm", "grain"}
"""What the runner, the tests, the benchmarks and JAX's notebook need beside the common packages."""
GLIBC = ("_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "2014", "_2_12", "2010", "_2_5", "1")
"""What a wheel may be built against, newest first; pip goes by the name alone."""


def pins() -> dict[str, str]:
    """Each package of the locks: its lines there, hashes and all."""
    locks = [ENVIRONMENTS / f"{name}.txt" for name in ("jax", "lab", "rivals")]
    blocks = re.split(r"^(?=\w)", "".join(lock.read_text("utf-8") for lock in locks), flags=re.M)
    return {block.split("==")[0]: block for block in blocks if "==" in block}


def wanted(have: set[str]) -> list[str]:
    """The packages to carry where ``have`` are installed: what we need, and what that needs."""
    lines = (ENVIRONMENTS / "common.in").read_text(encoding="utf-8").splitlines()
    common = {re.split(r"[^\w.-]", line)[0] for line in lines} - {"", "pip"}
    found, known = (NEEDED | common) - have, pins()
    while True:
        more = {name for name in known if _needed_by(known[name]) & found} - found - have
        if not more:
            return sorted(found)
        found |= more


def _needed_by(pin: str) -> set[str]:
    """The packages that a lock's comments below a pin name: ``# via papermill``."""
    return set(re.findall(r"^ +#(?: +via)? +(\w[\w.-]*)$", pin, re.M))


def fetch(names: list[str], python: str, folder: Path) -> None:
    lock = folder / "lock.txt"
    lock.write_text("".join(pins()[name] for name in names), encoding="utf-8")
    platforms = [f"--platform=manylinux{libc}_x86_64" for libc in GLIBC]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    subprocess.run([*command, *platforms, "-r", str(lock), "-d", str(folder)], check=True)
    lock.unlink()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="pack.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True, metavar="3.12", help="the version there")
    parser.add_argument("--have", default="", metavar="A,B", help="what is installed there")
    given = parser.parse_args(arguments)
    have = {re.sub(r"[-_.]+", "-", name).lower() for name in given.have.split(",")}
    with tempfile.TemporaryDirectory(dir=HERE, prefix=".wheels-") as scratch:
        fetch(wanted(have), given.python, Path(scratch))
        sizes = [file.stat().st_size / 2**20 for file in Path(scratch).glob("*.whl")]
        shutil.rmtree(HERE / "wheels", ignore_errors=True)
        shutil.copytree(scratch, HERE / "wheels")
    print(
        f"{len(sizes)} wheels, {sum(sizes):.1f} MiB, for Python {given.python}, in tests/gpu/wheels"
    )


if __name__ == "__main__":
    main(sys.argv[1:])

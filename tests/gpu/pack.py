"""Wheels of what a machine without a network may lack, for tests/gpu/run.sh to install there.

    .venvs/lab/bin/python tests/gpu/pack.py --python 3.12 [--have numpy,scipy,...] [--to FOLDER]

What is fetched is what the locks of `environments/` pin, by its hash, for that Python on x86-64
Linux. `tests/gpu/run.sh --have` says there which of it is installed already.
Exit code: 0 packed, 1 not to be had or too large, 2 a mistake in the command.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_place import RIVALS, ROOT, WHEELS, Parser, needs, pins

MOST_MIB = 60
"""MiB of all wheels together: what may be carried to a machine is limited."""
OLDEST = (3, 11)
WITH_TORCHVISION = "numpy,pillow"
"""What a machine with PyTorch and torchvision has in any case, for torchvision needs it."""
GLIBC = ("_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "2014", "_2_12", "2010", "_2_5", "1")
"""What a wheel may be built against, newest first; pip goes by the name alone."""


def wanted(have: set[str]) -> list[str]:
    """The packages to carry where ``have`` are installed: what we need, and what that needs."""
    known = pins()
    found = {*RIVALS, *needs(have.__contains__)} - have | {"pip"}  # the wheel itself installs
    while True:
        more = {name for name in known if _needed_by(known[name]) & found} - found - have
        if not more:
            return sorted(found)
        found |= more


def _needed_by(pin: str) -> set[str]:
    """The packages that a lock's comments below a pin name: ``# via papermill``."""
    return set(re.findall(r"^ +#(?: +via)? +(\w[\w.-]*)$", pin, re.M))


def fetch(names: list[str], python: str, folder: Path) -> None:
    """Raises OSError with pip's own line where a wheel is not to be had."""
    lock = folder / "lock.txt"
    lock.write_text("".join(pins()[name] for name in names), encoding="utf-8")
    platforms = [f"--platform=manylinux{libc}_x86_64" for libc in GLIBC]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    command += [*platforms, "-r", str(lock), "-d", str(folder)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    lock.unlink()
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise OSError(errors[-1] if errors else done.stderr.strip()[-200:])


def check(folder: Path) -> str:
    """What was packed, in a line. Raises OSError where it is more than may be carried."""
    sizes = {file.name: file.stat().st_size / 2**20 for file in folder.glob("*.whl")}
    total = sum(sizes.values())
    if total > MOST_MIB:
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
        named = ", ".join(f"{name.split('-')[0]} {sizes[name]:.0f} MiB" for name in largest)
        raise OSError(
            f"{total:.0f} MiB, more than {MOST_MIB}: leave out with --have what the machine has "
            f"('tests/gpu/run.sh --have' there prints it); the largest are {named}"
        )
    compiled = sum(not name.endswith("-none-any.whl") for name in sizes)
    return f"{len(sizes)} wheels, {compiled} of them compiled, {total:.1f} MiB of {MOST_MIB}"


def main(arguments: list[str]) -> int:
    parser = Parser(prog="pack.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True, metavar="3.12", help="the version there")
    parser.add_argument("--have", default="", metavar="A,B", help="what is installed there")
    parser.add_argument("--to", type=Path, default=WHEELS, metavar="FOLDER")
    given = parser.parse_args(arguments)
    have = set(filter(None, f"{given.have},{WITH_TORCHVISION}".split(",")))
    match = re.fullmatch(r"(3)\.(\d{1,3})", given.python, re.ASCII)
    wrong = ""
    if match is None or tuple(map(int, match.groups())) < OLDEST:
        wrong = f"--python {given.python}: give 3.11 or newer, such as 3.12"
    elif unknown := sorted(have - set(pins())):
        wrong = f"--have {unknown[0]}: not among the packages of environments/lab.txt"
    elif given.to.exists() and not given.to.is_dir():
        wrong = f"--to {given.to}: not a folder"
    elif given.to.exists() and any(file.suffix != ".whl" for file in given.to.iterdir()):
        wrong = f"--to {given.to}: holds other things than wheels, and would be replaced"
    if wrong:
        print(f"pack.py: {wrong}", file=sys.stderr)
        return 2
    try:
        given.to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=given.to.parent, prefix=".wheels-") as scratch:
            folder = Path(scratch) / "wheels"
            folder.mkdir()
            fetch(wanted(have), given.python, folder)
            said = check(folder)
            shutil.rmtree(given.to, ignore_errors=True)
            folder.rename(given.to)
    except OSError as error:
        print(f"pack.py: {error}", file=sys.stderr)
        return 1
    where = given.to.resolve()
    where = where.relative_to(ROOT) if where.is_relative_to(ROOT) else where
    print(f"{said}, for Python {given.python}, in {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

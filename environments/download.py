#!/usr/bin/env python3
"""Download every package of the locks, for machines without a network (`make wheels`).

    python3 environments/download.py                    this machine's variants, into wheels/
    python3 environments/download.py --environments lab,pytorch --gpu --folder /media/stick/wheels
    python3 environments/download.py --with-python      Python 3.11 itself too

Files that are there already are kept, so an interrupted command can be run again. A file appears in
the folder when it is complete and has the lock's hash; the index is written last.
Exit code: 0 all files are there, 2 a download failed, or there is a mistake in the command.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import build
import environment
import kernels
import python311
import sources
import wheel_folder
from kernels import ROOT, VENVS
from wheel_folder import GLIBC, INDEX, MACHINE, PYTHON

AT_ONCE = 4
SOURCES = ("pillow-simd", "horovod")
"""Kept as source archives too, because a compiled wheel may fit only one machine."""
#: The accepted manylinux tags, newest first; pip only compares names.
TAGS = (*(f"_2_{minor}" for minor in range(28, 4, -1)), "2014", "2010", "1")

Files = dict[str, dict[str, Any]]


def gather(path: Path, variants: dict[str, str], maker: environment.Maker, python: bool) -> Files:
    """Download the missing files; return all files of the folder's index. Raises BuildError."""
    path.mkdir(parents=True, exist_ok=True)
    for left in path.glob(".part-*"):
        shutil.rmtree(left)
    pins = wheel_folder.pins_of(wheel_folder.locks_of(variants))
    pins = {pin: entry for pin, entry in pins.items() if not pin.startswith("chainercv==")}
    found = there(path, pins)
    missing = [pin for pin in pins if pin not in {about["for"] for about in found.values()}]
    print(f"{len(pins)} packages, {len(missing)} of them to download", flush=True)
    with concurrent.futures.ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        jobs = [pool.submit(fetch, pin, pins[pin], path) for pin in missing]
        try:
            for number, job in enumerate(concurrent.futures.as_completed(jobs), 1):
                found.update(job.result())
                if number % 20 == 0 or number == len(jobs):
                    print(f"  {number} of {len(jobs)}, {gigabytes(found)}", flush=True)
        except BaseException:
            environment.STOP.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    found.update(compiled(path, variants))
    if python:
        found.update(packed_python(path, maker))
    return found


def there(path: Path, pins: dict[str, str]) -> Files:
    """The files that are in the folder already, identified by the locks' hashes.

    Wheels that were built from source are identified by the previous index.
    """
    hashes = {
        word.removeprefix("--hash=sha256:"): pin
        for pin, entry in pins.items()
        for word in entry.split()
        if word.startswith("--hash=sha256:")
    }
    before = kernels.read_json(path / INDEX).get("files", {})
    built = {about["sha256"]: about["for"] for about in before.values() if about.get("built")}
    found: Files = {}
    for file in sorted([*path.glob("*.whl"), *path.glob("*.tar.gz")]):
        sha256 = wheel_folder.digest(file)
        if sha256 in hashes:
            found[file.name] = entry_of(file, hashes[sha256], sha256=sha256)
        elif built.get(sha256) in pins:
            found[file.name] = entry_of(file, built[sha256], sha256=sha256, built=True)
    return found


def entry_of(file: Path, pin: str, sha256: str = "", built: bool = False) -> dict[str, Any]:
    """A file's entry in the index."""
    sha256 = sha256 or wheel_folder.digest(file)
    mark = {"built": True} if built else {}
    return {"for": pin, "bytes": file.stat().st_size, "sha256": sha256, **mark}


def fetch(pin: str, entry: str, path: Path) -> Files:
    """Download one package; build a wheel if it is a source archive. Raises BuildError."""
    with tempfile.TemporaryDirectory(dir=path, prefix=".part-") as scratch:
        place = Path(scratch)
        (place / "lock.txt").write_text(entry)
        run = environment.runner(place / "log")
        pip = [environment.tools_python(), "-m", "pip"]
        try:
            run([*pip, "download", "--no-deps", "--no-build-isolation", "--require-hashes",
                 "--no-cache-dir", *(f"--platform=manylinux{tag}_{MACHINE}" for tag in TAGS),
                 "--dest", place / "files", "-r", place / "lock.txt"])  # fmt: skip
            (file,) = (place / "files").iterdir()
            if built := file.suffix != ".whl" and not pin.startswith(SOURCES):
                sources.wheel(environment.tools_python(), place / "built", run, file)
                (file,) = (place / "built").iterdir()
        except environment.BuildError as error:
            raise environment.BuildError(f"{pin}: {error}") from None
        about = entry_of(file, pin, built=built)
        file.replace(path / file.name)
    return {file.name: about}


def compiled(path: Path, variants: dict[str, str]) -> Files:
    """Build chainercv, and pillow-simd if there is a compiler, for the folder."""
    found: Files = {}
    if "chainer" in variants:
        run = environment.runner(VENVS / "chainercv.log")
        file = sources.chainercv(environment.tools_python(), environment.wheels(), run)
        (pin,) = wheel_folder.pins_of([kernels.HERE / "chainercv.txt"])
        found[file.name] = copied(file, path / file.name, pin)
    try:
        file = build.make_pillow_simd()
    except environment.BuildError as reason:
        print(f"pillow-simd was not compiled: {reason}", flush=True)
        return found
    (pin,) = wheel_folder.pins_of([kernels.HERE / "pillow-simd.txt"])
    name = f"{file.parent.name}/{file.name}"
    return found | {name: copied(file, path / name, pin)}


def copied(file: Path, to: Path, pin: str) -> dict[str, Any]:
    """Copy a file completely or not at all, and return its entry in the index."""
    to.parent.mkdir(exist_ok=True)
    part = to.with_name(f".part-{to.name}")
    shutil.copyfile(file, part)
    part.replace(to)
    return entry_of(to, pin, built=True)


def packed_python(path: Path, maker: environment.Maker) -> Files:
    """Pack the Python 3.11 that uv downloads, which runs from any folder, into one file."""
    # The installation's bin/python3.11, with uv's links resolved.
    home = Path(python311.fetch_python(maker.uv)).resolve().parent.parent
    with tempfile.TemporaryDirectory(dir=path, prefix=".part-") as scratch:
        part = Path(scratch) / PYTHON
        with tarfile.open(part, "w") as packed:
            packed.add(home, "python")
        part.replace(path / PYTHON)
    return {PYTHON: entry_of(path / PYTHON, f"python=={python311.VERSION}", built=True)}


def write_index(path: Path, variants: dict[str, str], files: Files) -> None:
    """Write the index, then remove the files that only the previous index listed."""
    before = kernels.read_json(path / INDEX).get("files", {})
    kernels.write_json(path / INDEX, {
        "format": wheel_folder.FORMAT,
        "python": python311.VERSION,
        "machine": MACHINE,
        "glibc": GLIBC,
        "forms": variants,
        "locks": {lock.name: wheel_folder.digest(lock) for lock in wheel_folder.locks_of(variants)},
        "files": dict(sorted(files.items())),
    })  # fmt: skip
    for name in before.keys() - files.keys():
        (path / name).unlink(missing_ok=True)


def gigabytes(files: Files) -> str:
    size = sum(about["bytes"] for about in files.values())
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def what_next(path: Path, variants: dict[str, str], files: Files) -> str:
    """Describe the folder's contents and the next step."""
    held = ", ".join(f"{kernel} ({variant})" for kernel, variant in variants.items())
    listed = {path / name for name in (*files, INDEX)}
    others = [f for f in path.rglob("*") if f.is_file() and f not in listed]
    rest = f"\n{len(others)} other files in it are not needed." if others else ""
    shown = os.path.relpath(path, ROOT) if path.is_relative_to(ROOT) else path
    folder = path.name if path.is_relative_to(ROOT) else path
    return (
        f"{shown}/: {len(files)} files, {gigabytes(files)}, for {held}.{rest}\n"
        "Copy it and this checkout to the machine without a network, and run there:\n"
        f'  make envs ARGS="--offline {folder}"'
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="download.py", description=(__doc__ or "").split("\n")[0], allow_abbrev=False
    )
    build.add_choices(parser)
    folder = "the folder to fill (default: wheels)"
    parser.add_argument("--folder", type=Path, default=ROOT / "wheels", help=folder)
    parser.add_argument("--with-python", action="store_true", help="add Python 3.11 itself")
    options = parser.parse_args(arguments)
    wanted, wrong = build.chosen(options, kernels.USUAL)
    if wrong:
        print(f"download.py: {wrong}", file=sys.stderr)
        return 2
    path = options.folder.absolute()

    def work() -> int:
        machine = kernels.this_machine(options.gpu)
        variants = {kernel: kernels.variant(kernel, machine) for kernel in wanted}
        maker = build.get_maker(machine)
        build.make_small(VENVS / ".tools", lambda: maker)
        # If this machine has no Python 3.11, the other machine may have none either.
        python = options.with_python or python311.find_python(maker.uv) is None
        files = gather(path, variants, maker, python)
        write_index(path, variants, files)
        print(what_next(path, variants, files))
        return 0

    return build.alone(work, "download.py")


if __name__ == "__main__":
    build.start(main)

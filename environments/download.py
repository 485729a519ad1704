#!/usr/bin/env python3
"""Download every package of the locks, for machines without a network (`make wheels`).

    python3 environments/download.py                    this machine's variants, into wheels/
    python3 environments/download.py --environments lab,pytorch --gpu --folder /media/stick/wheels

Files that are there already are kept, so an interrupted command can be run again.
Exit code: 0 all files are there, 2 a download failed, or there is a mistake in the command.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import build
import environment
import kernels
from kernels import ROOT, VENVS

#: The accepted manylinux tags, newest first; pip only compares names.
TAGS = (*(f"_2_{minor}" for minor in range(28, 4, -1)), "2014", "2010", "1")


def fetch(path: Path, variants: dict[str, str]) -> None:
    """Download what the folder lacks of these environments. Raises BuildError."""
    path.mkdir(parents=True, exist_ok=True)
    (path / environment.INDEX).unlink(missing_ok=True)  # written again when all files are there
    for lock in environment.locks_of(variants):
        print(f"Downloading the packages of {lock.name}", flush=True)
        run = environment.runner(VENVS / "wheels.log")
        try:
            run([environment.tools_python(), "-m", "pip", "download", "--no-deps",
                 "--no-build-isolation", "--require-hashes", "--no-cache-dir", "--dest", path,
                 *(f"--platform=manylinux{tag}_x86_64" for tag in TAGS), "-r", lock])  # fmt: skip
        except environment.BuildError as error:
            raise environment.BuildError(f"{lock.name}: {error}") from None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="download.py", description=(__doc__ or "").split("\n")[0], allow_abbrev=False
    )
    build.add_choices(parser)
    folder = "the folder to fill (default: wheels)"
    parser.add_argument("--folder", type=Path, default=ROOT / "wheels", help=folder)
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
        fetch(path, variants)
        kernels.write_json(path / environment.INDEX, variants)
        shown = path.name if path.is_relative_to(ROOT) else path
        held = ", ".join(f"{kernel} ({variant})" for kernel, variant in variants.items())
        print(f"{shown}: packages for {held}. Copy it and this checkout to the machine without a")
        print(f'network, and run there:\n  make envs ARGS="--offline {shown}"')
        return 0

    return build.alone(work, "download.py")


if __name__ == "__main__":
    build.start(main)

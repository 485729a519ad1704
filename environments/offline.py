"""Build from the folder that `make wheels` fills, by `make envs ARGS="--offline FOLDER"`.

The locks have the hash of each file, so uv and pip refuse a file that is missing or has changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import kernels
from environment import BuildError
from kernels import HERE

INDEX = "wheels.json"
"""The environments that the folder has packages for, and their variants."""


def locks_of(variants: Mapping[str, str]) -> list[Path]:
    """Every lock that these variants of environments are built from."""
    names = ["uv.txt", "tools.txt", "pillow-simd.txt"]
    names += ["chainercv.txt"] * ("chainer" in variants)
    names += ["horovod-source.txt"] * ("horovod" in variants)
    return [HERE / name for name in names] + [kernels.lock_of(*both) for both in variants.items()]


def read(path: Path) -> dict[str, str]:
    """The variant of each environment that a folder has packages for. Raises BuildError."""
    if not path.is_dir():
        raise BuildError(f"{path}: no such folder (make wheels creates one, with a network)")
    if variants := kernels.read_json(path / INDEX):
        return variants
    raise BuildError(
        f"{path / INDEX}: missing or damaged: run make wheels again, or copy the folder again"
    )


def use(folder: Path) -> None:
    """Make pip and uv use only the folder from here on, whatever their settings are."""
    # A file URL, because pip ends a folder's name at a space, and uv at a comma.
    address = folder.resolve().as_uri()
    os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=address)
    os.environ.update(UV_OFFLINE="1", UV_FIND_LINKS=address, UV_PYTHON_DOWNLOADS="never")

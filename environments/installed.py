"""Check that the files of an environment are still as they were installed."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import kernels
from kernels import VENVS


def damage(kernel: str) -> str | None:
    """Describe the first damaged file of an environment's packages; None if all are unchanged.

    Every package lists its files with their sizes in a RECORD.
    """
    lock = kernels.lock_of(kernel, kernels.status(kernel)["form"])
    pins = re.findall(r"^([a-z0-9._-]+)(?:\[.*?\])?==\S+ \\$", lock.read_text(), re.M)
    for site in (VENVS / kernel).glob("lib/python*/site-packages"):
        lists = {_normal(path.parent.name.split("-")[0]): path for path in site.glob("*/RECORD")}
        if missing := [name for name in pins if _normal(name) not in lists]:
            return f"{missing[0]} is gone"
        for record in lists.values():
            if not (sizes := _sizes(record)):
                return f"{record.relative_to(site)} is damaged"
            for name, size in sizes.items():
                try:
                    found = os.stat(f"{site}/{name}").st_size  # noqa: PTH116 (of 30,000 files)
                except OSError:
                    return f"{name} is gone"
                if size and found != int(size):
                    return f"{name} has {found} bytes, not {size}"
    return None


def _sizes(record: Path) -> dict[str, str]:
    """The size of each file in a RECORD ("" for variable sizes); empty if the RECORD is damaged."""
    try:
        with record.open(newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, ValueError, csv.Error):
        return {}
    fits = all(len(row) == 3 and (row[2].isdigit() or not row[2]) for row in rows)
    return {name: size for name, _, size in rows} if fits else {}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

"""Write the locks from the .in files."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ALONE = ("pillow-simd", "chainercv", "horovod-source", "rivals")
"""Installed in addition to a lock, which has their dependencies."""


def make(uv: Path, python: str, more: list[str]) -> int:
    """Write all locks from their .in files; pins that still hold are kept, unless `more` is -U."""
    names = {p.stem for p in HERE.glob("*.in") if p.stem != "common"}
    for name in sorted(names, key="tools".__ne__):  # first the tools, which build the others
        alone = ["--no-deps"] * (name in ALONE)
        tools = ["--build-constraints", "tools.txt"] * (name != "tools")
        code = subprocess.run(
            [uv, "pip", "compile", f"{name}.in", "-o", f"{name}.txt", "--python", python,
             "--python-platform", "x86_64-manylinux_2_28", "--generate-hashes", "--no-header",
             "--quiet", *alone, *tools, *more], cwd=HERE, check=False,
        ).returncode  # fmt: skip
        print(f"{name:15} {'locked' if not code else 'FAILED'}", flush=True)
        if code:
            return 1
    return 0

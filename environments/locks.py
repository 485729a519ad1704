"""Re-makes the locks from the .in files, and the table of what GPUs they serve."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import device_code
from kernels import KERNELS

HERE = Path(__file__).resolve().parent
ALONE = (
    "pillow-simd",
    "chainercv",
    "horovod-source",
    "rivals",
)  # installed beside a lock, which has what they need


def make(uv: Path, python: str, kernels: list[str], more: list[str]) -> int:
    """Re-makes the kernels' locks from their .in files, and what belongs to no kernel with all.

    Pins that still hold are kept, unless `more` is -U.
    """
    names = {p.stem for p in HERE.glob("*.in") if p.stem != "common"}
    if left := KERNELS.keys() - set(kernels):
        forms = {kernel: re.compile(rf"{kernel}(-gpu.*|-source)?") for kernel in kernels}
        names = {name for name in names if any(form.fullmatch(name) for form in forms.values())}
        print(f"Not locked again: {', '.join(k for k in KERNELS if k in left)}, and the tools")
    for name in sorted(names, key="tools".__ne__):  # first the tools, which the others build with
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
    try:
        device_code.make(uv, python)
    except subprocess.CalledProcessError:
        print("capabilities.json FAILED: see above", flush=True)
        return 1
    return 0

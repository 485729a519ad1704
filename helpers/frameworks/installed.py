"""Check that an environment is installed and supports the GPUs of this machine."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from helpers import paths
from helpers.frameworks import capabilities, optional_kernels
from helpers.frameworks.capabilities import Gpu


def problem(kernel: str, gpus: Sequence[Gpu] = ()) -> str | None:
    """Why ``kernel`` cannot be used, on ``gpus`` if any, in one line; None if it can."""
    from jupyter_client import kernelspec  # a run's own process does without

    content = _status(kernel)
    if content.get("ok") is False:
        reason = str(content.get("reason") or "no reason was written").strip().splitlines()[0]
        return f"the environment of kernel '{kernel}' could not be built: {reason}"
    make = "'make envs'"
    if kernel in optional_kernels():
        make = f"""'make envs ARGS="--environments {kernel}"'"""
    try:
        spec = kernelspec.KernelSpecManager().get_kernel_spec(kernel)
    except kernelspec.NoSuchKernel:
        return f"kernel '{kernel}' is not installed: run {make}"
    command = spec.argv[0] if spec.argv else ""
    if Path(command).is_absolute() and not Path(command).exists():
        return f"kernel '{kernel}' points at {command}, which is gone: run {make}"
    return _why_not(kernel, gpus)


def why_not_here(gpus: Sequence[Gpu]) -> str | None:
    """Why the environment this process runs in cannot compute on ``gpus``; None if it can."""
    environment = Path(sys.prefix)
    ours = environment.parent.resolve() == paths.VENVS.resolve()
    return _why_not(environment.name, gpus) if ours else None


def _why_not(kernel: str, gpus: Sequence[Gpu]) -> str | None:
    form = _status(kernel).get("form")
    if not gpus or form is None:  # None: not made by `make envs`, so nothing is known of it
        return None
    why = capabilities.why_not(kernel, str(form), gpus)
    return why and f"kernel '{kernel}': {why}"


def _status(kernel: str) -> dict[str, Any]:
    """What `make envs` wrote about an environment; empty if it did not, or not readably."""
    with suppress(OSError, ValueError):
        content = json.loads((paths.VENVS / f"{kernel}.json").read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    return {}

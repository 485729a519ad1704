"""The self-test's process, which runs inside the tested environment and may crash or hang.

    python -m helpers.runner.self_test_worker pytorch gpu 2 found.json

The process writes the versions to the file once it has the devices, and the step's outcome when it
has taken it. The parent process therefore knows where it crashed. Full errors go to standard error.
"""

import faulthandler
import importlib
import json
import signal
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

from helpers.errors import in_a_line
from helpers.fairness import one_step
from helpers.frameworks import libraries

CUDA_PACKAGES = ("cuda-runtime", "cudnn", "cublas", "nccl")


def main(module: str, kind: str, count: int, to: Path) -> int:
    faulthandler.enable()  # a crash in native code leaves a traceback
    faulthandler.register(signal.SIGUSR1)  # and so does one that hangs
    told: dict[str, Any] = {}
    try:
        libraries.allow_tf32(False)  # before the import, as the notebooks have it
        framework = importlib.import_module(f"helpers.frameworks.{module}")
        # As the notebooks do, and before anything is computed.
        devices = framework.list_devices(kind, count)
        framework.configure("fp32", kind)
        python = {"python": sys.version.split()[0]}
        told["versions"] = python | framework.versions() | _cuda()
        to.write_text(json.dumps(told), encoding="utf-8")
        told["reason"] = one_step.problem(framework, devices)
    except Exception as error:
        traceback.print_exc()
        told["reason"] = in_a_line(error)
    to.write_text(json.dumps(told), encoding="utf-8")
    return 0 if told["reason"] is None else 1


def _cuda() -> dict[str, str]:
    """Versions of the CUDA packages that are installed with the framework."""
    found = {str(each.metadata["Name"]).lower(): each.version for each in metadata.distributions()}
    ours = (n for n in found if n.startswith("nvidia-") and any(p in n for p in CUDA_PACKAGES))
    return {name: found[name] for name in sorted(ours)}


if __name__ == "__main__":
    module, kind, count, to = sys.argv[1:]
    sys.exit(main(module, kind, int(count), Path(to)))

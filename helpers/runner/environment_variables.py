"""Choose the environment variables that reach a kernel.

Python's own variables (``PYTHONPATH``, ``PYTHONHOME``, ``PYTHONSTARTUP`` and all others) and
IPython's start-up files can make a kernel import packages that are not locked, or run code before
the notebook's. Therefore none of them reaches the kernel. Variables that libraries read do reach
it, because a machine may need them (``LD_LIBRARY_PATH``, ``OMP_NUM_THREADS``,
``CUDA_VISIBLE_DEVICES``).
"""

from collections.abc import Mapping

from helpers import paths
from helpers.frameworks import KERNEL_VARIABLES, replicas


def for_a_kernel(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what is Python's and IPython's own, and with this checkout first.

    So a run uses its runner's code, even if its environment was made for another checkout (a git
    worktree).
    """
    kept = {k: v for k, v in environment.items() if not k.startswith("PYTHON")}
    kept |= {"PYTHONPATH": str(paths.ROOT), "PYTHONNOUSERSITE": "1", **KERNEL_VARIABLES}
    kept["IPYTHONDIR"] = str(paths.VENVS / ".ipython")  # has no start-up files
    if not replicas.takes_sockets(kept.get("TMPDIR", "")):
        del kept["TMPDIR"]  # /tmp will do
    return kept

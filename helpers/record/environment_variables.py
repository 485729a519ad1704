"""Choose the environment variables that reach a kernel, and those that its record lists.

Python's own variables (``PYTHONPATH``, ``PYTHONHOME``, ``PYTHONSTARTUP`` and all others) and
IPython's start-up files can make a kernel import packages that are not locked, or run code before
the notebook's. Therefore none of them reaches the kernel. Variables that libraries read do reach
it, because a machine may need them (``LD_LIBRARY_PATH``, ``OMP_NUM_THREADS``,
``CUDA_VISIBLE_DEVICES``). They can change the measurements, so they are in the record.
"""

from collections.abc import Mapping

from helpers import paths
from helpers.frameworks import KERNEL_VARIABLES, ROWS, temporary_files

LIBRARIES = (
    *("LD_", "GLIBC_TUNABLES", "MALLOC_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_"),
    *("CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "GLOO_", "NVIDIA_TF32_OVERRIDE"),
    *(f"{row.family.upper()}_" for row in ROWS),
    *("TORCH", "XLA_", "DMLC_", "CUPY_"),
    # Not all of TF_: Terraform's begin so too, and hold passwords.
    *("TF_CUDNN_", "TF_DETERMINISTIC_", "TF_DISABLE_", "TF_ENABLE_", "TF_FORCE_", "TF_GPU_"),
    *("TF_NUM_", "TF_USE_", "TF_XLA_"),
)
"""How the names of variables begin that decide what libraries compute, and how fast."""


def for_a_kernel(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what is Python's and IPython's own, and with this checkout first.

    So a kernel runs the code that its runner is of, also where its environment was made for
    another checkout (a git worktree).
    """
    kept = {k: v for k, v in environment.items() if not k.startswith("PYTHON")} | _own()
    if not temporary_files.takes_sockets(kept.get("TMPDIR", "")):
        del kept["TMPDIR"]  # /tmp will do
    return kept


def to_record(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set and can change what a run measures, by name."""
    known = _own()
    return {
        name: value
        for name, value in sorted(environment.items())
        if value and name.startswith((*LIBRARIES, "PYTHON")) and known.get(name) != value
    }


def _own() -> dict[str, str]:
    return {
        "PYTHONPATH": str(paths.ROOT),
        "PYTHONNOUSERSITE": "1",
        "IPYTHONDIR": str(paths.VENVS / ".ipython"),  # has no start-up files
        **KERNEL_VARIABLES,
    }

"""The table of GPU code: of the locks as they are, applied to a GPU and its driver, documented."""

from __future__ import annotations

import sys

import pytest

from helpers import paths
from helpers.frameworks import capabilities
from helpers.frameworks.capabilities import LOCKS, Gpu

ENVIRONMENTS = paths.ROOT / "environments"
sys.path.insert(0, str(ENVIRONMENTS))

from kernels import KERNELS  # noqa: E402

FOR_GPUS = {name: code for name, code in LOCKS.items() if code}


def test_the_table_has_the_locks() -> None:
    locks = []
    for kernel in set(KERNELS) - {"lab"}:
        locks += [kernel, *(lock.stem for lock in ENVIRONMENTS.glob(f"{kernel}-gpu*.txt"))]
    assert sorted(LOCKS) == sorted(locks)


@pytest.mark.parametrize(
    ("lock", "capability", "driver", "said"),
    [
        ("pytorch", (7, 5), "580.1", None),
        ("pytorch", (8, 7), None, None),  # machine code of 8.6
        ("pytorch", (7, 0), None, "has no code for a GPU (7.0), only for 7.5 to 12.0"),
        ("pytorch", (8, 0), "579.9", "needs NVIDIA driver 580 or newer, this machine has 579.9"),
        ("pytorch", None, None, None),  # an unknown GPU
        ("pytorch-gpu-cuda12", (7, 0), "525.1", None),
        ("mxnet-gpu", (9, 0), None, "has no code for a GPU (9.0), only for 5.0 to 8.9"),
        ("tensorflow-gpu", (9, 0), "555.42", None),
        ("tensorflow-gpu", (9, 0), "550.9", "only PTX for a GPU (9.0), which NVIDIA driver 555 or"),
        ("tensorflow-gpu", (5, 0), None, "has no code for a GPU (5.0), only for 6.0 to 12.0"),
        ("horovod", (8, 0), None, "has no code for GPUs"),
    ],
)
def test_an_obstacle_is_named(
    lock: str, capability: tuple[int, int] | None, driver: str | None, said: str | None
) -> None:
    why = capabilities.obstacle(lock, Gpu("a GPU", capability, driver))
    assert said in why if why and said else why is said


@pytest.mark.parametrize(
    ("kernel", "capability", "compiles"),
    [("tensorflow", (9, 0), True), ("tensorflow", (8, 0), False), ("pytorch", (9, 0), False)],
)
def test_code_that_the_driver_has_to_compile_is_known(
    kernel: str, capability: tuple[int, int], compiles: bool
) -> None:
    assert capabilities.compiles_first(kernel, [Gpu("a GPU", capability)]) == compiles


@pytest.mark.parametrize("lock", FOR_GPUS)
def test_the_documentation_has_the_table(lock: str) -> None:
    code = FOR_GPUS[lock]
    machine_code, ptx = (", ".join(each.split()) for each in (code.machine_code, code.ptx))
    compiled = f"{ptx}: driver {code.ptx_driver}" if ptx else ""
    page = (ENVIRONMENTS.parent / "docs" / "environments.md").read_text(encoding="utf-8")
    row = f"| `{lock}.txt` | {machine_code} | {compiled} | {code.driver} |"
    assert row in page.splitlines()

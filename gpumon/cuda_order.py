"""``python -m gpumon.cuda_order`` asks CUDA in which order it numbers the visible GPUs.

CUDA puts the fastest GPU first by its own rule, unless CUDA_DEVICE_ORDER=PCI_BUS_ID; NVML goes
by the bus. In a machine of equal GPUs both orders are one. Else only CUDA knows, and is asked by a
separate process, because its library is large. It makes no context and takes no GPU memory.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import uuid

from gpumon.launch import interpreter

LONGEST = 10.0
"""Seconds to wait for CUDA."""


def query_cuda() -> list[str] | str:
    """UUIDs of the GPUs that CUDA shows a program of this environment, or why it does not say."""
    try:
        done = subprocess.run(
            interpreter("gpumon.cuda_order"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONGEST,
        )
        return [str(name) for name in json.loads(done.stdout)]
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired) as error:
        return f"CUDA does not say in which order it numbers the GPUs ({error})"


def uuids() -> list[str]:
    """The same in this process; OSError where there is no CUDA or it fails."""
    library = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        if code := getattr(library, name)(*arguments):
            raise OSError(f"{name} gives error {code}")

    call("cuInit", 0)
    count, device, name = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    call("cuDeviceGetCount", ctypes.byref(count))
    asking = "cuDeviceGetUuid_v2" if hasattr(library, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    found = []
    for number in range(count.value):
        call("cuDeviceGet", ctypes.byref(device), number)
        call(asking, name, device)
        found.append(str(uuid.UUID(bytes=bytes(name))))
    return found


if __name__ == "__main__":
    print(json.dumps(uuids()))

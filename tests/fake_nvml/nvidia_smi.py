#!/usr/bin/env python3
"""Print the GPUs of FAKE_NVML_SCRIPT as `nvidia-smi --query-gpu` does for environments/gpus.py."""

import os
import sys
from pathlib import Path

FAILED = {
    "9": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    "18": "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580",
}
driver = ""
gpus: dict[str, dict[str, str]] = {}
for line in Path(os.environ["FAKE_NVML_SCRIPT"]).read_text().splitlines():
    first, _, rest = line.partition(" ")
    key, _, value = rest.partition(" ")
    if first == "init":
        print(FAILED[rest])
        sys.exit(int(rest))
    if first == "driver":
        driver = rest
    elif first.partition(".")[0].isdigit():
        gpu = gpus.setdefault(first.partition(".")[0], {"mig": "[N/A]"})
        gpu |= {"mig": "Enabled"} if "." in first else {key: value}
for gpu in gpus.values():
    print(
        f"{gpu['name']}, {gpu['capability'][:-1]}.{gpu['capability'][-1]}, {driver}, {gpu['mig']}"
    )

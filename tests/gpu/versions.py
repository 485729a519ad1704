"""This machine and its frameworks, as JSON: versions.py pytorch ..."""

import importlib
import json
import platform
import sys

import gpu_place

from helpers.frameworks import devices

found = {"python": platform.python_version(), "hardware": devices.hardware()}
for name in sys.argv[1:]:
    found |= importlib.import_module(f"helpers.frameworks.{name}").versions()
    found[f"differs from environments/{name}.txt"] = gpu_place.differing(name)
print(json.dumps({"machine": found}))

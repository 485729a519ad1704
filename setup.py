"""The dependencies and commands that pyproject.toml cannot express: a folder, a condition."""

import sys
from pathlib import Path

from setuptools import setup

GPUMON = Path(__file__).resolve().parent / "gpumon"

# `rosetta` runs the notebooks and environments of its checkout, which no wheel holds. So only an
# editable install (`make envs`, `pip install -e .`) has the command.
COMMANDS = ["data-prep = data_prep.__main__:main"]
if "editable_wheel" in sys.argv:
    COMMANDS.append("rosetta = helpers.__main__:main")

setup(
    # Lower bounds only: MXNet and Chainer need NumPy before 1.24, the others want NumPy 2.
    # What is installed where is pinned, with hashes, in environments/.
    install_requires=[
        "cloudpickle",
        f"gpumon-phases[plot] @ {GPUMON.as_uri()}",
        "filelock>=4",  # an older one empties the file that names who holds the lock
        "joblib",
        "matplotlib",
        "msgspec",
        "numpy>=1.23",
        "nvidia-ml-py",
        "pandas>=2.0",
        "pillow",
        "psutil",
        "safetensors",
        "scikit-learn",
        "scipy",
        "tqdm",
    ],
    extras_require={"dicom": ["pydicom>=3"], "nih": ["requests"]},
    entry_points={"console_scripts": COMMANDS},
)

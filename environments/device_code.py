"""Write capabilities.json: the GPU generations for which the CUDA packages of each lock have code.

The script reads the libraries that training calls: the framework's, cuDNN (convolution, BatchNorm,
pooling), cuBLAS (the classifier) and NCCL (the sum of gradients). It downloads, reads and deletes
one package at a time, and skips the versions that are in the table already.
``helpers/frameworks/capabilities.py`` uses the table.

nvcc puts device code into a library in containers ("fatbins"), each with an entry for every
architecture that its source file was compiled for. The layout is NVIDIA's own and undocumented:

    container  u32 magic, u16 version (1), u16 size of this header (16), u64 size of the entries
    entry      u16 kind (1 PTX, 2 machine code), u16, u32 size of this header, u64 size, u32, u32,
               u16 minor and u16 major version (of PTX: of the language), u32 architecture, ...
"""

from __future__ import annotations

import json
import mmap
import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernels import HERE, KERNELS, VENVS

from helpers.frameworks import capabilities

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
CONTAINER, ENTRY = struct.Struct("<8xQ"), struct.Struct("<HHIQ8xHHI")
PTX, MACHINE_CODE = 1, 2

LIBRARIES = {
    r"torch": r"libtorch_cuda\.so",
    r"tensorflow": r"libtensorflow_cc\.so\.\d+",
    r"mxnet-cu\d+": r"libmxnet\.so",
    r"jax-cuda\d+-pjrt": r"xla_cuda_plugin\.so",
    r"cupy-cuda\d+x": r"(cub|thrust|_generator_api)\..*\.so",
    r"nvidia-cudnn(-cu\d+)?": r"libcudnn_(ops|cnn|engines_precompiled)\w*\.so\.\d+",
    r"nvidia-cublas(-cu\d+)?": r"libcublas(Lt)?\.so\.\d+",
    r"nvidia-nccl(-cu\d+)?": r"libnccl\.so\.\d+",
}
"""Packages, and the libraries of each that are read."""

GENERATIONS = [
    "5.0", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0",
]  # fmt: skip
"""Compute capabilities of GPUs for x86 machines (Maxwell to Blackwell)."""

DRIVERS = {11: 450, 12: 525, 13: 580}
"""The oldest driver for the machine code of a CUDA version (major): NVIDIA, *CUDA Compatibility*,
minor version compatibility."""

PTX_DRIVERS = {
    "7.0": 450, "7.1": 455, "7.2": 460, "7.3": 465, "7.4": 470, "7.5": 495, "7.6": 510,
    "7.7": 515, "7.8": 520, "8.0": 525, "8.1": 530, "8.2": 535, "8.3": 545, "8.4": 550,
    "8.5": 555, "8.6": 565, "8.7": 570, "8.8": 575, "9.0": 580, "9.1": 590, "9.2": 595,
    "9.3": 610, "9.4": 615,
}  # fmt: skip
"""The first driver that compiles each version of the PTX language: NVIDIA, *PTX ISA*, release
history."""

FEW, MOST = 0.01, 0.9
"""Shares of a library's containers. A generation in few containers is ignored (cuBLAS has PTX for
5.2 in one of 3,361). PTX alone counts only if most containers have it (cuDNN 8.9.7: a seventh)."""


def make(uv: Path, python: str) -> None:
    """Write the table for the current locks.

    Raises:
        subprocess.CalledProcessError: a package could not be downloaded; uv printed the reason.
    """
    before = capabilities.table() if capabilities.FILE.exists() else {}
    known = {name: found for entry in before.values() for name, found in entry["packages"].items()}
    table = {}
    for lock in locks():
        pins = requirements(lock)
        for package in pins:
            if libraries_of(package) and package not in known:
                print(f"{package}: reading its GPU code", flush=True)
                known[package] = device_code(package, pins[package], uv, python)
        packages = {package: known[package] for package in pins if libraries_of(package)}
        table[lock.stem] = {"driver": driver(pins) if packages else None, "packages": packages}
    capabilities.FILE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def locks() -> list[Path]:
    """The locks of all variants of the environments with a framework."""
    return [
        lock
        for kernel in KERNELS
        if kernel != "lab"
        for lock in (HERE / f"{kernel}.txt", *sorted(HERE.glob(f"{kernel}-gpu*.txt")))
    ]


def requirements(lock: Path) -> dict[str, str]:
    """The pins of a lock, ``name==version``, each with its lines, hashes included."""
    entries = re.findall(r"^[a-z0-9].*?(?=^\S|\Z)", lock.read_text(encoding="utf-8"), re.M | re.S)
    return {re.split(r"[ ;\\]", entry)[0]: entry for entry in entries}


def libraries_of(package: str) -> str | None:
    """The pattern of a package's libraries to read; None if there are none."""
    name = package.split("==")[0]
    return next((files for names, files in LIBRARIES.items() if re.fullmatch(names, name)), None)


def driver(pins: Sequence[str] | dict[str, str]) -> int:
    """The oldest driver that the CUDA libraries of a lock work with."""
    found = [re.match(r"nvidia-cuda-runtime(?:-cu\d+)?==(\d+)", package) for package in pins]
    (major,) = {int(match[1]) for match in found if match}
    return DRIVERS[major]


def device_code(package: str, requirement: str, uv: Path, python: str) -> dict[str, Any]:
    """Download a package; return the GPU generations of each of its libraries, by name."""
    pattern = libraries_of(package) or ""
    VENVS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=VENVS, prefix="reading-") as scratch:
        pinned = Path(scratch) / "requirement.txt"
        pinned.write_text(requirement, encoding="utf-8")
        subprocess.run(
            [uv, "pip", "install", "--target", f"{scratch}/files", "--python", python,
             "--python-platform", "x86_64-manylinux_2_28", "--no-deps", "--require-hashes",
             "--no-cache", "--quiet", "-r", pinned], check=True,
        )  # fmt: skip
        return {
            path.name.partition(".")[0]: code
            for path in sorted(Path(scratch, "files").rglob("*"))
            if re.fullmatch(pattern, path.name) and (code := serves(containers(path)))
        }


class Container(NamedTuple):
    """One source file's code: architectures are 86 for sm_86."""

    machine_code: frozenset[int]
    ptx: frozenset[tuple[int, str]]
    """Architecture and version of the PTX language: (90, "8.5")."""


def containers(library: Path) -> list[Container]:
    """The containers in a shared library; none if it has no GPU code."""
    if not library.stat().st_size:  # nothing that could be mapped
        return []
    found = []
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(MAGIC)
        while at >= 0:
            container = _container(data, at)
            if container.machine_code or container.ptx:
                found.append(container)
            at = data.find(MAGIC, at + len(MAGIC))
    return found


def _container(data: mmap.mmap, at: int) -> Container:
    """The container at ``at``; an empty one if the magic is there by chance."""
    machine_code, ptx = set(), set()
    if at + CONTAINER.size <= len(data):
        end = at + CONTAINER.size + CONTAINER.unpack_from(data, at)[0]
        at += CONTAINER.size
        while at + ENTRY.size <= min(end, len(data)):
            kind, _, header, size, minor, major, architecture = ENTRY.unpack_from(data, at)
            if kind == MACHINE_CODE:
                machine_code.add(architecture)
            elif kind == PTX:
                ptx.add((architecture, f"{major}.{minor}"))
            if kind not in (PTX, MACHINE_CODE) or not ENTRY.size <= header <= 4096:
                break
            at += header + size
    return Container(frozenset(machine_code), frozenset(ptx))


def serves(found: list[Container]) -> dict[str, Any]:
    """The generations a library serves by machine code, and by PTX with which driver."""
    runs = {gpu: sum(_runs(c, gpu) for c in found) for gpu in GENERATIONS}
    drivers = {
        gpu: [_compiles(c, gpu) for c in found if c.ptx and not _runs(c, gpu)]
        for gpu in GENERATIONS
    }
    only_ptx = {gpu: [driver for driver in drivers[gpu] if driver] for gpu in GENERATIONS}
    most = max(runs[gpu] + len(only_ptx[gpu]) for gpu in GENERATIONS)
    machine_code, ptx = [], {}
    for gpu in GENERATIONS:
        if runs[gpu] > FEW * most and len(only_ptx[gpu]) <= FEW * most:
            machine_code.append(gpu)
        elif only_ptx[gpu] and runs[gpu] + len(only_ptx[gpu]) >= MOST * most:
            ptx[gpu] = max(only_ptx[gpu])
    return {"machine code": machine_code, "ptx": ptx} if found else {}


def _runs(container: Container, gpu: str) -> bool:
    """Machine code runs on its own major version, the same minor version or a newer one."""
    major, minor = map(int, gpu.split("."))
    return any(a // 10 == major and a % 10 <= minor for a in container.machine_code)


def _compiles(container: Container, gpu: str) -> int | None:
    """The oldest driver that compiles a container's PTX for a GPU; None if it has none for it.

    PTX serves its own architecture and all newer ones.
    """
    newest = int(gpu.replace(".", ""))
    usable = [PTX_DRIVERS[version] for a, version in container.ptx if a <= newest]
    return min(usable, default=None)

"""Read the GPU code in a CUDA library.

nvcc puts device code into a library in containers ("fatbins"), each with an entry for every
architecture that its source file was compiled for. The layout is NVIDIA's own and undocumented:

    container  u32 magic, u16 version (1), u16 size of this header (16), u64 size of the entries
    entry      u16 kind (1 PTX, 2 machine code), u16, u32 size of this header, u64 size, u32, u32,
               u16 minor and u16 major version (of PTX: of the language), u32 architecture, ...
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
CONTAINER, ENTRY = struct.Struct("<8xQ"), struct.Struct("<HHIQ8xHHI")
PTX, MACHINE_CODE = 1, 2


class Container(NamedTuple):
    """One source file's code: architectures are 86 for sm_86."""

    machine_code: frozenset[int]
    ptx: frozenset[tuple[int, str]]
    """Architecture and version of the PTX language: (90, "8.5")."""


def read(library: Path) -> list[Container]:
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

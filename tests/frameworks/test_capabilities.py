"""The table of GPU code: read rightly, of the locks as they are, and keeping what is promised."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import pytest

from helpers import paths
from helpers.frameworks import ROWS, capabilities
from helpers.frameworks.capabilities import Gpu

ENVIRONMENTS = paths.ROOT / "environments"
sys.path.insert(0, str(ENVIRONMENTS))

import device_code  # noqa: E402
from device_code import Container  # noqa: E402

NAMES = {
    "6.0": "Pascal (P100)",
    "7.0": "Volta (V100)",
    "7.5": "Turing (T4)",
    "8.0": "Ampere (A100)",
    "8.9": "Ada (L40S)",
    "9.0": "Hopper (H100)",
    "10.0": "Blackwell (B200)",
}

# What a GPU form serves with the newest driver. A relock that takes something away fails here.
PROMISED = {
    "pytorch": ["7.5", "8.0", "8.9", "9.0", "10.0"],
    "pytorch-gpu-cuda12": ["7.0", "7.5", "8.0", "8.9", "9.0", "10.0"],
    "tensorflow-gpu": ["6.0", "7.0", "7.5", "8.0", "8.9", "9.0", "10.0"],
    "mxnet-gpu": ["6.0", "7.0", "7.5", "8.0", "8.9"],
    "chainer-gpu": ["6.0", "7.0", "7.5", "8.0", "8.9", "9.0"],
    "jax-gpu": ["7.5", "8.0", "8.9", "9.0", "10.0"],
}


def gpu(generation: str, driver: str | None = None) -> Gpu:
    major, minor = generation.split(".")
    return Gpu(NAMES[generation], (int(major), int(minor)), driver)


@pytest.mark.parametrize(
    ("lock", "generation"),
    [
        pytest.param(lock, generation, id=f"{lock} serves {NAMES[generation]}")
        for lock, served in PROMISED.items()
        for generation in served
    ],
)
def test_no_lock_drops_a_generation(lock: str, generation: str) -> None:
    assert capabilities.obstacle(lock, gpu(generation)) is None


@pytest.mark.parametrize("lock", PROMISED)
def test_what_is_not_promised_is_refused(lock: str) -> None:
    served = [g for g in NAMES if capabilities.obstacle(lock, gpu(g)) is None]
    assert served == PROMISED[lock], "it serves more than was promised: promise it"


@pytest.mark.parametrize(
    ("lock", "driver"),
    [("pytorch", 580), ("pytorch-gpu-cuda12", 525), ("tensorflow-gpu", 525), ("mxnet-gpu", 450),
     ("chainer-gpu", 525), ("jax-gpu", 525)],
)  # fmt: skip
def test_no_lock_asks_for_a_newer_driver(lock: str, driver: int) -> None:
    a100 = capabilities.obstacle(lock, gpu("8.0", f"{driver}.10"))
    assert a100 is None
    older = capabilities.obstacle(lock, gpu("8.0", f"{driver - 1}.99"))
    assert (
        older
        == f"needs NVIDIA driver {driver} or newer, this machine has {driver - 1}.99: update it"
    )


def test_tensorflow_on_hopper_needs_a_driver_that_compiles_its_ptx() -> None:
    assert capabilities.obstacle("tensorflow-gpu", gpu("9.0", "555.42")) is None
    why = capabilities.obstacle("tensorflow-gpu", gpu("9.0", "550.90"))
    assert why and "driver 555 or newer compiles" in why and "tensorflow 2.21.0" in why


def test_the_table_is_that_of_the_locks() -> None:
    """Otherwise: make lock."""
    table = capabilities.table()
    assert list(table) == [lock.stem for lock in device_code.locks()]
    for lock in device_code.locks():
        pins = device_code.requirements(lock)
        held = [package for package in pins if device_code.libraries_of(package)]
        assert list(table[lock.stem]["packages"]) == held, lock.name
        assert all(table[lock.stem]["packages"].values()), "a package without any GPU code"
        assert table[lock.stem]["driver"] == (device_code.driver(pins) if held else None)


def test_every_gpu_form_has_code_of_its_framework_and_of_the_three_libraries() -> None:
    for kernel in {row.kernel for row in ROWS}:
        for form in capabilities.forms(kernel):
            packages = capabilities.table()[capabilities.lock(kernel, form)]["packages"]
            # None in a kernel that is for CPUs only; PROMISED holds those that are not.
            assert len(packages) in (0, 4), (kernel, form)


def row(lock: str) -> str:
    """A lock's row in the documentation's table."""
    least = capabilities.table()[lock]["driver"]
    machine_code: list[str] = []
    ptx: dict[str, str] = {}
    for generation in device_code.GENERATIONS:
        major, minor = map(int, generation.split("."))
        drivers = (d for d in sorted(device_code.PTX_DRIVERS.values()) if d >= least)
        tried = (Gpu("", (major, minor), str(driver)) for driver in drivers)
        first = next((gpu for gpu in tried if capabilities.obstacle(lock, gpu) is None), None)
        if first and first.driver == str(least):
            machine_code.append(generation)
        elif first:
            ptx[generation] = str(first.driver)
    compiled = f"{', '.join(ptx)}: driver {max(ptx.values())}" if ptx else ""
    return f"| `{lock}.txt` | {', '.join(machine_code)} | {compiled} | {least} |"


@pytest.mark.parametrize("lock", PROMISED)
def test_the_documentation_has_the_table(lock: str) -> None:
    page = (paths.ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    assert row(lock) in page.splitlines()


# --- Reading it -------------------------------------------------------------------------------


def container(*entries: tuple[int, int, tuple[int, int]]) -> bytes:
    """A container as nvcc writes one: entries of kind, architecture and version."""
    body = b"".join(
        struct.pack("<HHIQ8xHHI", kind, 0x101, 64, 24, minor, major, architecture) + b"\0" * 56
        for kind, architecture, (major, minor) in entries
    )
    return device_code.MAGIC + struct.pack("<Q", len(body)) + body


def test_a_librarys_containers_are_read(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    two = container((2, 70, (1, 7)), (2, 80, (1, 7)), (1, 80, (7, 8))) + b"text"
    library.write_bytes(b"\x7fELF" + two + container((2, 90, (1, 8))))
    assert device_code.containers(library) == [
        Container(frozenset({70, 80}), frozenset({(80, "7.8")})),
        Container(frozenset({90}), frozenset()),
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no code",
        device_code.MAGIC,
        device_code.MAGIC + b"\xff" * 40,
        container((2, 70, (1, 7)))[:30],
    ],
)
def test_what_only_looks_like_a_container_is_none(content: bytes, tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(content)
    assert device_code.containers(library) == []


def code(machine_code: set[int], ptx: set[tuple[int, str]] | None = None) -> Container:
    return Container(frozenset(machine_code), frozenset(ptx or set()))


def test_machine_code_serves_its_major_version_and_ptx_all_newer_ones() -> None:
    assert device_code.serves([code({70, 86})]) == {
        "machine code": ["7.0", "7.5", "8.6", "8.9"], "ptx": {},
    }  # fmt: skip
    assert device_code.serves([code({80}, {(80, "8.5")})]) == {
        "machine code": ["8.0", "8.6", "8.9"],
        "ptx": {"9.0": 555, "10.0": 555, "10.3": 555, "12.0": 555},
    }
    assert device_code.serves([code(set(), {(90, "9.0")})]) == {
        "machine code": [], "ptx": {"9.0": 580, "10.0": 580, "10.3": 580, "12.0": 580},
    }  # fmt: skip
    assert device_code.serves([]) == {}


def test_where_most_of_a_library_is_ptx_the_driver_must_compile_it() -> None:
    """So TensorFlow's on Hopper: a fifth has machine code, all have PTX."""
    found = device_code.serves([code({80}, {(90, "8.5")})] * 80 + [code({80, 90})] * 20)
    assert "9.0" not in found["machine code"]
    assert found["ptx"]["9.0"] == 555


def test_a_little_ptx_serves_none() -> None:
    """So cuDNN 8.9.7's on Blackwell: only a seventh has it."""
    found = device_code.serves([code({90})] * 85 + [code({90}, {(90, "8.2")})] * 15)
    assert found == {"machine code": ["9.0"], "ptx": {}}


def test_stray_code_is_not_counted() -> None:
    found = device_code.serves([code({90})] * 999 + [code(set(), {(52, "8.8")}), code({70})])
    assert found == {"machine code": ["9.0"], "ptx": {}}


def test_the_parts_of_a_lock_are_told_apart() -> None:
    pins = device_code.requirements(ENVIRONMENTS / "pytorch-gpu-cuda12.txt")
    assert "torch==2.10.0" in pins
    assert pins["torch==2.10.0"].count("--hash=") > 1
    assert not re.search(r"^\w", pins["torch==2.10.0"].partition("\n")[2], re.M)

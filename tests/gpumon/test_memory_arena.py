"""What the driver fills lies in one piece of memory, and a sample names what was touched."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import pytest

from gpumon import series
from gpumon.scheduler import Scheduler
from gpumon.series import Call, Number, Poll, Series, Source, Unavailable
from gpumon.trace_files import samples_file
from gpumon.writer import Writer


class Pair(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int), ("value", ctypes.c_double))


def test_numbers_of_several_structures_are_taken_out_at_once() -> None:
    count, pair = (
        series.allocate(ctypes.c_uint),
        series.allocate(Pair, code=-7, value=0.5),
    )
    large = series.allocate(ctypes.c_ulonglong)
    count.value, large.value = 2**32 - 1, 2**64 - 1
    code = ctypes.c_int.from_buffer(pair, Pair.code.offset)
    share = ctypes.c_double.from_buffer(pair, Pair.value.offset)
    assert series.unpacker([count, code, share, large])(series.MEMORY) == (
        2**32 - 1,
        -7,
        0.5,
        2**64 - 1,
    )
    assert series.unpacker([share, large])(series.MEMORY) == (0.5, 2**64 - 1)
    assert series.unpacker([])(series.MEMORY) == ()


def test_a_function_is_given_where_a_pointer_points() -> None:
    cell = ctypes.c_int(5)
    seen = []

    def answer(place: int, number: int) -> int:
        seen.append((place, number))
        return 0

    ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(answer)
    pointer = ctypes.pointer(cell)
    arguments = [series.as_argument(each) for each in (pointer, 3)]
    assert not isinstance(arguments[0], type(pointer)) and arguments[1] == 3
    ask(*arguments)
    assert seen == [(ctypes.addressof(cell), 3)]


def test_a_number_that_fails_leaves_the_others_and_all_that_fail_are_one_failure() -> None:
    codes, values = ((ctypes.c_uint * 2)() for _ in range(2))
    numbers = [
        Number(
            ctypes.c_uint.from_buffer(values, 4 * n), code=ctypes.c_uint.from_buffer(codes, 4 * n)
        )
        for n in range(2)
    ]
    poll = Poll([], numbers, lambda code: Unavailable(f"code {code}"))
    values[:], codes[:] = [10, 20], [0, 9]
    first, second = poll.read()
    assert first == 10 and isinstance(second, Unavailable) and str(second) == "code 9"
    codes[:] = [8, 9]
    with pytest.raises(Unavailable, match="code 8"):
        poll.read()


@pytest.mark.parametrize("fails", ["first call", "number", "nothing"])
def test_after_a_call_that_fails_the_same_is_read_again(tmp_path: Path, fails: str) -> None:
    """Two readings take turns; the other one begins with what this one has taken."""
    cell, code = (series.allocate(ctypes.c_uint, value=0) for _ in range(2))
    number = Number(cell, code=code)
    failing: dict[str, int] = {}
    calls: list[Call] = [(lambda: failing.get("first call", 0), ()), (lambda: len(failing), ())]
    calls = calls if fails == "first call" else calls[:1]
    one, other = (Poll(calls, [number], lambda code: Unavailable(f"{code}")) for _ in range(2))
    one.alternate, other.alternate = other, one
    source = Source("gpu0", [Series("gpu0/a (%)", "none")], one.read, poll=one)
    sampler = Scheduler([source], 1.0, Writer(samples_file(tmp_path / "t")))
    sampler.tick(0, 0.0)  # of one
    failing[fails] = 15
    code.value = 15 * (fails == "number")
    sampler.tick(1, 1.0)  # of the other
    assert source.poll is (other if fails == "first call" else one)
    events = [
        line["reason"]
        for line in map(json.loads, samples_file(tmp_path / "t").read_text().splitlines())
        if isinstance(line, dict)
    ]
    assert events == ([] if fails == "nothing" else ["15"])


def test_only_what_was_touched_is_looked_at(tmp_path: Path) -> None:
    writer = Writer(samples_file(tmp_path / "t"))
    writer.sample(0, [1.0, 2.0, 3.0], [])  # the first names all
    writer.sample(1, [7.0, 8.0, 9.0], [2, 0])
    writer.sample(2, [7.0, 8.0, 9.0], [0, 1, 2])
    writer.close()
    lines = [json.loads(line) for line in samples_file(tmp_path / "t").read_text().splitlines()]
    assert lines == [[0, 0, 1.0, 1, 2.0, 2, 3.0], [1, 2, 9.0, 0, 7.0], [2, 1, 8.0]]

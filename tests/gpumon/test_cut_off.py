"""A trace whose files were cut off at any byte: nothing is made up."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpumon_tools import Marks, write

import gpumon

MARKS: Marks = (("train", 1.0, 20.0, {"items": 8, "epoch": 1}), ("train/step", 2.0, 3.0, {}))
FILES = ("t.jsonl", "t.marks.jsonl")
Edit = Callable[[bytes], bytes]


@pytest.fixture(scope="module", name="sound")
def sound_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace that has samples, marks and events."""
    folder = tmp_path_factory.mktemp("sound")
    lost = {"t": 90.0, "event": "device lost", "device": "gpu0", "reason": "off the bus"}
    busy: list[float | None] = [float(number % 7) for number in range(150)]
    write(folder / "t", {"gpu0": busy}, marks=MARKS, events=[lost])
    return folder


@contextmanager
def spoilt(sound: Path, **edits: Edit) -> Iterator[Path]:
    """A copy of the trace in which files are edited; gives its prefix."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(sound, copy)
        for name, edit in edits.items():
            (copy / name).write_bytes(edit((copy / name).read_bytes()))
        yield copy / "t"


def known(trace: gpumon.Trace) -> set[tuple[str, float, float]]:
    """Every value that the trace says was measured: its series, moment and size."""
    read = trace.recording
    return {(key, moment, value) for (moment, key), value in read.frame.stack().dropna().items()}


@pytest.mark.parametrize("name", FILES)
def test_of_a_file_that_is_cut_off_anywhere_nothing_is_made_up(sound: Path, name: str) -> None:
    """As a kill or a full disk leaves it."""
    whole = gpumon.read(sound / "t")
    everything, phases = known(whole), {mark.name for mark in whole.recording.marks}
    size = (sound / name).stat().st_size
    header = (sound / name).read_bytes().find(b"\n") + 1 if name == FILES[0] else 0
    for length in [*range(header, size, max(1, size // 60)), size - 1]:
        with spoilt(sound, **{name: lambda content, to=length: content[:to]}) as prefix:  # type: ignore[misc]
            cut = gpumon.read(prefix)
        assert known(cut) <= everything, length
        assert {mark.name for mark in cut.recording.marks} <= phases
        lost = everything - known(cut)
        if name != FILES[0]:
            assert not lost

"""Whatever a trace's files hold, it is refused in one line or read; cut off, nothing is made up."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from gpumon_tools import Marks, write
from hypothesis import given, settings
from hypothesis import strategies as st

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


# --- Any bytes -------------------------------------------------------------------------------

NUMBERS = (True, -1, 0, 1e300, -1e-300, math.nan, math.inf, 10**40)
TEXTS = ("", "\x1b[2J", "x" * 999, "\ud800", "../t")
STRANGE: st.SearchStrategy[Any] = st.sampled_from([None, [], {}, *NUMBERS, *TEXTS])
PLACE = st.floats(0, 1)


@st.composite
def edit(draw: st.DrawFn) -> Edit:
    """Bytes put in, taken out or doubled, a line moved, or a value of a line that is another."""
    kind = draw(st.sampled_from(["put", "cut", "double", "swap", "value", "value"]))
    at, other, length = draw(PLACE), draw(PLACE), draw(st.integers(1, 40))
    data, strange = draw(st.binary(max_size=6)), draw(STRANGE)

    def apply(content: bytes) -> bytes:
        place = round(at * len(content))
        if kind == "put":
            return content[:place] + data + content[place + length % 3 :]
        if kind == "cut":
            return content[:place] + content[place + length :]
        if kind == "double":
            return content[: place + length] + content[place:]
        lines = content.split(b"\n")
        one = round(at * (len(lines) - 1))
        if kind == "swap":
            two = round(other * (len(lines) - 1))
            lines[one], lines[two] = lines[two], lines[one]
        else:
            with suppress(ValueError):
                lines[one] = json.dumps(replaced(json.loads(lines[one]), other, strange)).encode()
        return b"\n".join(lines)

    return apply


def replaced(found: Any, where: float, value: Any) -> Any:
    """The value with one of its items, or items' items, replaced."""
    items = list(found.items() if isinstance(found, dict) else enumerate(found))
    if not items:
        return value
    key, inner = items[min(len(items) - 1, int(where * len(items)))]
    deeper = isinstance(inner, (dict, list)) and inner and where * len(items) % 1 > 0.1
    found[key] = replaced(inner, where * len(items) % 1, value) if deeper else value
    return found


def look(prefix: Path) -> None:
    """All that reads a trace; MonitorError where it is refused."""
    trace = gpumon.read(prefix)
    read = trace.recording
    assert all(len(column) == len(read.times) for column in read.columns)
    assert all(math.isfinite(moment) for moment in read.times)
    assert list(read.times) == sorted(read.times)
    (
        trace.summary().to_pandas(),
        trace.phases(),
        trace.to_pandas(),
        trace.metadata(),
        trace.diagnosis(),
    )
    assert "\x1b" not in trace.html()
    for kind in ("csv", "json"):
        trace.export(prefix.with_name(f"out.{kind}"))


def strange_traces(sound: Path, most: int) -> Callable[[], None]:
    """What hypothesis runs: ``most`` traces with files that are edited."""
    edits = st.lists(st.tuples(st.sampled_from(FILES), edit()), min_size=1, max_size=3)

    @settings(max_examples=most)
    @given(edits=edits)
    def check(edits: list[tuple[str, Edit]]) -> None:
        with spoilt(sound) as prefix:
            for name, change in edits:
                file = prefix.parent / name
                file.write_bytes(change(file.read_bytes()))
            try:
                look(prefix)
            except gpumon.MonitorError as error:
                assert str(error).isprintable()

    return check


def test_whatever_the_files_hold_it_is_refused_in_one_line_or_read(sound: Path) -> None:
    strange_traces(sound, 200)()


@pytest.mark.slow
def test_whatever_the_files_hold_for_long(sound: Path) -> None:
    strange_traces(sound, 20_000)()


# --- Cut off ---------------------------------------------------------------------------------


def known(trace: gpumon.Trace) -> set[tuple[str, float, float]]:
    """Every value that the trace says was measured: its series, moment and size."""
    read = trace.recording
    return {
        (key, moment, value)
        for key, column in zip(read.keys, read.columns, strict=True)
        for moment, value in zip(read.times, column, strict=True)
        if value == value
    }


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

"""The profiles of all ranks in one file, on the monitor's clock."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpumon
from helpers.errors import UnsupportedError
from helpers.frameworks.interface import Profiler
from helpers.training import step_profile
from helpers.training.step_clock import StepClock

NOW = 1_800_000_000_000_000_000
"""The first rank's mark, in nanoseconds of its host's wall clock."""


def write(folder: Path, rank: int, mark: int | None, zero: float) -> Path:
    """A rank's trace on a clock of its own, with a step 10 us after the mark, and an arrow."""
    at = {"ph": "X", "pid": 7, "tid": 7, "dur": 5}
    named = {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}}
    events: list[Any] = [named, at | {"name": "step 1", "ts": zero + 10}]
    events += [{"ph": kind, "name": "flow", "pid": 0, "ts": zero, "id": 3} for kind in "sf"]
    if mark is not None:
        events.append(at | {"name": f"{step_profile.MARK}{mark}", "ts": zero})
    file = step_profile.file_of(folder, rank)
    events.append({"ph": "i", "s": "g", "name": "its own", "pid": "Traces", "ts": zero - 9})
    file.write_text(json.dumps({"traceEvents": [*events, {}]}))  # as JAX ends its list
    return file


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    """A run's folder with a trace of the monitor."""
    with gpumon.Monitor(tmp_path / "trace") as monitor:
        with monitor.phase("files"):
            time.sleep(0.3)
        with monitor.phase(step_profile.PHASE):
            time.sleep(0.3)
    return tmp_path


def events_of(folder: Path) -> list[dict[str, Any]]:
    found = json.loads((folder / step_profile.FILE).read_text())
    assert found["baseTimeNanoseconds"] > 0
    return list(found["traceEvents"])


def test_ranks_are_put_on_one_clock_and_told_apart(folder: Path) -> None:
    write(folder, 0, NOW, 100.0)
    write(folder, 1, NOW + 2_000_000_000 + 30_000, -5e6)
    (said,) = step_profile.merge(folder, ["", ""], [0.0, 2.0])
    assert said == f"Profile of 2 ranks: {folder / 'profile.json'}; open it in Perfetto."
    events = events_of(folder)
    first, second = (each for each in events if each["name"] == "step 1")
    assert second["ts"] - first["ts"] == pytest.approx(30, abs=1) and first["pid"] != second["pid"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert (names[first["pid"]], names[second["pid"]]) == ("rank 0 python", "rank 1 python")
    arrows = [each["id"] for each in events if each["name"] == "flow"]
    assert len(arrows) == 4 and len(set(arrows)) == 2
    lanes = [name for name in names.values() if name.startswith("gpumon")]
    assert "gpumon: host" in lanes and not list(folder.glob("profile-rank*"))


def test_the_monitors_lanes_are_those_of_the_profiled_seconds(folder: Path) -> None:
    whole = gpumon.read(folder / "trace")
    start = whole.header["start (unix s)"]
    (mark,) = (each for each in whole.recording.marks if each.name == step_profile.PHASE)
    write(folder, 0, round(1e9 * (start + mark.start + 0.1)), 0.0)
    step_profile.merge(folder, [""])
    events = events_of(folder)
    (phase,) = (each for each in events if each["name"] == step_profile.PHASE)
    (step,) = (each for each in events if each["name"] == "step 1")
    assert step["ts"] - phase["ts"] == pytest.approx(1e5 + 10, abs=2)
    assert "files" not in {each["name"] for each in events}
    moments = [each["ts"] for each in events if each["ph"] == "C"]
    assert moments and min(moments) > phase["ts"] - 2.5e5
    assert min(each["ts"] for each in events if "ts" in each) == 0, "Perfetto drops what is before"


def test_a_ranks_phases_stand_with_its_steps(folder: Path) -> None:
    """In the process that ran them, by its number of the profile's."""
    file = write(folder, 0, time.time_ns(), 0.0)
    file.write_text(file.read_text().replace('"pid": 7', f'"pid": {os.getpid()}'))
    step_profile.merge(folder, [""])
    events = events_of(folder)
    assert not [each for each in events if each["name"] == "its own"]
    of = {each["name"]: each["pid"] for each in events if each["ph"] == "X"}
    assert of["step 1"] == of[step_profile.PHASE]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No profile of rank 1: cannot read the profile .*rank1.json: No such file"),
        ('{"traceEv', "No profile of rank 1: .*rank1.json is not a profile in Chrome's format"),
        ('{"traceEvents": [3]}', "No profile of rank 1: .* it has other events"),
        ('{"traceEvents": [{"ts": "x"}]}', "No profile of rank 1: .* it has other events"),
        ('{"traceEvents": []}', "No profile of rank 1: .* it has no event 'wall clock in ns: '"),
    ],
)
def test_a_rank_without_a_sound_trace_is_named_and_the_others_are_kept(
    folder: Path, text: str | None, said: str
) -> None:
    write(folder, 0, NOW, 0.0)
    if text is not None:
        step_profile.file_of(folder, 1).write_text(text)
    found = step_profile.merge(folder, ["", ""])
    assert found[0].startswith("Profile of 1 rank: ") and len(found) == 2
    assert [each["name"] for each in events_of(folder) if each["name"] == "step 1"]
    assert re.match(said, found[1]), found[1]


def test_without_the_monitors_trace_the_ranks_are_kept(tmp_path: Path) -> None:
    write(tmp_path, 0, NOW, 0.0)
    kept, lacks = step_profile.merge(tmp_path, [""])
    assert kept.startswith("Profile of 1 rank: ") and lacks.startswith("The profile is not whole:")
    assert events_of(tmp_path)


def framework(profiler: Any) -> Any:
    return SimpleNamespace(profiler=profiler, synchronize=lambda devices: None)


def taken(folder: Path, profiler: Any) -> tuple[str, int]:
    """Why there is no profile of three steps, and how many were taken."""

    def train(observer: Any) -> None:
        with StepClock(lambda result: None, observer=observer) as clock:
            for each in clock.batches(range(3)):
                steps.append(each)
                clock.queued(each)

    steps: list[int] = []
    file = step_profile.file_of(folder, 0)
    return step_profile.take(framework(profiler), [], file, 3, train), len(steps)


def test_each_step_has_a_range_of_its_own(tmp_path: Path) -> None:
    ranges: list[str] = []

    @contextmanager
    def named(name: str) -> Iterator[None]:
        ranges.append(f"> {name}")
        yield
        ranges.append(f"< {name}")

    def write(file: Path) -> None:
        file.write_text("written")

    assert taken(tmp_path, lambda: Profiler(named, write)) == ("", 3)
    assert ranges[4:] == [f"{sign} step {number}" for number in (1, 2, 3) for sign in "><"]
    assert ranges[2].startswith(f"> {step_profile.MARK}")
    assert step_profile.file_of(tmp_path, 0).read_text() == "written"


def test_a_profiler_that_fails_stops_no_step(tmp_path: Path) -> None:
    def refuses() -> Profiler:
        raise UnsupportedError("it has none")

    def breaks(file: Path) -> None:
        raise RuntimeError("disk full\nmore")

    step_profile.file_of(tmp_path, 0).write_text("of an earlier run")
    assert taken(tmp_path, refuses) == ("it has none", 3)
    assert not step_profile.file_of(tmp_path, 0).exists()
    assert taken(tmp_path, lambda: Profiler(nullcontext, breaks)) == ("disk full", 3)
    lines = step_profile.merge(tmp_path, ["it has none", "it has none"])
    assert lines == ["No profile of rank 0, 1: it has none."]

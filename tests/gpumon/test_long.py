"""Long traces: parts, rows of means, a limit, and readers that take in only what is new."""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path
from typing import Any

import pytest
from gpumon_tools import write
from test_charts import in_the_page, in_the_picture

import gpumon
from gpumon import (
    long_traces,
    merge,
    recording,
    trace_notes,
    writer,
)
from gpumon.long_traces import ROW_SECONDS, parts_folder, tiers_file
from gpumon.trace_files import samples_file

SECONDS = 200
STEP = 0.5
DIGIT = 1 / long_traces.FINE


def value(number: int) -> float:
    return float(50 + 40 * (number % 3 - 1))


class Recorded:
    """A sampler's writer on a clock of its own: a GPU, and its bits, which change every minute."""

    def __init__(self, prefix: Path, **options: Any) -> None:
        sound = samples_file(write(prefix.with_name("sound"), {"gpu0": [1.0]}, step=STEP))
        header = json.loads(sound.read_text().splitlines()[0])
        header["series"].append({"key": "gpu0/throttle reasons (bits)", "api": "", "reason": None})
        self.writer = writer.Writer(samples_file(prefix), **options)
        self.writer.line(header)
        self.number = 0

    def go(self, seconds: float, gap: tuple[float, float] = (math.inf, math.inf)) -> None:
        for _ in range(round(seconds / STEP)):
            now = self.number * STEP
            if not gap[0] <= now < gap[1]:
                bits = 4.0 if now % 100 > 95 else 0.0
                row: list[float | None] = [
                    value(self.number),
                    100.0 + self.number,
                    300.0,
                    20.0,
                    4000.0,
                    bits,
                ]
                self.writer.sample(now, row)
            self.number += 1

    def end(self) -> None:
        self.writer.event(self.number * STEP, "end", why="closed")
        self.writer.close()


@pytest.fixture(name="small")
def small_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART", 1500)
    monkeypatch.setattr(recording, "A_PART", 0)


def as_rows(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> gpumon.Trace:
    with monkeypatch.context() as few:
        few.setattr(recording, "MOST_VALUES", 100)
        return gpumon.read(prefix)


def test_parts_are_read_as_if_they_were_one(tmp_path: Path, small: None) -> None:
    made = Recorded(tmp_path / "t")
    made.go(60)
    made.writer.event(60, "device lost", device="gpu0", reason="off the bus")
    made.go(SECONDS - 60)
    made.end()
    assert len(list(parts_folder(tmp_path / "t").iterdir())) > 3
    assert samples_file(tmp_path / "t").stat().st_size < 5000
    trace = gpumon.read(tmp_path / "t")
    wanted = [value(number) for number in range(round(SECONDS / STEP))]
    assert list(trace.to_pandas()["gpu0/utilisation (%)"]) == wanted
    assert [e["t"] for e in trace.recording.events] == [60, SECONDS]
    assert trace.metadata()["ended"] == "closed" and trace.recording.ranges is None
    with gpumon.Monitor(tmp_path / "t"):  # takes the older trace's place, whole
        pass
    assert not parts_folder(tmp_path / "t").exists() and not tiers_file(tmp_path / "t").exists()


def noisy(number: int) -> list[float | None]:
    """A value that moves, one that stays, one that is missing at times, and bits."""
    return [number % 7 + 0.25, 5, None if number % 90 < 30 else number % 3, number // 40 % 2 * 4]


def lines_of(times: list[float]) -> list[list[Any]]:
    """What a writer writes of noisy samples: at first all, then what changed."""
    lines, before = [], None
    for now in times:
        values = noisy(round(now * 10))
        changed = [n for n in range(4) if before is None or values[n] != before[n]]
        lines.append([round(now, 4), *(x for n in changed for x in (n, values[n]))])
        before = values
    return lines


def at_once(steps: long_traces.Steps[Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def test_a_part_and_its_rows_hold_what_its_samples_say(tmp_path: Path) -> None:
    times = [n * 0.1 for n in range(1000) if not 333 < n < 350]  # with a gap
    columns = at_once(long_traces.columns_of(lines_of(times), 4))
    rows = long_traces.Rows(4)
    for row in long_traces.rows_of(columns, 0.1, 100.0, [3]):
        rows.add(row)
    assert list(rows.times) == [0, 20, 40, 60, 80]
    for place, start in enumerate(rows.times):
        inside = [n for n in range(1000) if start <= n / 10 < start + 20 and not 333 < n < 350]
        for series in range(3):
            known = [v for n in inside if (v := noisy(n)[series]) is not None]
            assert rows.means[series][place] == pytest.approx(sum(known) / len(known), abs=DIGIT)
            assert rows.lows[series][place] == min(known)
            assert rows.highs[series][place] == max(known)
        held = [noisy(n)[3] for n in inside]
        assert rows.means[3][place] == max((0, 4), key=held.count)
    part = at_once(long_traces.write_part(tmp_path / "t.parts", 1, columns))
    moments, found = long_traces.read_part(tmp_path / "t", part, 4)
    assert list(moments) == pytest.approx(times)
    for series, (places, values) in enumerate(found):
        wanted = [noisy(round(now * 10))[series] for now in times]
        changed = [n for n, v in enumerate(wanted) if n == 0 or v != wanted[n - 1]]
        assert list(places) == changed
        told = [None if math.isnan(v) else v for v in values]
        assert told == [wanted[n] for n in changed]


def test_rows_have_mean_and_range_and_no_invention(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Recorded(tmp_path / "t")
    made.go(70, gap=(61.0, 143.0))
    made.writer.event(61.0, "gap", reason="stopped")  # as the sampler says once it goes on
    made.go(SECONDS - 70, gap=(61.0, 143.0))
    made.end()
    trace = as_rows(tmp_path / "t", monkeypatch)
    read = trace.recording
    count = len(json.loads(samples_file(tmp_path / "t").open().readline())["parts"])
    # The last row of each part is cut short.
    assert (
        read.step == ROW_SECONDS and 0 < count < len(read.times) < SECONDS / ROW_SECONDS + count + 3
    )
    busy, ranged = read.series("gpu0/utilisation (%)"), read.range("gpu0/utilisation (%)")
    assert ranged is not None
    low, high = ranged
    assert busy is not None
    first = [value(number) for number in range(round(read.times[1] / STEP))]
    assert busy[0] == pytest.approx(sum(first) / len(first), abs=DIGIT) and (low[0], high[0]) == (
        10,
        90,
    )
    # Only the beginning of the row before the gap is known, and nothing of the minute after that.
    (gap,) = read.gaps
    assert gap["t"] == 61 and gap["t"] + gap["seconds"] == pytest.approx(143)
    place = list(read.times).index(gap["t"])
    before = [value(number) for number in range(round(read.times[place - 1] / STEP), 122)]
    assert busy[place - 1] == pytest.approx(sum(before) / len(before), abs=DIGIT)
    assert math.isnan(busy[place])
    whole = gpumon.read(tmp_path / "t").summary().to_pandas().iloc[0]
    row = trace.summary().to_pandas().iloc[0]
    assert row["utilisation mean (%)"] == pytest.approx(whole["utilisation mean (%)"], rel=0.03)
    assert row["memory peak (MiB)"] == whole["memory peak (MiB)"]
    assert set(read.series("gpu0/throttle reasons (bits)") or ()) - {0.0, 4.0} != {2.0}
    picture, page = in_the_picture(trace), in_the_page(trace)
    assert picture["notes"] == page["notes"] and "means over 20 s" in picture["notes"]
    assert trace.export(tmp_path / "t.csv").read_text().count("\n") == len(read.times) + 1


def test_a_limit_drops_the_oldest_samples_and_keeps_their_means(
    tmp_path: Path, small: None
) -> None:
    made = Recorded(tmp_path / "t", limit=1000)
    made.go(SECONDS)
    made.end()
    files = list(parts_folder(tmp_path / "t").iterdir())
    assert 0 < sum(file.stat().st_size for file in files) <= 1000
    read = gpumon.read(tmp_path / "t").recording
    assert read.step == ROW_SECONDS and read.times[0] == 0 and read.end == SECONDS
    assert not read.gaps
    with pytest.raises(gpumon.MonitorError, match="above 0"):
        gpumon.Monitor(tmp_path / "u", max_trace_mb=0)
    with pytest.raises(gpumon.MonitorError, match="finite number"):
        gpumon.Monitor(tmp_path / "u", max_trace_mb=float("inf"))


def test_a_limit_below_one_part_keeps_the_means_of_all(tmp_path: Path, small: None) -> None:
    made = Recorded(tmp_path / "t", limit=1)
    made.go(SECONDS)
    made.end()
    assert not list(parts_folder(tmp_path / "t").iterdir())
    trace = gpumon.read(tmp_path / "t")
    read = trace.recording
    assert read.times[0] == 0 and read.end == SECONDS and not read.gaps and not read.damaged
    (note,) = [text for text in trace_notes.notes(read) if "means over 20 s" in text]
    assert "limit" in note and "long" not in note  # it is read so for its limit, not its length
    # A merged trace has every row as a sample, and no rows beside it.
    other = write(tmp_path / "other", {"gpu0": [1.0] * 200}, boot="boot-b", host="other")
    saved = merge.save(gpumon.read([tmp_path / "t", other]).recording, tmp_path / "both")
    assert len(gpumon.read(saved).recording.times) > SECONDS


@pytest.mark.parametrize("in_the_way", ["t.parts", "t.tiers", ".t.jsonl.new"])
def test_a_part_that_cannot_be_begun_costs_no_sample(
    tmp_path: Path,
    small: None,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    in_the_way: str,
) -> None:
    blocked = tmp_path / in_the_way
    make, remove = (
        (blocked.touch, blocked.unlink)
        if in_the_way == "t.parts"
        else (blocked.mkdir, blocked.rmdir)
    )
    make()
    made = Recorded(tmp_path / "t")
    made.go(60)
    assert not as_rows(tmp_path / "t", monkeypatch).recording.damaged
    remove()
    made.go(SECONDS - 60)
    made.end()
    assert capfd.readouterr().out.count("warning: gpumon cannot write") == 1
    assert len(gpumon.read(tmp_path / "t").to_pandas()) == SECONDS / STEP
    rows = as_rows(tmp_path / "t", monkeypatch).recording
    assert not rows.damaged and not rows.gaps and rows.times[0] == 0


@pytest.mark.parametrize("limit", [1, 1000])
def test_no_part_is_dropped_before_a_header_without_it_is_on_disk(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """At any moment a kill, and in the first that would drop a part a full disk, loses nothing."""
    made = Recorded(tmp_path / "t", limit=limit)
    replace = Path.replace
    failed: list[Path] = []

    def header(file: Path) -> dict[str, Any]:
        with file.open() as lines:
            found: dict[str, Any] = json.loads(lines.readline())
            return found

    def all_there() -> bool:
        listed = header(samples_file(tmp_path / "t")).get("parts", [])
        return {part["file"] for part in listed} <= {
            file.name for file in parts_folder(tmp_path / "t").iterdir()
        }

    def fails_once(path: Path, target: Path) -> Path:
        assert all_there()
        if header(path).get("dropped") and not failed:
            failed.append(path)
            raise OSError(errno.ENOSPC, "no space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fails_once)
    while not failed:
        made.go(STEP)
    assert all_there() and not gpumon.read(tmp_path / "t").recording.damaged
    made.go(SECONDS)
    made.end()
    read = gpumon.read(tmp_path / "t").recording
    assert all_there() and not read.damaged and not read.gaps and read.times[0] == 0
    files = parts_folder(tmp_path / "t").iterdir()
    assert sum(file.stat().st_size for file in files) <= limit


def test_samples_of_which_there_are_rows_already_are_taken_once(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kill leaves it between the rows of a part and the header that names the part."""
    made = Recorded(tmp_path / "t")
    made.go(90)
    (tmp_path / ".t.jsonl.new").mkdir()
    size = tiers_file(tmp_path / "t").stat().st_size
    while tiers_file(tmp_path / "t").stat().st_size == size:
        made.go(STEP)
    made.go(3 * STEP)
    rows = as_rows(tmp_path / "t", monkeypatch).recording
    assert not rows.damaged and not rows.gaps
    ranged = rows.range("gpu0/memory used (MiB)")
    assert ranged is not None and ranged[1][-1] == 100 + made.number - 1
    made.end()


def test_a_sample_is_a_line_of_json_that_names_what_changed(tmp_path: Path) -> None:
    made = Recorded(tmp_path / "t")
    now: list[float | None] = [1, None, -0.5, 1e-7, 4000.0, 4.0]
    for number, place, other in ((0, 0, 1), (1, 0, None), (2, 1, 7.25), (3, 1, 7.25), (4, 1, None)):
        now[place] = other
        made.writer.sample(number / 10, now)
    made.writer.close()
    found = [json.loads(line) for line in samples_file(tmp_path / "t").read_text().splitlines()]
    whole = [0.0, *(x for n, v in enumerate([1, None, -0.5, 1e-7, 4000.0, 4.0]) for x in (n, v))]
    assert found[1:] == [whole, [0.1, 0, None], [0.2, 1, 7.25], [0.3], [0.4, 1, None]]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda prefix, part: part.write_bytes(b"no part"),
        lambda prefix, part: part.unlink(),
        lambda prefix, part: part.write_bytes(part.read_bytes()[:200]),
        lambda prefix, part: part.write_bytes(
            part.read_bytes().replace(b'"samples": ', b'"samples": 9')
        ),
        lambda prefix, part: part.write_bytes(b'{"samples": 1, "times": 1, "sizes": 3}\n'),
    ],
)
def test_a_damaged_part_is_counted_and_is_a_gap(tmp_path: Path, small: None, spoil: Any) -> None:
    made = Recorded(tmp_path / "t")
    made.go(SECONDS)
    made.end()
    spoil(tmp_path / "t", sorted(parts_folder(tmp_path / "t").iterdir())[1])
    trace = gpumon.read(tmp_path / "t")
    assert trace.recording.damaged and len(trace.recording.gaps) == 1


def test_what_an_untrusted_wrote_is_refused_or_left_out(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Recorded(tmp_path / "t")
    made.go(SECONDS)
    made.end()
    sound = as_rows(tmp_path / "t", monkeypatch).recording
    content = tiers_file(tmp_path / "t").read_bytes()
    for garbage in (b"\xff" * 1000, b"\n" + content.split()[0][:-9]):  # the other is a torn row
        tiers_file(tmp_path / "t").write_bytes(b"\n" + garbage + content)
        read = as_rows(tmp_path / "t", monkeypatch).recording
        assert read.damaged == 1 and (read.times, read.end) == (sound.times, SECONDS)
    file = samples_file(tmp_path / "t")
    header, *rest = file.read_text().splitlines()
    for name in ("../../etc/passwd", "1.part", 7):
        content = json.loads(header)
        content["parts"][0]["file"] = name
        file.write_text("\n".join([json.dumps(content), *rest]) + "\n")
        with pytest.raises(gpumon.MonitorError, match=r"parts\[0\] is no part"):
            gpumon.read(tmp_path / "t")

"""Traces of older versions open with the present names; those under docs/results are examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpumon_tools import write

import gpumon
from gpumon.recording import Recording, load

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
PUBLISHED = sorted(
    path.with_name(path.name.removesuffix(".marks.jsonl"))
    for path in RESULTS.rglob("*.marks.jsonl")
)


def items(recording: Recording) -> list[float]:
    return [mark.attributes["items"] for mark in recording.marks if "items" in mark.attributes]


@pytest.mark.parametrize("prefix", PUBLISHED, ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_published_trace_opens_with_its_items(prefix: Path) -> None:
    lines = prefix.with_name(prefix.name + ".marks.jsonl").read_text().splitlines()
    marks = [line for line in map(json.loads, lines) if isinstance(line, list) and line[0] == "B"]
    former = [mark[5]["images"] for mark in marks if "images" in mark[5]]
    recording = load(prefix)
    assert sorted(items(recording)) == sorted(former)
    assert not any("images" in mark.attributes for mark in recording.marks)


def test_a_published_trace_has_figures(tmp_path: Path) -> None:
    example = next(p for p in PUBLISHED if '"images"' in Path(f"{p}.marks.jsonl").read_text())
    table = gpumon.read(example).summary().to_pandas().set_index(["phase", "device"])
    row = table.loc[("train", "host")]
    assert row["items"] > 0 and row["items/s"] == pytest.approx(row["items"] / row["seconds"])


def test_a_merged_trace_of_an_older_version_keeps_its_clock_offset(tmp_path: Path) -> None:
    offset = {"boot": "boot-a", "ahead (s)": 5.0, "within (s)": 0.001, "wall (s)": 0.5}
    write(tmp_path / "a", {"gpu0": [1.0] * 4}, host="n1")
    write(tmp_path / "b", {"gpu0": [2.0] * 4}, host="n2", boot="boot-b", start=1005.0)
    file = tmp_path / "b.jsonl"
    header, *rest = file.read_text().splitlines()
    file.write_text("\n".join([json.dumps(json.loads(header) | {"apart": offset}), *rest]) + "\n")
    recording = load(tmp_path / "b")
    assert recording.header["clock offset"] == offset and "apart" not in recording.header
    (sentence,) = gpumon.read([tmp_path / "a", tmp_path / "b"]).header["clocks"]
    assert "measured during the run" in sentence


def test_the_former_name_of_the_count_is_refused_in_a_program(tmp_path: Path) -> None:
    marker = gpumon.Marker(tmp_path / "t.marks.jsonl")
    with pytest.raises(gpumon.MonitorError, match="images= is now items="):
        marker.phase("train", images=8)

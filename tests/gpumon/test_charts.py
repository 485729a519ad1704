"""The picture and the web page of a trace say the same."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gpumon_tools import Spans, data_of, said_by, write

import gpumon
from gpumon.__main__ import main
from gpumon.drawing.style import THEMES, phase_colours
from helpers import paths

SPANS: Spans = (("train", 0.0, 12.0, {"epoch": 1}),)
LOST = {"t": 7.0, "event": "device lost", "device": "gpu0", "reason": "GPU is lost"}


def with_everything(folder: Path, gpus: int) -> gpumon.Trace:
    """A trace with a lost GPU, one without utilisation, a gap, and damaged lines."""
    busy: dict[str, list[float | None]] = {f"gpu{n}": [50.0] * 12 for n in range(gpus)}
    if gpus > 1:
        busy["gpu1"] = [None] * 12
    events = [LOST] if gpus else []
    path = write(folder / "t", busy, spans=SPANS, events=events, without=range(3, 6))
    file = path.with_name("t.jsonl")
    header, *rest = file.read_text().splitlines()
    content = json.loads(header)
    for series in content["series"]:
        if series["key"] == "gpu1/utilisation (%)":
            series["reason"] = "nvmlDeviceGetUtilizationRates: Not Supported"
    file.write_text("\n".join([json.dumps(content), "}torn{", *rest]) + "\n")
    return gpumon.read(path)


def lanes(chart: Any) -> list[Any]:
    return [axes for axes in chart.axes if axes.get_ylim() == (0, 104)]


def in_the_picture(trace: gpumon.Trace, series: Sequence[str] = ()) -> dict[str, Any]:
    chart = trace.plot(title="A run", series=series)
    chart.canvas.draw()
    shown = lanes(chart)
    legends = filter(None, (axes.get_legend() for axes in chart.axes))
    return {
        "lanes": {text.get_text().strip() for axes in shown for text in axes.texts} - {""},
        "legend": {text.get_text() for legend in legends for text in legend.get_texts()},
        "notes": said_by(chart).removeprefix("A run").strip(),
        "tops": [axes.get_yticklabels()[-1].get_text() for axes in shown],
    }


def in_the_page(trace: gpumon.Trace, series: Sequence[str] = ()) -> dict[str, Any]:
    page = trace.html(title="A run", series=series)
    data = data_of(page)
    texts: set[str] = set()
    for lane in data["lanes"]:
        texts |= {lane["title"], lane["subtitle"], lane["reason"]}
        texts |= {words for _, words, _ in lane["marks"]} | {line["note"] for line in lane["lines"]}
    legend = re.findall(r"<span>(?:<i[^>]*></i>)(.*?)</span>", page)
    return {
        "lanes": texts - {""},
        "legend": set(map(html.unescape, legend)) - set(data["colours"]["light"]),
        "notes": " ".join(map(html.unescape, re.findall(r'gpumon-note">(.*?)</div>', page))),
        "tops": [lane["top"] for lane in data["lanes"]],
    }


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_picture_and_page_say_the_same(tmp_path: Path, gpus: int) -> None:
    trace = with_everything(tmp_path, gpus)
    picture = in_the_picture(trace)
    assert picture == in_the_page(trace)
    said = " ".join([*picture["lanes"], picture["notes"]])
    assert ("lost at 7 s" in said) == (gpus > 0) and ("GPU is lost" in said) == (gpus > 0)
    assert ("utilisation: nvmlDeviceGetUtilizationRates: Not Supported" in said) == (gpus > 1)
    assert ("No GPU lane: no driver" in said) == (gpus == 0)
    assert "s were not recorded" in said and "1 damaged line of t left out" in said


def test_a_lane_ends_with_its_last_epoch(tmp_path: Path) -> None:
    """And its numbers describe only what is shown, not what was before and after."""
    values: list[float | None] = [*[0.0] * 4, *[80.0] * 4, *[10.0] * 12]
    runs: dict[str, Any] = {}
    for name, end in (("a", 8.0), ("b", 12.0)):
        spans: Spans = (("train", 4.0, end, {}), ("z", end, 20.0, {}))
        runs[name] = write(tmp_path / name, {"gpu0": values}, spans=spans)
    short, long = lanes(gpumon.compare(runs, align="train", until=("train", "validate")))
    assert max(short.lines[0].get_xdata()) == 4 and max(long.lines[0].get_xdata()) == 8
    for axes, said in ((short, {"80 % busy", "4 s"}), (long, {"45 % busy", "8 s"})):
        assert said <= {text.get_text() for text in axes.texts}
    with pytest.raises(gpumon.MonitorError, match="the traces have train"):
        gpumon.compare(runs, align="test")
    chart = gpumon.compare(runs, align="train")
    assert {min(axes.lines[0].get_xdata()) for axes in lanes(chart)} == {-4}
    assert {max(axes.lines[0].get_xdata()) for axes in lanes(chart)} == {16.0}


def test_what_a_trace_lacks_is_refused_with_what_it_has(tmp_path: Path) -> None:
    more: dict[str, list[float | None]] = {
        "gpu0/SM clock (MHz)": [1.0],
        "gpu0/temperature (C)": [None],
    }
    path = write(tmp_path / "gpu", {"gpu0": [1.0]}, more=more)
    known = "utilisation, memory used, power, cpu, SM clock"
    with pytest.raises(gpumon.MonitorError, match=rf"it has {known}$"):
        gpumon.read(path).plot(series=["temperature"])


def test_names_are_neither_markup_nor_formulas(tmp_path: Path) -> None:
    name = r"<img src=x onerror=alert(1)> $\frac$ a/b </script>"
    path = write(tmp_path / "t", {"gpu0": [1.0, None, 3.0]}, spans=((name, 0.0, 3.0, {}),))
    trace = gpumon.read(path)
    page = trace.html(title=name)
    assert "<img" not in page and "a/b </script>" not in page
    assert "http" not in page.replace("https://github.com/leeoniya/uPlot", "")
    assert data_of(page)["lanes"][0]["lines"][0]["v"] == [1.0, None, 3.0, 3.0]
    chart = trace.plot(title=name)
    chart.canvas.draw()
    assert name in [text.get_text() for text in chart.texts]
    gpumon.compare({name: trace}, title=name).canvas.draw()


OTHERS = {
    "gpu0/temperature (C)": 63.0,
    "gpu0/SM clock (MHz)": 1785.0,
    "gpu0/memory clock (MHz)": 2619.0,
    "gpu0/PCIe received (MiB/s)": 0.0123,
    "gpu0/NVLink sent (MiB/s)": 123456.0,
    "process/processes (count)": 2.0,
    "gpu0/throttle reasons (bits)": 68.0,
    "gpu0/energy (J)": 5021.0,
    "host/disk written (MiB/s)": 7.31,
    "host/network sent (MiB/s)": 0.0,
}
NAMES = ["temperature", "clocks", "PCIe", "NVLink", "processes", "throttle", "energy", "disk"]
NAMES += ["network"]


def test_any_series_reads_the_same_in_picture_and_page(tmp_path: Path) -> None:
    """Lanes, labels, units and values; and what a pointer reads is what stands at the side."""
    more: dict[str, list[float | None]] = {key: [value] * 12 for key, value in OTHERS.items()}
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [50.0] * 12}, more=more, spans=SPANS))
    picture = in_the_picture(trace, NAMES)
    assert picture == in_the_page(trace, NAMES)
    told = {"temperature 63 °C", "disk written 7.31 MiB/s", "SM clock 1785 MHz", "Process"}
    assert told <= picture["lanes"], picture["lanes"]
    assert {"100 °C", "5000 MHz"} <= set(picture["tops"])
    drawn = data_of(trace.html(series=NAMES))["lanes"][2:]
    found = {line["short"]: line for lane in drawn for line in lane["lines"]}
    assert len(found) == len(OTHERS)
    for key, value in OTHERS.items():
        line = found[key.partition("/")[2].rpartition(" (")[0]]
        assert line["v"][0] * line["scale"] == pytest.approx(value, rel=1e-3), key


def test_names_on_the_command_line_may_have_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {"gpu0": [9.0] * 9}, more={"gpu0/temperature (C)": [50.0] * 9})
    out = tmp_path / "t.html"
    assert main(["plot", str(path), "--series", "temperature, disk", "-o", str(out)]) == 2
    assert main(["plot", str(path), "--series", "power, temperature", "-o", str(out)]) == 0
    assert "temperature 50" in out.read_text()


def test_no_two_phases_of_a_notebook_share_a_tint() -> None:
    text = "".join(path.read_text() for path in (paths.ROOT / "helpers").rglob("*.py"))
    marked = re.findall(r'phase\("([^"]+)', text)
    names = sorted({*marked, "train", "validate", "test", "without all-reduce", "loader alone"})
    for theme in THEMES.values():
        assert len(set(phase_colours(names, theme).values())) == len(names)

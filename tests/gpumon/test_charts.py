"""The picture and the web page of a trace say the same."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpumon_canvas
import pytest
from gpumon_tools import Marks, said_by, write

import gpumon
from gpumon.__main__ import main
from gpumon.drawing import interactive
from gpumon.words import time_text

MARKS: Marks = (("train", 0.0, 12.0, {"epoch": 1}),)
LOST = {"t": 7.0, "event": "device lost", "device": "gpu0", "reason": "GPU is lost"}


def with_everything(folder: Path, gpus: int) -> gpumon.Trace:
    """A trace with a lost GPU, one without utilisation, a gap, and damaged lines."""
    busy: dict[str, list[float | None]] = {f"gpu{n}": [50.0] * 12 for n in range(gpus)}
    if gpus > 1:
        busy["gpu1"] = [None] * 12
    events = [LOST] if gpus else []
    path = write(folder / "t", busy, marks=MARKS, events=events, without=range(3, 6))
    file = path.with_name("t.jsonl")
    header, *rest = file.read_text().splitlines()
    content = json.loads(header)
    for series in content["series"]:
        if series["key"] == "gpu1/utilisation (%)":
            series["reason"] = "nvmlDeviceGetUtilizationRates: Not Supported"
    file.write_text("\n".join([json.dumps(content), "}torn{", *rest]) + "\n")
    return gpumon.read(path)


def in_the_picture(trace: gpumon.Trace, series: Sequence[str] = ()) -> dict[str, Any]:
    chart = trace.plot(title="A run", series=series)
    chart.canvas.draw()
    lanes = [axes for axes in chart.axes if axes.get_ylim() == (0, 104)]
    legends = filter(None, (axes.get_legend() for axes in chart.axes))
    legend = [text.get_text() for legend in legends for text in legend.get_texts()]
    scales = [[label.get_text() for label in axes.get_yticklabels()] for axes in lanes]
    return {
        "lanes": {text.get_text().strip() for axes in lanes for text in axes.texts} - {""},
        "legend": set(legend),
        "notes": said_by(chart).removeprefix("A run").strip(),
        "scales": sorted(label for scale in scales for label in scale if label),
        "moments": [label.get_text() for label in lanes[-1].get_xticklabels()],
    }


def in_the_page(trace: gpumon.Trace, series: Sequence[str] = ()) -> dict[str, Any]:
    page = trace.html(title="A run", series=series)
    drawn = gpumon_canvas.drawn(page)["words"]
    data = gpumon_canvas.data_of(page)
    scale = [text for text, x, _ in drawn if x == gpumon_canvas.LEFT - 4]
    below = max(y for _, _, y in drawn)
    phases = {label for phase in data["phases"] for label in phase["labels"]}
    texts = re.findall(r"<span>(?:<i[^>]*></i>)(.*?)</span>", page)
    return {
        "lanes": {
            text
            for text, x, y in drawn
            if y != below and x != gpumon_canvas.LEFT - 4 and text not in phases | {""}
        },
        "legend": {html.unescape(text) for text in texts} - set(data["colours"]["light"]),
        "notes": " ".join(map(html.unescape, re.findall(r'gpumon-note">(.*?)</div>', page))),
        "scales": sorted(scale),
        "moments": [(text, gpumon_canvas.moment(x, data)) for text, x, y in drawn if y == below],
    }


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_picture_and_page_say_the_same(tmp_path: Path, gpus: int) -> None:
    trace = with_everything(tmp_path, gpus)
    picture, page = in_the_picture(trace), in_the_page(trace)
    for what in ("lanes", "legend", "notes", "scales"):
        assert picture[what] == page[what], what
    said = " ".join([*page["lanes"], page["notes"]])
    assert ("lost at 7 s" in said) == (gpus > 0) and ("GPU is lost" in said) == (gpus > 0)
    assert ("utilisation: nvmlDeviceGetUtilizationRates: Not Supported" in said) == (gpus > 1)
    assert ("No GPU lane: no driver" in said) == (gpus == 0)
    assert "s were not recorded" in said and "1 damaged line of t left out" in said
    assert picture["scales"] and page["moments"]
    end = trace.recording.end
    for text, moment in page["moments"]:
        assert text == time_text(round(moment, 3), end)
    assert set(picture["moments"]) <= {time_text(n / 10, end) for n in range(130)}


@pytest.mark.parametrize("span", [1.0, 130.0, 3700.0])
def test_both_tell_the_time_alike(tmp_path: Path, span: float) -> None:
    path = write(tmp_path / "t", {"gpu0": [1.0] * 10}, step=span / 10)
    train: Marks = (("train", span / 2, span, {}),)
    later = write(tmp_path / "u", {"gpu0": [1.0] * 10}, step=span / 10, marks=train)
    for page in (
        gpumon.read(path).html(),
        interactive.comparison_fragment({"a": gpumon.read(later)}),
    ):
        data, drawn = gpumon_canvas.data_of(page), gpumon_canvas.drawn(page)["words"]
        start, end = data.get("view") or (data["start"], data["end"])
        below = max(y for _, _, y in drawn)
        moments = [(text, x) for text, x, y in drawn if y == below]
        assert len(moments) > 1
        for text, x in moments:
            assert text == time_text(round(gpumon_canvas.moment(x, data), 3), end - start)


def lanes(chart: Any) -> list[Any]:
    return [axes for axes in chart.axes if axes.get_ylim() == (0, 104)]


def test_a_lane_ends_with_its_last_epoch(tmp_path: Path) -> None:
    """And its figures are of what is seen of it: not of what it did before and after."""
    values: list[float | None] = [*[0.0] * 4, *[80.0] * 4, *[10.0] * 12]
    runs: dict[str, Any] = {}
    for name, end in (("a", 8.0), ("b", 12.0)):
        marks: Marks = (("train", 4.0, end, {}), ("z", end, 20.0, {}))
        runs[name] = write(tmp_path / name, {"gpu0": values}, marks=marks)
    short, long = lanes(gpumon.compare(runs, align="train", until=("train", "validate")))
    assert max(short.lines[0].get_xdata()) == 8 and max(long.lines[0].get_xdata()) == 12
    for axes, said in ((short, {"80 % busy", "4 s"}), (long, {"45 % busy", "8 s"})):
        assert said <= {text.get_text() for text in axes.texts}
    chart = gpumon.compare(runs, align="train")
    assert {max(axes.lines[0].get_xdata()) for axes in lanes(chart)} == {20.0}


def test_what_a_trace_lacks_is_refused_with_what_it_has(tmp_path: Path) -> None:
    host = write(tmp_path / "host", {})
    more: dict[str, list[float | None]] = {
        "gpu0/SM clock (MHz)": [1.0],
        "gpu0/temperature (C)": [None],
    }
    gpu = write(tmp_path / "gpu", {"gpu0": [1.0]}, more=more)
    for path, known in (
        (host, "cpu, memory used"),
        (gpu, "clocks, utilisation, memory used, power, cpu, SM clock"),
    ):
        with pytest.raises(gpumon.MonitorError, match=rf"it has {known}$"):
            gpumon.read(path).plot(series=["temperature"])


def test_names_are_neither_markup_nor_formulas(tmp_path: Path) -> None:
    name = r"<img src=x onerror=alert(1)> $\frac$ a/b"
    path = write(tmp_path / "t", {"gpu0": [1.0] * 4}, marks=((name, 0.0, 4.0, {}),))
    trace = gpumon.read(path)
    page = trace.html(title=name)
    assert "<img" not in page
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
NAMES = (
    "temperature",
    "clocks",
    "PCIe",
    "NVLink",
    "processes",
    "throttle",
    "energy",
    "disk",
    "network",
)


@pytest.mark.parametrize("tenths", [1, 10])
def test_any_series_reads_the_same_in_picture_and_page(tmp_path: Path, tenths: int) -> None:
    """Lanes, labels, units and values; and what a pointer reads is what stands at the side."""
    more: dict[str, list[float | None]] = {
        key: [value * tenths / 10] * 12 for key, value in OTHERS.items()
    }
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [50.0] * 12}, more=more, marks=MARKS))
    series = NAMES
    picture, page = in_the_picture(trace, series), in_the_page(trace, series)
    for what in ("lanes", "legend", "notes", "scales"):
        assert picture[what] == page[what], what
    if tenths == 10:
        told = {"temperature 63 °C", "disk written 7.31 MiB/s", "SM clock 1785 MHz", "Process"}
        assert told <= picture["lanes"], picture["lanes"]
        assert {"100 °C", "5000 MHz"} <= set(picture["scales"])
    drawn = gpumon_canvas.data_of(trace.html(series=series))["lanes"][2:]
    assert sum(len(lane["lines"]) for lane in drawn) == len(OTHERS)
    for line in (line for lane in drawn for line in lane["lines"]):
        (value,) = (v for k, v in OTHERS.items() if f"/{line['short']} (" in k)
        read = f"{line['v'][0] * line['scale']:.{line['digits']}f}"
        assert float(read) == pytest.approx(value * tenths / 10, rel=0.006, abs=0.06), line["short"]
        assert float(read) == pytest.approx(value * tenths / 10, rel=0.06), line["short"]


def test_names_on_the_command_line_may_have_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {"gpu0": [9.0] * 9}, more={"gpu0/temperature (C)": [50.0] * 9})
    out = tmp_path / "t.html"
    assert main(["plot", str(path), "--series", "temperature, disk", "-o", str(out)]) == 2
    assert main(["plot", str(path), "--series", "power, temperature", "-o", str(out)]) == 0
    assert "temperature 50" in out.read_text()

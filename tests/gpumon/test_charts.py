"""The picture and the web page of a trace say the same."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpumon_canvas
import pytest
from gpumon_tools import START, Marks, write

import gpumon
from gpumon.__main__ import main
from gpumon.drawing import interactive
from gpumon.words import duration_text, time_text

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
    legend = [text.get_text() for legend in chart.legends for text in legend.get_texts()]
    scales = [[label.get_text() for label in axes.get_yticklabels()] for axes in lanes]
    return {
        "lanes": {text.get_text().strip() for axes in lanes for text in axes.texts} - {""},
        "legend": set(legend),
        "notes": " ".join(text.get_text() for text in reversed(chart.texts[1:])),
        "scales": sorted(label for scale in scales for label in scale if label),
        "moments": [label.get_text() for label in lanes[-1].get_xticklabels()],
    }


def test_every_phase_of_a_notebook_is_named_in_the_picture(tmp_path: Path) -> None:
    """In its ribbon or, where it is too short for that, in the legend."""
    short = ("validate", "test", "warm-up", "loader alone", "files", "synthetic")
    names = (*short, "without all-reduce")
    marks: Marks = tuple((name, 10 + n / 10, 10.1 + n / 10, {}) for n, name in enumerate(names))
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [50.0] * 12}, marks=(*MARKS, *marks)))
    assert set(names) <= in_the_picture(trace)["legend"]


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


@pytest.mark.parametrize("gpus", [0, 1, 2, 4, 8])
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


@pytest.mark.parametrize("span", [1.0, 100.0, 130.0, 3000.0, 3700.0, 90000.0])
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


def test_a_length_of_time_reads_as_a_moment_does() -> None:
    told = [duration_text(seconds) for seconds in (0, 0.0321, 7, 12.34, 119.96, 185.2, 3750.4)]
    assert told == ["0 s", "0.032 s", "7 s", "12.3 s", "120 s", "3:05", "1:02:30"]


def test_several_runs_name_their_devices_alike(tmp_path: Path) -> None:
    runs: dict[str, gpumon.Trace] = {}
    for name, gpus in (("None", 0), ("One", 1), ("Two", 2)):
        runs[name] = with_everything(tmp_path / name, gpus)
    lanes = gpumon_canvas.data_of(interactive.comparison_fragment(runs))["lanes"]
    page = {lane["title"]: lane["subtitle"] for lane in lanes}
    assert page == {"None": "no GPU", "One": "1 GPU, 1 lost", "Two": "2 GPUs, 1 lost"}
    texts = [text.get_text() for axes in gpumon.compare(runs).axes for text in axes.texts]
    assert [text for text in texts if text in page.values()] == list(page.values())


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


def test_a_run_without_the_phase_counts_from_its_start_and_says_so(tmp_path: Path) -> None:
    with_it = write(tmp_path / "a", {"gpu0": [1.0] * 9}, marks=(("train", 4.0, 9.0, {}),))
    runs: dict[str, Any] = {"a": with_it, "b": write(tmp_path / "b", {"gpu0": [1.0] * 9})}
    _, other = lanes(gpumon.compare(runs, align="train"))
    assert "1 GPU, no train" in {text.get_text() for text in other.texts}
    page = gpumon_canvas.data_of(
        interactive.comparison_fragment({name: gpumon.read(path) for name, path in runs.items()})
    )["lanes"]
    assert [lane["subtitle"] for lane in page] == ["1 GPU", "1 GPU, no train"]


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


def test_a_mark_outside_a_short_window_is_not_drawn(tmp_path: Path) -> None:
    events = [
        {"t": 4000.0, "event": "device lost", "device": "gpu0", "reason": "x"},
    ]
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [1.0] * 5000}, events=events))
    data = io.BytesIO()
    trace.plot(window=(1.0, 1.01)).savefig(data, format="png")
    words = [text.get_text() for axes in trace.plot().axes for text in axes.texts]
    assert any("lost at" in word for word in words)


def test_a_long_name_stays_in_the_picture(tmp_path: Path) -> None:
    run = write(tmp_path / "a", {"gpu0": [1.0] * 9})
    chart = gpumon.compare({"PyTorch Exp Loss bf16 sharing 1 GPU seed0": run}, width=6)
    renderer = chart.canvas.get_renderer()  # type: ignore[attr-defined]
    (lane,) = lanes(chart)
    assert min(text.get_window_extent(renderer).x0 for text in lane.texts) >= 0


def test_the_names_and_figures_of_lanes_stay_in_the_picture(tmp_path: Path) -> None:
    more: dict[str, list[float | None]] = {
        f"gpu0/{name}": [12345.0] * 9
        for name in ("other processes (count)", "memory clock (MHz)", "NVLink received (MiB/s)")
    }
    path = write(tmp_path / "t", {"gpu0": [1.0] * 9}, more=more)
    samples = path.with_name("t.jsonl")
    for product in ("NVIDIA H100 80GB HBM3", "NVIDIA " + "A100" * 40):
        text = re.sub('"product": "[^"]*"', f'"product": "{product}"', samples.read_text())
        samples.write_text(text)
        chart = gpumon.read(path).plot(series=["clocks", "NVLink"])
        renderer = chart.canvas.get_renderer()  # type: ignore[attr-defined]
        texts = [text for lane in lanes(chart) for text in lane.texts if text.get_text()]
        assert any(product.removeprefix("NVIDIA ") in text.get_text() for text in texts)
        for text in texts:
            place = text.get_window_extent(renderer)
            assert place.x0 >= 0 and place.x1 <= chart.bbox.width, text


def test_phases_of_two_processes_are_named_beside_each_other(tmp_path: Path) -> None:
    """A recorder's own, and those of its program, which lie in it."""
    path = write(tmp_path / "t", {"gpu0": [1.0] * 12}, marks=(("command", 0.0, 12.0, {}),))
    with path.with_name("t.marks.jsonl").open("a") as file:
        for kind, moment in (("B", START + 4), ("E", START + 11)):
            more = ["train", {}] if kind == "B" else []
            file.write(json.dumps([kind, int(moment * 1e9), 8, 0, *more]) + "\n")
    chart = gpumon.read(path).plot()
    renderer = chart.canvas.get_renderer()  # type: ignore[attr-defined]
    ribbon = next(axes for axes in chart.axes if axes.get_ylim() == (1, 0))
    places = {text.get_text(): text.get_window_extent(renderer) for text in ribbon.texts}
    assert places.keys() == {"command", "train"}
    assert places["command"].x1 < ribbon.transData.transform((4, 0))[0]
    page = gpumon.read(path).html()
    middles = {text: x for text, x, _ in gpumon_canvas.drawn(page)["words"]}
    data = gpumon_canvas.data_of(page)
    assert gpumon_canvas.moment(middles["command"], data) == pytest.approx(2, abs=0.1)
    assert gpumon_canvas.moment(middles["train"], data) == pytest.approx(7.5, abs=0.1)


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
    "process/major page faults (1/s)": 0.4,
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
    series = [*NAMES, "page faults"]
    picture, page = in_the_picture(trace, series), in_the_page(trace, series)
    for what in ("lanes", "legend", "notes", "scales"):
        assert picture[what] == page[what], what
    if tenths == 10:
        told = {"temperature 63 °C", "disk written 7.31 MiB/s", "SM clock 1785 MHz", "Process"}
        assert told <= picture["lanes"], picture["lanes"]
        assert {"100 °C", "5000 MHz", "0.5 1/s"} <= set(picture["scales"])
    drawn = gpumon_canvas.data_of(trace.html(series=series))["lanes"][2:]
    assert sum(len(lane["lines"]) for lane in drawn) == len(OTHERS)
    for line in (line for lane in drawn for line in lane["lines"]):
        (value,) = (v for k, v in OTHERS.items() if f"/{line['short']} (" in k)
        read = f"{line['v'][0] * line['scale']:.{line['digits']}f}"
        assert float(read) == pytest.approx(value * tenths / 10, rel=0.006, abs=0.06), line["short"]
        assert float(read) == pytest.approx(value * tenths / 10, rel=0.06), line["short"]


def test_what_adds_up_and_what_is_made_of_bits_has_no_mean(tmp_path: Path) -> None:
    half: list[float | None] = [*[0.0] * 6, *[4.0] * 6]
    more = {
        "process/processes (count)": half,
        "gpu0/energy (J)": half,
        "gpu0/throttle reasons (bits)": half,
    }
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [50.0] * 12}, more=more))
    notes = in_the_picture(trace, ["processes", "energy", "throttle"])["lanes"]
    assert {"processes up to 4", "energy up to 4 J", "throttle reasons, bits"} <= notes


def test_a_lane_of_a_merged_trace_says_of_which_host_and_rank(tmp_path: Path) -> None:
    more: dict[str, list[float | None]] = {
        "process/page faults (1/s)": [5.0] * 9,
        "gpu0/temperature (C)": [50.0] * 9,
    }
    hosts = [
        write(tmp_path / n, {"gpu0": [9.0] * 9}, host=n, boot=n, rank=r, process=r, more=more)
        for r, n in enumerate(("anna", "bert"))
    ]
    trace = gpumon.read(hosts)
    words = in_the_picture(trace, ["page faults", "temperature"])["lanes"]
    assert {"page faults, anna rank0", "page faults, bert rank1", "temperature, anna"} <= words


def test_names_on_the_command_line_may_have_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {"gpu0": [9.0] * 9}, more={"gpu0/temperature (C)": [50.0] * 9})
    out = tmp_path / "t.html"
    assert main(["plot", str(path), "--series", "temperature, disk", "-o", str(out)]) == 2
    assert main(["plot", str(path), "--series", "power, temperature", "-o", str(out)]) == 0
    assert "temperature 50" in out.read_text()

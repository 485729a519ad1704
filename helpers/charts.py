"""The pictures of the comparison. Each function returns a figure that a notebook shows by itself.

Colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), which colour-blind people can tell
apart; a framework has the same colour, marker and place in every chart. A second notebook of the
same framework keeps its colour and gets broken lines or hatched bars.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpumon
from gpumon.errors import MonitorError
from helpers.comparison import Comparison, Entry, latest_of_each, widest
from helpers.tables import attribution as attribution_table
from helpers.tables import short_number

COLOURS = {
    "PyTorch": "#D55E00",
    "Keras": "#CC79A7",
    "TensorFlow": "#E69F00",
    "MXNet": "#0072B2",
    "Chainer": "#009E73",
}
OTHERS = "#56B4E9"
MARKERS = {"PyTorch": "o", "Keras": "s", "TensorFlow": "^", "MXNet": "D", "Chainer": "v"}
GREY = "#595959"
SHARES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_TRAINED = ("training", "synthetic")
WIDTH = 9.0
"""Inches: a notebook's column."""


class Chart(Figure):
    """A figure that shows itself in a notebook, with or without ``%matplotlib inline``."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def throughput(compared: Comparison) -> Figure | None:
    """Images per second of every run: from files, synthetic, and the loader alone."""
    entries = latest_of_each(compared.finished)
    if not entries:
        return None
    kinds = [("training on files", "training", 1.0), ("synthetic data", "synthetic", 0.55)]
    kinds.append(("loader alone", "loader", 0.25))
    figure, axes = _figure(height=1.2 + 0.75 * len(entries))
    # A loader far ahead of the devices must not squeeze what matters: its bar is cut.
    trained = [e.content[part]["images_per_second"] for e in entries for part in _TRAINED]
    longest = 1.6 * max(trained)
    for row, entry in enumerate(entries):
        for place, (name, section, strength) in enumerate(kinds):
            value = entry.content[section]["images_per_second"]
            y, drawn = row + (place - 1) * 0.26, min(value, longest)
            colour = _tint(_colour(entry.label), strength)
            hatch = "///" if _place(entry, entries) > 0 else None
            axes.barh(y, drawn, 0.24, color=colour, hatch=hatch, edgecolor="white", lw=0)
            axes.annotate(
                f"{'» ' if value > longest else ''}{short_number(value)}  {name}",
                (drawn, y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color="#333333",
            )
    axes.set_yticks(range(len(entries)), [_safe(entry.run) for entry in entries])
    axes.invert_yaxis()
    axes.set_xlabel("images per second, all devices together (» the bar goes on)")
    axes.set_xlim(0, axes.get_xlim()[1] * 1.2)
    axes.tick_params(axis="y", length=0)
    axes.set_title("Throughput", loc="left", fontweight="bold")
    return figure


def curves(compared: Comparison) -> Figure | None:
    """Learning curves, each framework on its most devices: losses and validation AUC."""
    entries = [e for e in widest(compared.entries) if e.content.get("epochs")]
    if not entries:
        return None
    figure = Chart(figsize=(WIDTH, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for entry in entries:
        epochs = pd.DataFrame(entry.content["epochs"])
        style = _line(entry, entries)
        left.plot(epochs["epoch"], epochs["valid_loss"], lw=2.2, label=_safe(entry.run), **style)
        left.plot(epochs["epoch"], epochs["train_loss"], lw=1, alpha=0.75, **style | {"ms": 3})
        auc = epochs["valid_auc"].astype(float)
        right.plot(epochs["epoch"], auc, lw=2.2, label=_safe(entry.run), **style)
    left.set_title("Loss: validation bold, training thin", loc="left")
    right.set_title("Mean AUC on the validation part", loc="left")
    for axes in (left, right):
        _plain_axes(axes, grid="y")
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    right.axhline(0.5, color=GREY, lw=1, ls=":")
    right.annotate(
        "chance", (0.01, 0.5), xycoords=("axes fraction", "data"), fontsize=8, va="bottom"
    )
    _legend_below(figure, left)
    return figure


def auc(compared: Comparison) -> Figure | None:
    """Test AUC per finding with its 95 % interval, each framework on its most devices."""
    entries = widest(compared.finished)
    if not entries:
        return None
    findings = list(
        dict.fromkeys(r["finding"] for e in entries for r in e.content["test"]["findings"])
    )
    rows = [*findings, "Mean"]
    spread = min(0.8, 0.16 * (len(entries) - 1))
    offsets = np.linspace(-spread / 2, spread / 2, len(entries)) if len(entries) > 1 else [0.0]
    figure, axes = _figure(height=1.2 + len(rows) * max(0.3, 0.11 * len(entries)))
    for entry, offset in zip(entries, offsets, strict=True):
        table = {r["finding"]: r for r in entry.content["test"]["findings"]}
        means = {"auc": entry.content["test"]["mean_auc"], "low": None, "high": None}
        mark = _line(entry, entries) | {"ls": "none"}
        for row, finding in enumerate(rows):
            found = means if finding == "Mean" else table.get(finding)
            if found is None or found["auc"] is None:
                continue
            if found["low"] is not None and found["high"] is not None:
                ends = [found["low"], found["high"]]
                axes.plot(ends, [row + offset] * 2, color=mark["color"], lw=1.5, alpha=0.7)
            axes.plot(found["auc"], row + offset, **mark)
        axes.plot([], [], label=_safe(entry.run), **mark)
    for row, finding in enumerate(rows):
        if finding != "Mean" and not any(_has_auc(entry, finding) for entry in entries):
            axes.annotate(
                "not computable",
                (0.5, row),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=GREY,
            )
    axes.axvline(0.5, color=GREY, lw=1, ls=":")
    axes.axhline(len(findings) - 0.5, color="#BBBBBB", lw=1)
    axes.set_yticks(range(len(rows)), [_safe(name.replace("_", " ")) for name in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("AUC on the test part; 0.5 (dotted) is chance, lines are 95 % intervals")
    axes.set_title("Test AUC per finding", loc="left", fontweight="bold")
    axes.tick_params(axis="y", length=0)
    _legend_below(figure, axes)
    return figure


def utilisation(compared: Comparison) -> Figure | None:
    """Utilisation while training and validating, one lane a framework, all on the same axes.

    Each framework on its most devices. The mean over the GPUs, with the range from the least to
    the most used one; the host's CPU where there is no GPU. Time counts from the start of the
    first epoch.
    """
    lanes = []
    for entry in widest(compared.entries):
        try:
            trace = gpumon.read(entry.folder / "trace")
            lanes.append((entry, trace.frame(), trace.phases()))
        except MonitorError:
            continue  # a run without a trace has no lane; remarks() says what is missing
    if not lanes:
        return None
    figure = Chart(figsize=(WIDTH, 0.9 + 1.25 * len(lanes)), layout="constrained")
    grid = figure.subplots(len(lanes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    longest = 0.0
    for axes, (entry, frame, phases) in zip(grid, lanes, strict=True):
        start, end = _window(frame, phases)
        longest = max(longest, end - start)
        shown = frame.loc[(frame.index >= start) & (frame.index <= end)]
        columns = [c for c in shown.columns if c.startswith("gpu") and "/utilisation (%)" in c]
        columns = [c for c in columns if "memory" not in c]
        what = f"{len(columns)} GPU(s)" if columns else "host CPU"
        values = shown[columns or ["host/cpu (%)"]].astype(float)
        seconds, colour = values.index.to_numpy() - start, _colour(entry.label)
        mean = values.mean(axis=1)
        axes.fill_between(seconds, mean, color=_tint(colour, 0.25), lw=0)
        if len(columns) > 1:
            low, high = values.min(axis=1), values.max(axis=1)
            axes.fill_between(seconds, low, high, color=_tint(colour, 0.5), lw=0)
        axes.plot(seconds, mean, color=colour, lw=1.2)
        _bands(axes, phases, start, end)
        average = f"mean {mean.mean():.0f} %" if mean.notna().any() else "no readings"
        axes.set_title(f"{_safe(entry.run)}: {what}, {average}", loc="left", fontsize=10)
        _plain_axes(axes, grid="y")
        axes.set_ylabel("%")
    grid[0].set_ylim(0, 105)
    grid[0].set_xlim(0, longest)
    grid[-1].set_xlabel("seconds since the first epoch began; grey bands: validation")
    return figure


def attribution(compared: Comparison) -> Figure | None:
    """Where the training time went: stacked shares, one bar a run."""
    table = attribution_table(compared)
    if table.empty:
        return None
    figure, axes = _figure(height=1.3 + 0.5 * len(table))
    left = np.zeros(len(table))
    for share, colour in zip(table.columns, _cycle(SHARES, len(table.columns)), strict=True):
        width = table[share].fillna(0).to_numpy()
        axes.barh(
            range(len(table)), width * 100, 0.55, left=left, color=colour, label=_safe(str(share))
        )
        for row, value in enumerate(width):
            if value >= 0.06:
                text = _ink(colour)
                axes.text(
                    left[row] + value * 50,
                    row,
                    f"{value:.0%}",
                    ha="center",
                    va="center",
                    color=text,
                )
        left += width * 100
    axes.set_yticks(range(len(table)), [_safe(str(name)) for name in table.index])
    axes.invert_yaxis()
    axes.set_xlim(0, max(100.0, float(left.max())))
    axes.set_xlabel("% of the training time")
    axes.set_title("Where the time went", loc="left", fontweight="bold")
    axes.tick_params(axis="y", length=0)
    _legend_below(figure, axes)
    return figure


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Chart(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    _plain_axes(axes, grid="x")
    return figure, axes


def _plain_axes(axes: Axes, grid: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#E5E5E5", lw=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False
    )


def _colour(label: str) -> str:
    return next((c for name, c in COLOURS.items() if label.startswith(name)), OTHERS)


def _line(entry: Entry, entries: Sequence[Entry]) -> dict[str, Any]:
    """Colour and marker by framework; broken where the same framework has another line already."""
    place = _place(entry, entries)
    marker = next((m for name, m in MARKERS.items() if entry.label.startswith(name)), "P")
    styles = ("-", "--", "-.", ":")
    return {
        "color": _colour(entry.label),
        "marker": marker,
        "ms": 6,
        "mfc": _colour(entry.label) if place == 0 else "white",
        "ls": styles[place % len(styles)],
    }


def _place(entry: Entry, entries: Sequence[Entry]) -> int:
    """0 for a framework's first notebook, 1 for its second."""
    family = dict.fromkeys(e.label for e in entries if _colour(e.label) == _colour(entry.label))
    return list(family).index(entry.label)


def _tint(colour: str, strength: float) -> str:
    """``colour`` mixed with white: 1 is the colour itself, 0 white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - part) * strength):02x}" for part in parts)


def _ink(colour: str) -> str:
    """Black or white, whichever is read better on ``colour`` (WCAG's relative luminance)."""
    linear = ((int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5))
    luminance = sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "white" if luminance < 0.18 else "black"


def _cycle(colours: Sequence[str], count: int) -> list[str]:
    return [colours[i % len(colours)] for i in range(count)]


def _has_auc(entry: Entry, finding: str) -> bool:
    rows = entry.content["test"]["findings"]
    return any(r["finding"] == finding and r["auc"] is not None for r in rows)


def _window(frame: pd.DataFrame, phases: pd.DataFrame) -> tuple[float, float]:
    """From the start of the first epoch to the end of the last, in the trace's seconds."""
    epochs = phases[phases["phase"].isin(["train", "validate"])]
    if epochs.empty:
        return float(frame.index.min()), float(frame.index.max())
    return float(epochs["start (s)"].min()), float(epochs["end (s)"].max())


def _bands(axes: Axes, phases: pd.DataFrame, start: float, end: float) -> None:
    validated = phases[phases["phase"] == "validate"].sort_values("start (s)")
    last = start
    for begin, finish in zip(validated["start (s)"], validated["end (s)"], strict=True):
        # Replicas mark the same validation each for itself: shade it once.
        begin, finish = max(begin, last), min(finish, end)
        if finish > begin:
            axes.axvspan(begin - start, finish - start, color="black", alpha=0.14, lw=0)
            last = finish


def _safe(text: str) -> str:
    """Text from a record, never read as a formula."""
    return text.replace("$", r"\$")

"""The summary of a check: summary.json for programs, summary.md for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REHEARSAL = "**A rehearsal: GPUs were monitored only, and every figure is of CPU cores.**"


def write(summary: dict[str, Any], out: Path) -> None:
    """Both files, each whole at every moment."""
    texts = {"summary.json": json.dumps(summary, indent=1) + "\n", "summary.md": _page(summary)}
    for name, text in texts.items():
        part = out / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(out / name)


def _page(summary: dict[str, Any]) -> str:
    what = ", ".join(summary["gpus"]) or "no GPU"
    size = "the small size" if summary["small"] else "224 px"
    lines = [f"# What ran on {what}", ""]
    if summary["rehearsal"]:
        lines = [f"# Rehearsal for {what}", "", REHEARSAL, ""]
    state = f"{summary['started']}, at {size}, {summary['state']}"
    lines += [f"{state}; every figure is of one run.", ""]
    lines += [f"- command: `{_plain(command)}`" for command in summary["commands"]]
    for name, value in summary["machine"].items():
        values = value.items() if isinstance(value, dict) else [(name, value)]
        lines += [f"- {each}: {_plain(of)}" for each, of in values if of]
    lines += ["", "| step | outcome | s | |", "|---|---|---|---|"]
    for step in summary["steps"]:
        lines.append(f"| {step['step']} | {step['outcome']} | {step['seconds']:.0f} "
                     f"| {_plain(step['said'])} |")  # fmt: skip
    assumptions = [one for step in summary["steps"] for one in step.get("assumptions", [])]
    if assumptions:
        lines += ["", "| what our code assumes | outcome | |", "|---|---|---|"]
        lines += [
            f"| {' | '.join(_plain(one[key]) for key in ('assumption', 'outcome', 'said'))} |"
            for one in assumptions
        ]
    figures = [figure for step in summary["steps"] for figure in step["figures"]]
    if figures:
        lines += ["", "| figure | here | beside | ratio | asked for |", "|---|---|---|---|---|"]
        lines += [
            _figure(figure, judged=bool(summary["gpus"]) and not summary["rehearsal"])
            for figure in figures
        ]
    return "\n".join(lines) + "\n"


def _figure(figure: dict[str, Any], judged: bool) -> str:
    """A row; goals are for GPUs, and elsewhere nobody is held to them."""
    unit, ratio, goal = figure["unit"], figure.get("ratio"), figure.get("goal")
    rival = f"{figure['rival_name']}: {figure['rival']:,.4g}" if "rival" in figure else ""
    ours, times = f"{figure['ours']:,.4g} {unit}", "" if ratio is None else f"{ratio:.3f}"
    between = f" ({figure['low']:.3f} to {figure['high']:.3f})" if "low" in figure else ""
    ours, times = (ours + between, times) if ratio is None else (ours, times + between)
    asked = "" if goal is None else f"{goal:g}"
    if goal is not None and judged:
        asked += ": reached" if ratio >= goal else ": missed"
    cells = figure["figure"], ours, rival, times, asked
    return f"| {' | '.join(map(_plain, cells))} |"


def _plain(value: Any) -> str:
    """Text for a cell of a table."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return " ".join(str(value).replace("|", "\\|").split())

"""Write the report as one HTML file that loads nothing. Jinja escapes every text of a record."""

import base64
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from gpumon.drawing import interactive
from helpers.results import charts, conclusions, repeated_runs
from helpers.results.charts import Chart
from helpers.results.comparison import Comparison
from helpers.results.report import svg
from helpers.results.report.sections import Block, Section, Texts, title
from helpers.results.tables import Table

HERE = Path(__file__).parent
WIDE, NARROW = 9.0, 4.7
"""Inches of the two drawings of each chart, for a desk's screen and for a phone's."""


def render(
    compared: Comparison, sections: Sequence[Section], files: Mapping[str, str], folder: Path
) -> str:
    """The page, for ``folder``. ``files`` are the CSV texts it offers, by name."""
    headline, about = conclusions.headline(compared), _about(compared)
    return of_sections(title(compared), headline, sections, files, folder, compared, about)


def of_sections(
    title: str,
    headline: str,
    sections: Sequence[Section],
    files: Mapping[str, str],
    folder: Path,
    compared: Comparison | None = None,
    about: Sequence[str] = (),
) -> str:
    """A page of :func:`render`'s look with these sections."""
    code = (HERE / "report.js").read_text(encoding="utf-8")
    scripts = {"charts": interactive.code(), "own": code}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        title=title,
        headline=headline,
        about=about,
        style=Markup(svg.colours() + (HERE / "style.css").read_text(encoding="utf-8")),
        charts_style=Markup(interactive.style()),
        scripts={name: Markup(text) for name, text in scripts.items()},
        link=lambda path: _relative(path, folder),
        sections=[(section, [_block(compared, b) for b in section.blocks]) for section in sections],
        files=[(name, _address(text)) for name, text in files.items()],
    )


def _about(compared: Comparison) -> list[str]:
    """What all finished runs share, which experiments and machines they are of, and when."""
    each: dict[str, set[str]] = {}
    for content in (entry.content for entry in compared.finished):
        recipe = content["recipe"]
        for name, text in (
            ("recipe", f"recipe {recipe['name']}"),
            ("images", f"{content['data']['images']['train']:,} images"),
            ("size", f"{recipe['crop']} px"),
            ("epochs", f"{recipe['epochs']} epoch{'s' * (recipe['epochs'] != 1)}"),
            ("precision", str(recipe["precision"])),
        ):
            each.setdefault(name, set()).add(text)
    found = [text for texts in each.values() if len(texts) == 1 for text in texts]
    found += [f"{seeds} seeds"] if (seeds := repeated_runs.seeds(compared)) > 1 else []
    found += [f"Experiment {folder.resolve().name}" for folder in compared.folders]
    found += sorted({entry.content["run"]["host"] for entry in compared.entries})
    started = [entry.content["run"]["started"] for entry in compared.entries]
    return found + ([_date(max(started))] if started else [])


def _relative(path: Path, folder: Path) -> str:
    """The address of a run's file for a page in ``folder``."""
    return quote(Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix())


def _block(compared: Comparison | None, block: Block) -> dict[str, Any]:
    """What the template shows of a block."""
    common = {
        "title": block.title,
        "note": getattr(block, "note", ""),
        "folded": getattr(block, "folded", False),
    }
    if isinstance(block, Chart):
        return common | {"is": "chart", "alt": block.alt, **_drawn(block)}
    if isinstance(block, Table):
        return common | {"is": "table", "kind": block.kind, "table": block}
    if isinstance(block, Texts):
        return common | {"is": "texts", "lines": block.lines}
    lanes, without = charts.traces(compared) if compared else ({}, [])
    chart = Markup(interactive.comparison_fragment(lanes)) if lanes else Markup("")
    return common | {"is": "utilisation", "chart": chart, "without": without}


def _drawn(chart: Chart) -> dict[str, Markup]:
    return {
        name: svg.inline(chart.figure(width), f"{chart.name}-{name}")
        for name, width in (("wide", WIDE), ("narrow", NARROW))
    }


def _address(text: str) -> str:
    return "data:text/csv;base64," + base64.b64encode(text.encode()).decode()


def _date(started: str) -> str:
    try:
        return f"{datetime.fromisoformat(started):%-d %B %Y, %H:%M} UTC"
    except ValueError:
        return started

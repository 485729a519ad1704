"""Write the report as one HTML file that loads nothing. Jinja escapes all texts from records."""

import base64
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from gpumon.drawing import timeline
from helpers.results import charts
from helpers.results.charts import Chart
from helpers.results.comparison import Comparison
from helpers.results.report import svg
from helpers.results.report.sections import Section

HERE = Path(__file__).parent
WIDE, NARROW = 9.0, 4.7
"""The widths in inches of each chart's two drawings: for a desktop and for a phone."""


def render(
    title: str,
    headline: str,
    sections: Sequence[Section],
    files: Mapping[str, str],
    folder: Path,
    about: Sequence[str] = (),
) -> str:
    """The page, for ``folder``. ``files`` are the CSV texts it offers, by name."""
    code = (HERE / "report.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html").render(
        title=title,
        headline=headline,
        about=about,
        style=Markup(svg.colours() + (HERE / "style.css").read_text(encoding="utf-8")),
        charts_style=Markup(timeline.style()),
        scripts={"charts": Markup(timeline.code()), "own": Markup(code)},
        link=lambda path: _relative(path, folder),
        sections=sections,
        drawn=_drawn,
        timeline=_timeline,
        files=[(name, _address(text)) for name, text in files.items()],
    )


def about_runs(compared: Comparison) -> list[str]:
    """What all finished runs share: settings, experiments, machines and date."""
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
    seeds = len({entry.content["recipe"]["seed"] for entry in compared.finished})
    found += [f"{seeds} seeds"] if seeds > 1 else []
    found += [f"Experiment {folder.resolve().name}" for folder in compared.folders]
    found += sorted({entry.content["run"]["host"] for entry in compared.entries})
    started = [entry.content["run"]["started"] for entry in compared.entries]
    return found + ([_date(max(started))] if started else [])


def _relative(path: Path, folder: Path) -> str:
    """The address of a run's file for a page in ``folder``."""
    return quote(Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix())


def _timeline(compared: Comparison) -> tuple[Markup, list[str]]:
    """The interactive chart, and the runs that have no trace."""
    lanes, without = charts.traces(compared)
    return Markup(timeline.comparison_fragment(lanes) if lanes else ""), without


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

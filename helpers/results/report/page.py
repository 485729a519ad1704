"""Write the report as one HTML file that loads nothing. Jinja escapes every text of a record."""

import base64
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from gpumon.drawing import interactive
from helpers.record.tasks import capital
from helpers.results import charts, conclusions, learning_curves
from helpers.results.charts import Chart
from helpers.results.comparison import Comparison, latest_of_each, repeats
from helpers.results.ranking import ranked
from helpers.results.report import svg
from helpers.results.report.sections import (
    Block,
    Section,
    Target,
    Texts,
    Utilisation,
    title,
)
from helpers.results.tables import Table, family_of

HERE = Path(__file__).parent
WIDE, NARROW = 9.0, 4.7
"""Inches of the two drawings of each chart, for a desk's screen and for a phone's."""
FIT = {"runs": 7, "wide": 8, "published": 8}
"""Columns that fit next to each other on a screen and on paper, by the table's kind; more of them
go into another table below."""

LONG = 12
"""Rows of a table that are shown at first; and runs, of which more can be chosen from."""
_EVIDENCE = {
    "Fastest": "speed",
    "Fair?": "fairness",
    "Waited for": "devices",
    "More devices": "scaling",
}
"""The sections with the evidence for the answers, by their questions."""
_SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z0-9])")
_TONES = {"yes": "good", "no": "bad", "only in part": "other"}


def render(
    compared: Comparison, sections: Sequence[Section], files: Mapping[str, str], folder: Path
) -> str:
    """The page, for ``folder``. ``files`` are the CSV texts it offers, by name."""
    picture = charts.first(compared)
    started = [entry.content["run"]["started"] for entry in compared.entries]
    return _filled(
        compared,
        sections,
        files,
        folder,
        title=title(compared),
        headline=conclusions.headline(compared),
        picture=None if picture is None else _chart(picture),
        answers=(answers := _answers(compared)),
        about=_about(compared),
        more={answer["section"]: answer["more"] for answer in answers},
        experiments=[folder.resolve().name for folder in compared.folders],
        hosts=sorted({entry.content["run"]["host"] for entry in compared.entries}),
        when=_date(max(started)) if started else "",
        choices=_choices(compared),
    )


def of_tables(
    title: str, headline: str, sections: Sequence[Section], files: Mapping[str, str], folder: Path
) -> str:
    """A page of the same look as :func:`render`'s, with tables and sentences alone."""
    none = dict.fromkeys(("answers", "about", "experiments", "hosts"), ())
    return _filled(
        Comparison((), (), ()),
        sections,
        files,
        folder,
        **none,
        title=title,
        headline=headline,
        picture=None,
        more={},
        when="",
        choices={},
    )


def _filled(
    compared: Comparison,
    sections: Sequence[Section],
    files: Mapping[str, str],
    folder: Path,
    **given: Any,
) -> str:
    """The template with these sections."""
    code = (HERE / "report.js").read_text(encoding="utf-8")
    scripts = {"charts": interactive.code(), "draw": interactive.DRAW, "own": code}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        style=Markup(svg.colours() + (HERE / "style.css").read_text(encoding="utf-8")),
        charts_style=Markup(interactive.style()),
        scripts={name: Markup(text) for name, text in scripts.items()},
        link=lambda path: _relative(path, folder),
        long=LONG,
        sections=[(section, [_block(compared, b) for b in section.blocks]) for section in sections],
        links=lambda section: [
            (name, _address(files[name])) for name in section.data if name in files
        ],
        everything=[(name, _address(text)) for name, text in files.items()],
        **given,
    )


def _answers(compared: Comparison) -> list[dict[str, str]]:
    """The answers' figures and first sentences; ``more``, the rest, opens their ``section``."""
    found = []
    for answer in conclusions.answers(compared):
        said, *more = _SENTENCE.split(answer.text)
        found.append(
            {
                "question": answer.question,
                "figure": answer.figure or answer.verdict,
                "tone": _TONES.get(answer.verdict, ""),
                "text": said,
                "more": " ".join(more),
                "section": _EVIDENCE[answer.question],
            }
        )
    return found


def _about(compared: Comparison) -> list[str]:
    """The settings that all finished runs share, and how many seeds they have."""
    each: dict[str, set[str]] = {}
    for content in (entry.content for entry in compared.finished):
        recipe, data = content["recipe"], content.get("data")
        for name, text in (
            ("recipe", f"recipe {recipe['name']}"),
            ("images", f"{data['images']['train']:,} images for training" if data else ""),
            ("size", f"{recipe['crop']} px"),
            ("epochs", f"{recipe['epochs']} epoch{'s' * (recipe['epochs'] != 1)}"),
            ("precision", str(recipe["precision"])),
            ("seed", f"seed {recipe['seed']}"),
        ):
            each.setdefault(name, set()).add(text)
    seeds = each.pop("seed", set())
    shared = [text for texts in each.values() if len(texts) == 1 for text in texts if text]
    return [*shared, *([f"{len(seeds)} seeds"] if len(seeds) > 1 else [])]


def _relative(path: Path, folder: Path) -> str:
    """The address of a run's file for a page in ``folder``."""
    return quote(Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix())


def _block(compared: Comparison, block: Block) -> dict[str, Any]:
    """What the template shows of a block."""
    common = {
        "title": block.title,
        "note": getattr(block, "note", ""),
        "folded": getattr(block, "folded", False),
    }
    if isinstance(block, Chart):
        return common | _chart(block)
    if isinstance(block, Table):
        parts = block.parts(FIT[block.kind]) if block.kind in FIT else [block]
        return common | {"is": "table", "kind": block.kind, "parts": parts}
    if isinstance(block, Texts):
        return common | {"is": "texts", "lines": block.lines}
    if isinstance(block, Utilisation):
        lanes, without = charts.traces(compared)
        chart = Markup(interactive.comparison_fragment(lanes)) if lanes else Markup("")
        return common | {"is": "utilisation", "chart": chart, "without": without}
    return common | _target(compared, block)


def _chart(chart: Chart) -> dict[str, Any]:
    return {"is": "chart", "alt": chart.alt, **_drawn(chart)}


def _drawn(chart: Chart) -> dict[str, Markup]:
    return {
        name: svg.inline(chart.figure(width), f"{chart.name}-{name}")
        for name, width in (("wide", WIDE), ("narrow", NARROW))
    }


def _target(compared: Comparison, block: Target) -> dict[str, Any]:
    metric = compared.metric
    best = [learning_curves.best(entry, metric) for entry in compared.finished]
    return {
        "is": "target",
        "note": block.table.note,
        "label": capital(metric.of_validation),
        "wanted": f"{block.wanted:.2f}",
        "said": metric.target(block.wanted),
        "least": metric.least,
        "most": f"{max([value for value in best if value == value], default=1.0):.2f}",
        "part": block.table,
        "data": {"percent": metric.percent, "runs": _targets(compared)},
    }


def _targets(compared: Comparison) -> list[dict[str, Any]]:
    """For the page's time to a chosen value: each run's epochs as [epoch, clock, value, time]."""
    rows, column, race = [], compared.metric.of_epoch, ranked(compared)
    _, shown_clock = learning_curves.clock_of(compared)
    for entry in latest_of_each(compared.finished):
        known = learning_curves.history(entry).dropna(subset=[column])
        figures = known[["epoch", "clock", column]].itertuples(index=False)
        steps = [
            [int(epoch), round(float(clock), 3), round(float(value), 4), shown_clock(clock)]
            for epoch, clock, value in figures
        ]
        shown = {"run": entry.timed, "of": family_of(entry.label) or "", "on": str(entry.devices)}
        rows.append(shown | {"ranks": entry in race, "epochs": steps})
    return rows


def _choices(compared: Comparison) -> dict[str, list[str]]:
    """The frameworks and numbers of devices to choose from; nothing where all fit on a screen."""
    if len(repeats(compared.entries)) <= LONG:
        return {}
    labels = dict.fromkeys(entry.label for entry in compared.entries)
    counts = sorted({entry.devices for entry in compared.entries if entry.devices})
    return {
        "Frameworks": list(dict.fromkeys(family_of(label) or label for label in labels)),
        "Devices": [str(count) for count in counts],
    }


def _address(text: str) -> str:
    return "data:text/csv;base64," + base64.b64encode(text.encode()).decode()


def _date(started: str) -> str:
    try:
        return f"{datetime.fromisoformat(started):%-d %B %Y, %H:%M} UTC"
    except ValueError:
        return started

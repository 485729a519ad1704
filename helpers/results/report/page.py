"""Write the report as one HTML file that loads nothing and never treats records as markup.

Jinja escapes every text. In addition, the page's Content-Security-Policy allows only the scripts of
this package.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from gpumon.drawing import interactive
from helpers.results import charts, conclusions, learning_curves, published
from helpers.results.charts.style import family_of
from helpers.results.comparability import DIFFERENT, NOT_COMPARABLE, RESUMED, SHARED
from helpers.results.comparison import Comparison, repeats
from helpers.results.report import chart_descriptions, svg
from helpers.results.report.blocks import Chart, Live, Section, Table, Texts
from helpers.results.report.contents import title
from helpers.results.report.learning_section import targets
from helpers.training.tasks import capital

HERE = Path(__file__).parent
WIDE, NARROW = 9.0, 4.7
"""Inches of the two drawings of each chart, for a desk's screen and for a phone's."""
FIRST = Chart("first", "In one picture", charts.first, "")
FIT = {"verdicts": 6, "runs": 6, "wide": 8, "measured": 8, "published": 8}
"""Columns that fit next to each other on a screen and on paper, by the table's kind; more of them
go into another table below."""

LONG = 12
"""Rows of a table that are shown at first; and runs, of which more can be chosen from."""

_VERDICTS = {"pass": "good", "fail": "bad"}
_MARKED = re.compile(rf"(.*) \(((?:{NOT_COMPARABLE}|{DIFFERENT}|{RESUMED}|{SHARED})[^()]*)\)")
_NUMBER = re.compile(r"[-~+]?[\d.,:]+(?:e[-+]?\d+)?( s| %|%| points)?( \(.*\))?|n/a|-")


@dataclass(frozen=True)
class Cell:
    """text: what is read. css: its class. span: how many columns it heads. badge: set apart.

    small: what stands below in small letters, the spread of a figure. of, on: the framework and
    the number of devices of the run that a row or column is about, to choose by.
    """

    text: str
    css: str = ""
    span: int = 1
    badge: str = ""
    small: str = ""
    of: str = ""
    on: str = ""


@dataclass(frozen=True)
class Grid:
    """A table taken apart for the template: rows of cells, the first of each row its heading."""

    head: list[list[Cell]]
    rows: list[list[Cell]]


def render(compared: Comparison, sections: Sequence[Section], files: Mapping[str, str]) -> str:
    """The page. ``files`` are the CSV texts it offers, by name."""
    code = (HERE / "report.js").read_text(encoding="utf-8")
    scripts = {"charts": interactive.code(), "draw": interactive.DRAW, "own": code}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    started = [entry.content["run"]["started"] for entry in compared.entries]
    return environment.get_template("page.html").render(
        policy=_policy(scripts.values()),
        style=Markup(_colours() + (HERE / "style.css").read_text(encoding="utf-8")),
        charts_style=Markup(interactive.style()),
        scripts={name: Markup(text) for name, text in scripts.items()},
        title=title(compared),
        headline=conclusions.headline(compared),
        picture=_drawn(compared, FIRST),
        picture_alt=chart_descriptions.first(compared),
        answers=[(a, _css_of(a)) for a in conclusions.answers(compared)],
        experiments=[folder.resolve().name for folder in compared.folders],
        hosts=sorted({entry.content["run"]["host"] for entry in compared.entries}),
        when=_date(max(started)) if started else "",
        published=published.source() if published.belong(compared) else "",
        choices=_choices(compared),
        long=LONG,
        sections=[(section, _blocks(compared, section)) for section in sections],
        links=lambda section: [
            (name, _address(files[name])) for name in section.data if name in files
        ],
        everything=[(name, _address(text)) for name, text in files.items()],
    )


def _blocks(compared: Comparison, section: Section) -> list[dict[str, Any]]:
    """What the template shows of a section, without charts that have nothing to draw."""
    found: list[dict[str, Any]] = []
    of = _naming(compared)
    for block in section.blocks:
        common = {"name": f"{section.name}-{block.name}" if hasattr(block, "name") else ""}
        common |= {"title": block.title, "note": getattr(block, "note", "")}
        if isinstance(block, Chart):
            drawn = _drawn(compared, block)
            if drawn is not None:
                found.append(common | {"is": "chart", "alt": block.alt, **drawn})
        elif isinstance(block, Table):
            verdicts = block.kind == "verdicts"
            grids = [_grid(part, verdicts=verdicts, of=of) for part in _parts(block)]
            found.append(common | {"is": "table", "kind": block.kind, "grids": grids})
        elif isinstance(block, Texts):
            found.append(common | {"is": "texts", "lines": block.lines})
        elif isinstance(block, Live):
            live = _utilisation if block.name == "utilisation" else _target
            found.append(common | {"is": block.name, **live(compared)})
    return found


def _drawn(compared: Comparison, chart: Chart) -> dict[str, Markup] | None:
    wide = chart.draw(compared, width=WIDE)
    narrow = chart.draw(compared, width=NARROW)
    if wide is None or narrow is None:
        return None
    return {
        "wide": svg.inline(wide, f"{chart.name}-wide"),
        "narrow": svg.inline(narrow, f"{chart.name}-narrow"),
    }


def _utilisation(compared: Comparison) -> dict[str, Any]:
    lanes, without = charts.traces(compared)
    chart = Markup(interactive.comparison_fragment(lanes)) if lanes else Markup("")
    return {"chart": chart, "without": without}


def _target(compared: Comparison) -> dict[str, Any]:
    metric = compared.metric
    wanted = learning_curves.target(compared) or 0.0
    best = [learning_curves.best(entry, metric) for entry in compared.finished]
    return {
        "label": capital(metric.of_validation),
        "wanted": f"{wanted:.2f}",
        "said": metric.target(wanted),
        "least": metric.least,
        "most": f"{max([value for value in best if value == value], default=1.0):.2f}",
        "grid": _grid(learning_curves.table(compared, wanted), of=_naming(compared)),
        "data": {"percent": metric.percent, "runs": targets(compared)},
    }


def _parts(block: Table) -> list[pd.DataFrame]:
    """The table in parts no wider than the page, where its columns are runs or devices."""
    frame = block.frame
    heads = list(dict.fromkeys(frame.columns.get_level_values(0)))
    if block.kind not in FIT or frame.columns.empty:
        return [frame]
    count = -(-len(heads) // max(1, FIT[block.kind] * len(heads) // len(frame.columns)))
    chunks = [heads[len(heads) * i // count : len(heads) * (i + 1) // count] for i in range(count)]
    return [frame.loc[:, frame.columns.get_level_values(0).isin(chunk)] for chunk in chunks]


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


_ON = re.compile(r"\b(\d+) devices?\b")


def _naming(compared: Comparison) -> Callable[[str], tuple[str, str]]:
    """What tells the run of a heading; nothing where there is nothing to choose from."""
    return _run_of if _choices(compared) else lambda heading: ("", "")


def _run_of(text: str) -> tuple[str, str]:
    """The framework and number of devices that a heading names; nothing where it names none."""
    found = _ON.search(text)
    return family_of(text) or "", found[1] if found else ""


def _grid(
    frame: pd.DataFrame,
    *,
    verdicts: bool = False,
    of: Callable[[str], tuple[str, str]] = lambda text: ("", ""),
) -> Grid:
    name = str(frame.index.name or "")
    if isinstance(frame.columns, pd.MultiIndex):
        tops: list[Cell] = []
        for top in frame.columns.get_level_values(0):
            if tops and tops[-1].text == str(top):
                tops[-1] = Cell(tops[-1].text, "top", span=tops[-1].span + 1)
            else:
                tops.append(Cell(str(top), "top"))
        head = [[Cell(""), *tops], [Cell(name), *(Cell(str(c[1])) for c in frame.columns)]]
    else:
        head = [[Cell(name), *(_chosen(Cell(str(column)), *of(str(column))) for column in frame)]]
    rows = []
    for label, values in zip(frame.index, frame.values, strict=True):
        texts = [str(value) for value in values]
        cells = [_verdict(text) if verdicts else _value(text) for text in texts]
        tops = head[-1][1:]
        cells = [_chosen(cell, top.of, top.on) for cell, top in zip(cells, tops, strict=True)]
        rows.append([_chosen(_heading(str(label)), *of(str(label))), *cells])
    return Grid(head, rows)


def _chosen(cell: Cell, of: str, on: str) -> Cell:
    return replace(cell, of=of, on=on)


def _heading(label: str) -> Cell:
    found = _MARKED.fullmatch(label)
    return Cell(found[1], "unfair", badge=found[2]) if found else Cell(label)


def _value(text: str) -> Cell:
    if _NUMBER.fullmatch(text):
        median, bracket, spread = text.partition(" (")
        return Cell(median, "number", small=spread.rstrip(")") if bracket else "")
    return Cell(text, "long" if len(text) > 30 else "")


def _verdict(text: str) -> Cell:
    """A check's cell: its class by the verdict it begins with, the limit in small letters."""
    found, bracket, limit = text.partition(" (")
    css = _VERDICTS.get(found.partition(":")[0], "none" if text == "-" else "other")
    return Cell(found, css, small=limit.rstrip(")") if bracket else "")


def _css_of(answer: conclusions.Answer) -> str:
    return {"yes": "good", "no": "bad", "only in part": "other"}.get(answer.verdict, "")


def _policy(scripts: Any) -> str:
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _colours() -> str:
    """The variables of both themes, as CSS."""
    themes = svg.variables()
    light, dark = (
        " ".join(f"{name}: {colour};" for name, colour in themes[theme].items())
        for theme in ("light", "dark")
    )
    in_dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ {light} }}\n{in_dark}\n"


def _address(text: str) -> str:
    return "data:text/csv;base64," + base64.b64encode(text.encode()).decode()


def _date(started: str) -> str:
    try:
        return f"{datetime.fromisoformat(started):%-d %B %Y, %H:%M} UTC"
    except ValueError:
        return started

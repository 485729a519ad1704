"""Write the report as Markdown without charts, for an issue, a wiki or a mail."""

import re
from collections.abc import Sequence

import pandas as pd

from helpers.results import conclusions, learning_curves, published
from helpers.results.comparison import Comparison
from helpers.results.report.blocks import Block, Live, Section, Table, Texts
from helpers.results.report.contents import title

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def render(compared: Comparison, sections: Sequence[Section]) -> str:
    """The whole text, ending in a newline."""
    parts = [f"# {_text(title(compared))}", _text(conclusions.headline(compared))]
    answers = conclusions.answers(compared)
    parts.append(
        "\n".join(f"- **{_text(a.question)}** {_text(a.verdict)}: {_text(a.text)}" for a in answers)
    )
    for section in sections:
        parts += [f"## {_text(section.title)}", _text(section.lead)]
        for block in section.blocks:
            parts += _block(compared, block)
    if published.belong(compared):
        parts.append(f"Published figures: {_text(published.source())}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(compared: Comparison, block: Block) -> list[str]:
    if isinstance(block, Table):
        badge = " (published, not measured here)" if block.kind == "published" else ""
        return [f"### {_text(block.title)}{badge}", table(block.frame), _text(block.note)]
    if isinstance(block, Texts):
        lines = "\n".join(f"- {_text(line)}" for line in block.lines)
        return [f"### {_text(block.title)}", lines]
    if isinstance(block, Live) and block.name == "target":
        metric, wanted = compared.metric, learning_curves.target(compared) or 0.0
        heading = f"### Time to a validation {metric.short} of {metric.target(wanted)}"
        return [heading, table(learning_curves.table(compared)), _text(block.note)]
    return []


def table(frame: pd.DataFrame) -> str:
    """A Markdown table of text, the index as its first column; two headings become one."""
    heads = [" ".join(map(str, c)) if isinstance(c, tuple) else str(c) for c in frame.columns]
    rows = [[str(frame.index.name or ""), *heads]]
    rows += [[str(i), *map(str, row)] for i, row in zip(frame.index, frame.values, strict=True)]
    lines = ["| " + " | ".join(_text(cell) for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)


def _text(value: str) -> str:
    """Text that can be nothing but text: no markup and no new line."""
    return _SPECIAL.sub(r"\\\1", " ".join(value.split())).replace("\\<", "&lt;")

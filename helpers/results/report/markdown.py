"""Write the report as Markdown without charts, for an issue, a wiki or a mail."""

import re
from collections.abc import Sequence

from helpers.results import conclusions
from helpers.results.comparison import Comparison
from helpers.results.report.sections import Block, Section, Texts, title
from helpers.results.tables import Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def render(compared: Comparison, sections: Sequence[Section]) -> str:
    """The whole text, ending in a newline."""
    parts = [f"# {_text(title(compared))}", _text(conclusions.headline(compared))]
    for section in sections:
        blocks = [(block.title, said) for block in section.blocks if (said := _block(block))]
        if not blocks:
            continue
        parts += [f"## {_text(section.title)}", _text(section.lead)]
        for heading, said in blocks:
            parts += said[heading == section.title :]  # their heading stands there already
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> list[str]:
    if isinstance(block, Table):
        return [f"### {_text(block.title)}", _table(block), _text(block.note)]
    if isinstance(block, Texts):
        lines = "\n".join(f"- {_text(line)}" for line in block.lines)
        return [f"### {_text(block.title)}", lines]
    return []


def _table(table: Table) -> str:
    """The row headings are the first column."""
    rows = [[table.corner, *table.columns]]
    rows += [[str(name), *map(str, cells)] for name, cells in table.rows]
    lines = ["| " + " | ".join(_text(cell) for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)


def _text(value: str) -> str:
    """Escape a text, so that it contains neither markup nor line breaks."""
    return _SPECIAL.sub(r"\\\1", " ".join(value.split())).replace("\\<", "&lt;")

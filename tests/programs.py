"""The notebooks that call ``helpers.begin``: what they show is the program that trains."""

import ast
import io
import json
import re
import tokenize
from functools import cache

from helpers import paths
from helpers.frameworks import ROWS

MARK = "# multi-GPU"
"""Ends a line that one device would not need; a reason may follow."""


def is_program(notebook: str) -> bool:
    """Whether it is one; a notebook that is still to be written will be."""
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
    return not path.exists() or "helpers.begin(" in path.read_text(encoding="utf-8")


def launches(notebook: str) -> bool:
    """Whether it starts its processes itself."""
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
    return path.exists() and "run.launch(" in path.read_text(encoding="utf-8")


NAMES = sorted({*(row.notebook for row in ROWS), *(p.stem for p in paths.NOTEBOOKS.glob("*_M*"))})
PROGRAMS = [name for name in NAMES if is_program(name)]


@cache
def sources(notebook: str) -> tuple[tuple[str, str], ...]:
    """The kind of each cell, ``code`` or ``markdown``, and its text."""
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
    assert path.exists(), f"notebooks/{notebook}.ipynb is missing"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return tuple((cell["cell_type"], "".join(cell["source"])) for cell in cells)


def code(notebook: str) -> str:
    return "\n\n\n".join(text for kind, text in sources(notebook) if kind == "code")


def code_lines(source: str) -> int:
    """Lines that are neither blank nor a comment nor a docstring."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, DOCUMENTED)]
    texts = [node.body[0] for node in nodes if ast.get_docstring(node) is not None]
    left_out = {n for text in texts for n in range(text.lineno, (text.end_lineno or 0) + 1)}
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BLANK:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - left_out)


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
BLANK |= {tokenize.ENDMARKER}


def definitions(notebook: str) -> dict[str, str]:
    """The text of each function and class, by name, without the lines for several devices."""
    source = code(notebook)
    tops = ast.parse(source).body
    texts = {
        node.name: str(ast.get_source_segment(source, node))
        for node in tops
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    marked = re.compile(rf"^.*{MARK}.*\n?", re.M)
    return {name: marked.sub("", text) for name, text in texts.items()}


def marked_lines(notebook: str) -> dict[str, list[str]]:
    """The lines that one device would not need, without their marks, by section."""
    section, found = "", dict[str, list[str]]()
    for kind, text in sources(notebook):
        if kind == "markdown":
            titles = re.findall(r"^## (.+)$", text, re.M)
            section = titles[-1] if titles else section
            continue
        lines = [line.partition(MARK)[0].strip() for line in text.splitlines() if MARK in line]
        if lines:
            found.setdefault(section, []).extend(lines)
    return found

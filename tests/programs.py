"""The frameworks' notebooks: what they show is the program that trains."""

import ast
import re

from multi_gpu_lines import MARK, code

from helpers import paths
from helpers.frameworks import ROWS

PROGRAMS = list(dict.fromkeys(row.notebook for row in ROWS))


def launches(notebook: str) -> bool:
    """Whether it starts its processes itself."""
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
    return path.exists() and "run.launch(" in path.read_text(encoding="utf-8")


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

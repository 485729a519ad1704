"""Print docs/multi-gpu-lines.md: the lines of all notebooks that one device would not need.

.venvs/lab/bin/python tools/multi_gpu_lines.py > docs/multi-gpu-lines.md
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from helpers import paths
from helpers.frameworks import ROWS

MARK = "# multi-GPU"
"""Ends such a line; a reason may follow."""
PAGE = """# What several GPUs cost in code

These lines of each notebook are needed for several devices only. If you have a program for one
GPU, they are what you add. In the notebooks they end with `# multi-GPU`:

```console
grep -n "# multi-GPU" notebooks/PyTorch_MultiGPU.ipynb
```

[Data parallelism](data-parallelism.md) explains them.
"""
NAMES = {"PyTorch": "PyTorch DistributedDataParallel", "TensorFlow": "TensorFlow MirroredStrategy"}
"""What a notebook is called here, where its row's name says too little."""


@cache
def sources(notebook: str) -> tuple[tuple[str, str], ...]:
    """The kind of each cell, ``code`` or ``markdown``, and its text."""
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
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


def page() -> str:
    """The page, in the order of the registry."""
    names = {row.notebook: NAMES.get(row.name, row.name) for row in reversed(ROWS)}
    notebooks = dict.fromkeys(row.notebook for row in ROWS)
    marked = {name: lines for name in notebooks if (lines := marked_lines(name))}
    sections = sorted({section for lines in marked.values() for section in lines})
    rows = [["notebook", "lines of code", "for several GPUs"], ["---"] * 3]
    for name, lines in marked.items():
        link = f"[{names[name]}](../notebooks/{name}.ipynb)"
        rows.append([link, str(code_lines(code(name))), str(sum(map(len, lines.values())))])
    parts = [PAGE, "\n".join(f"| {' | '.join(row)} |" for row in rows)]
    for section in sections:
        parts.append(f"\n## {section}")
        for name, lines in marked.items():
            if own := lines.get(section):
                parts.append(f"\n{names[name]}:\n\n```text\n" + "\n".join(own) + "\n```")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page())

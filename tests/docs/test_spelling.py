"""British spelling in prose: pages, notebooks, docstrings, comments and messages.

Names from libraries keep their spelling: whatever is in backticks or looks like code is left out.
"""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import paths

ROOT = paths.ROOT
CODE = ("helpers", "data_prep", "gpumon", "tests", "tools", "benchmarks", "environments")
OUTSIDE = ("gpumon/README.md", "tests/README.md", "tests/gpu/README.md", "benchmarks/RESULTS.md")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / page for page in OUTSIDE)]
)
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MODULES = sorted(file for folder in CODE for file in (ROOT / folder).rglob("*.py"))
AMERICAN = re.compile(
    r"\b((?:colo|behavio|favo|neighbo|hono|labo)r(?:s|ed|ing|ite|al|less)?|gray\w*|center(?:s|ed)?"
    r"|(?:normal|optim|synchron|initial|summar|recogn|serial|util|minim|maxim|organ|visual|custom"
    r"|quant|parallel|random|general|emphas)iz(?:e|es|ed|er|ers|ing|ation|ations)"
    r"|analyz(?:e|es|ed|ing)|(?:labe|cance|mode|trave)l(?:ed|ing)|defense|fulfill|catalogs?ed)\b",
    re.IGNORECASE,
)
NAMES = (  # of institutions, titles, errors; a place in matplotlib; a docstring's argument
    "NIH Clinical Center",
    "Color Universal Design",
    "Dst tensor is not initialized",
    "outside lower center",
    "optimizer: ",
    "optimizer =",  # a key of a recipe
)
NOT_PROSE = re.compile(
    r"^```.*?^```$"  # a block of code
    r"|``?[^`]+``?"  # a span of code
    r"|\]\([^)\s]+\)|https?://\S+"  # where a link leads
    r"|[\w.]*[._=(/-]\w[\w.]*|\w+[._=(/]"  # names: x.color, sync_y, optimizer=, center()
    r"|\[[^\]]*\]\[|\"[^\"\s]+\"|'\w+'",
    re.MULTILINE | re.DOTALL,
)


def american(text: str) -> list[str]:
    """The American words of a text's prose."""
    for name in NAMES:
        text = text.replace(name, "")
    return [found[0] for found in AMERICAN.finditer(NOT_PROSE.sub(" ", text))]


def prose(code: str) -> Iterator[str]:
    """A module's comments, docstrings and messages (strings of three words and more)."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(code)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and len(node.value.split()) > 2
            and "{" not in node.value  # else a program or a style
        ):
            yield node.value


def short(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_pages_are_british(page: Path) -> None:
    assert american(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=short)
def test_notebooks_are_british(notebook: Path) -> None:
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        texts = prose(source) if cell["cell_type"] == "code" else [source]
        assert [word for text in texts for word in american(text)] == []


def test_code_is_british() -> None:
    found = {}
    for module in MODULES:
        text = module.read_text(encoding="utf-8")
        if module == Path(__file__) or not AMERICAN.search(text):  # most: they need not be parsed
            continue
        if words := [word for part in prose(text) for word in american(part)]:
            found[short(module)] = words
    assert found == {}


def test_the_check_can_fail_and_spares_names() -> None:
    assert american("Colors are normalized; the optimizer behaves.") == [
        "Colors",
        "normalized",
        "optimizer",
    ]
    assert american("`optimizer` and ``center_crop``, x.color, torch.optim.Optimizer") == []
    code = 'def f():\n    """Behavior of it."""\n    # gray planes\n    optimizer = "a b center"\n'
    assert [w for text in prose(code) for w in american(text)] == ["gray", "Behavior", "center"]

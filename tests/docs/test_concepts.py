"""The concepts and tutorials quote notebooks, records and published results word for word."""

import contextlib
import io
import json

import pytest
from test_docs import BLOCK

from helpers import paths

DOCS = paths.ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(name: str, kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page(name)) if found == kind]


def lines_of(notebook: str) -> set[str]:
    content = (paths.ROOT / "notebooks" / f"{notebook}.ipynb").read_text(encoding="utf-8")
    sources = ["".join(cell["source"]) for cell in json.loads(content)["cells"]]
    return {line.strip() for source in sources for line in source.splitlines()}


def test_excerpts_are_lines_of_the_notebooks() -> None:
    notebooks = (lines_of(name) for name in ("PyTorch_MultiGPU", "JAX_MultiGPU"))
    for text, there in zip(blocks("data-parallelism", "python"), notebooks, strict=True):
        assert [line for line in text.splitlines() if line.strip() not in there] == []


def test_the_example_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(paths.ROOT)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(blocks("report", "python")[0], {})
    assert blocks("report", "text")[0] == said.getvalue()

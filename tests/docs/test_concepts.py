"""The concepts and tutorials quote notebooks, records and published results word for word."""

import contextlib
import io
import json
import re

import pytest
from test_docs import BLOCK

from helpers import paths, record

DOCS = paths.ROOT / "docs"
RESULTS = DOCS / "results" / "cpu-2-cores"
PAGES = ("data-parallelism", "cpu-devices", "uncertainty", "time-attribution", "fairness-rows")
INTERVAL = re.compile(r"\((-?[\d.]+ to [+-]?[\d.]+)(?: over 3 runs)?\)")


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def published() -> list[str]:
    """The demo's report, and its notebooks as they ran."""
    files = [RESULTS / "demo" / "report.md", *(RESULTS / "demo").glob("*/notebook.ipynb")]
    return [file.read_text(encoding="utf-8") for file in files]


def blocks(name: str, kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page(name)) if found == kind]


def lines_of(notebook: str) -> set[str]:
    content = (paths.ROOT / "notebooks" / f"{notebook}.ipynb").read_text(encoding="utf-8")
    sources = ["".join(cell["source"]) for cell in json.loads(content)["cells"]]
    return {line.strip() for source in sources for line in source.splitlines()}


def test_excerpts_are_lines_of_the_notebooks() -> None:
    pytorch, jax = lines_of("PyTorch_MultiGPU"), lines_of("JAX_MultiGPU")
    excerpts = zip(blocks("side-by-side", "python"), (pytorch & jax, pytorch, jax), strict=True)
    for text, there in excerpts:
        assert [line for line in text.splitlines() if line.strip() not in there] == []


def test_the_line_to_change_is_in_the_notebook() -> None:
    before, _ = blocks("change-augmentation", "python")
    assert before.strip() in lines_of("PyTorch_MultiGPU")


def test_the_example_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(paths.ROOT)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(blocks("record", "python")[0], {})
    assert blocks("record", "text")[0] == said.getvalue()


def test_every_section_of_the_record_is_listed() -> None:
    rows = re.findall(r"^\| (`.+?) \|", page("record"), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == set(record.Record.__annotations__)


@pytest.mark.parametrize("name", PAGES)
def test_intervals_are_those_of_a_published_report(name: str) -> None:
    others = [path.read_text(encoding="utf-8") for path in RESULTS.glob("*/report.md")]
    reports = " ".join([*published(), *others])
    text = " ".join(page(name).split())
    found = set(INTERVAL.findall(text)) - {"1.00 to 2.00"}  # that one is of several rows
    assert [each for each in found if each not in reports] == []


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("fairness", "yes: ", "expected differences."),
        ("time-attribution", "Loading is not the limit: ", "data in memory."),
    ],
)
def test_sentences_are_those_of_the_published_report(name: str, first: str, last: str) -> None:
    text = " ".join(re.sub(r"^> ", "", page(name), flags=re.MULTILINE).split())
    start = text.index(first)
    sentence = text[start : text.index(last, start) + len(last)]
    assert any(sentence in text for text in published())

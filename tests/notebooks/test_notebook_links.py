"""Links in notebooks' prose lead somewhere, from where each notebook lies."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers import paths
from helpers.runner import notebook_links
from helpers.runner.notebook_links import LINK


def committed() -> list[Path]:
    command = ["git", "ls-files", "*.ipynb"]
    found = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)
    return [paths.ROOT / name for name in found.stdout.split()]


def links(cells: list[Any]) -> list[str]:
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    return [link for text in prose for link in LINK.findall(text)]


@pytest.mark.parametrize("path", committed(), ids=lambda path: str(path.relative_to(paths.ROOT)))
def test_links_of_committed_notebooks_resolve(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [link for link in links(cells) if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("whole", [True, False], ids=["papermill's text", "lines of a file"])
def test_a_copys_links_lead_where_the_originals_did(whole: bool, tmp_path: Path) -> None:
    for name in ("docs/a.md", "notebooks/Study_A.ipynb", "notebooks/own.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    text = "[a](../docs/a.md#b), [s](Study_A.ipynb)\n"
    text += "[no](../gone.md) [w](https://a.b/c) [h](#h) [f](/f)"
    lines = [text] if whole else text.splitlines(keepends=True)
    cells: list[dict[str, Any]] = [
        {"cell_type": kind, "source": text if whole else list(lines)}
        for kind in ("markdown", "code")
    ]
    target = tmp_path / "runs" / "batch" / "run"
    notebook_links.rewrite(cells, [tmp_path / "notebooks"], target)
    assert "".join(cells[1]["source"]) == text
    moved = text.replace("../docs/a", "../../../docs/a")
    moved = moved.replace("(Study_A", "(../../../notebooks/Study_A")
    assert "".join(cells[0]["source"]) == moved and isinstance(cells[0]["source"], str) == whole

"""The documentation's site: it builds without a broken link, and asks nobody else for anything.

Needs the environment that `make docs` makes; without it the tests skip.
"""

import os
import subprocess
from pathlib import Path

import pytest
from browser import tab

from helpers import paths

PYTHON = paths.VENVS / "docs" / "bin" / "python"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PYTHON.exists():
        pytest.skip("no environment for the docs: make docs")
    folder = tmp_path_factory.mktemp("site")
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [str(PYTHON), *words],
        cwd=paths.ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_and_executed_notebook_is_there(site: Path) -> None:
    pages = {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")}
    docs = paths.ROOT / "docs"
    sources = [*docs.glob("*.md"), *docs.rglob("*.ipynb"), *docs.rglob("report.html")]
    expected = {str(source.relative_to(docs).with_suffix("")) for source in sources}
    outside = {"index", "contributing", "changelog", "tests", "gpu-tests", "measurements"}
    outside.add("results/results")
    assert expected | outside <= pages


def test_reading_it_needs_no_network(site: Path, tmp_path: Path) -> None:
    with tab(tmp_path / "profile") as page:
        for file in sorted(site.rglob("*.html")):
            if file.name == "404.html":  # its addresses begin at the server's top
                continue
            page.open(file.as_uri())
            assert [a for a in page.asked if not a.startswith(("file:", "data:", "blob:"))] == []
            assert page.said == [], file.name
            broken = "[...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
            assert page.run(broken) == [], file.name

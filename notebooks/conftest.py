"""`pytest --nbmake notebooks/` runs all notebooks as they are, at the size in their metadata.

Notebooks that a launcher must start are left out, with the reason; `Compare` comes last, after the
runs that it shows. Runs and images go to `.test-runs/`, as those of the tests do.
"""

import json
import os
from pathlib import Path

import pytest

from helpers.frameworks import ROWS

HERE = Path(__file__).resolve().parent
RANKS_ONLY = {row.notebook: row.ranks_only for row in ROWS if row.ranks_only}
FRAMEWORKS = {row.notebook for row in ROWS}

for what in ("runs", "data"):
    os.environ.setdefault(f"ROSETTA_{what.upper()}", str(HERE.parent / ".test-runs" / what))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--recipe", help="a recipe's file, in place of demo")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    notebooks = [item for item in items if item.path.parent == HERE]
    for item in notebooks:
        name, recipe = item.path.stem, config.getoption("--recipe")
        if name in RANKS_ONLY:
            why = f"{RANKS_ONLY[name]}: rosetta run --notebooks {name} --devices 2"
            item.add_marker(pytest.mark.skip(reason=why))
        elif recipe and name in FRAMEWORKS:
            copy = config.cache.mkdir("nbmake") / item.path.name  # type: ignore[union-attr]
            copy.write_text(with_recipe(item.path, str(Path(recipe).resolve())), encoding="utf-8")
            item.filename = str(copy)  # type: ignore[attr-defined]
    items.sort(key=lambda item: item.path == HERE / "Compare.ipynb")


def with_recipe(path: Path, recipe: str) -> str:
    """The notebook, with one more parameter that nbmake sets."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if "nbmake" in cell["metadata"]:
            cell["metadata"]["nbmake"]["mock"]["recipe"] = recipe
    return json.dumps(content)

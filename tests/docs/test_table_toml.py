"""The page about table.toml: its keys and defaults are the code's, and its examples are valid."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from data_prep.readers.column_mapping import ColumnMapping, read_mapping
from helpers import paths

PAGE = paths.ROOT / "docs" / "your-images.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("\n## A table\n")[2].partition("\n## ")[0]
ROW = re.compile(r"^\| `(\w+)` \| .+ \| (.+) \|$", re.M)
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", SECTION, re.M | re.S)


def in_the_code() -> dict[str, object]:
    """The default of each key; None for a key that is required or has no default."""
    found = {}
    for field in msgspec.structs.fields(ColumnMapping):
        default = None if field.required else field.default
        found[field.encode_name] = list(default) if isinstance(default, tuple) else default
    return found


def on_the_page(page: str) -> dict[str, object]:
    """The default of each key of the table, where the cell begins with one in backticks."""
    found: dict[str, object] = {}
    for key, cell in ROW.findall(page):
        assert key not in found, f"{key} is on the page twice"
        value = re.match(r"`(.+)`", cell.replace("\\|", "|"))
        found[key] = tomllib.loads(f"value = {value[1]}")["value"] if value else None
    return found


def test_the_page_has_the_keys_and_defaults_of_the_code() -> None:
    assert on_the_page(SECTION) == in_the_code()
    needed = {key for key, cell in ROW.findall(SECTION) if cell == "required"}
    fields = msgspec.structs.fields(ColumnMapping)
    assert needed == {field.encode_name for field in fields if field.required}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split()[2])
def test_an_example_is_accepted(example: str, tmp_path: Path) -> None:
    (tmp_path / "table.toml").write_text(example, encoding="utf-8")
    assert read_mapping(tmp_path, None).findings

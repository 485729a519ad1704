"""Label files without a header, classes within a text, and a path for each part."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_init import lay

from data_prep import DataError
from data_prep.catalog import Catalog
from data_prep.readers import table


def classes(found: Catalog) -> list[str]:
    return [found.classes[label] for label in found.labels]


def test_a_file_without_a_header(tmp_path: Path) -> None:
    mapping = {"file": "l.txt", "columns": ["image", "class"], "path": "image", "class": "class"}
    lay(tmp_path / "set", {"l.txt": "a.png  cat\n\nb.png big dog \n"}, ["a.png", "b.png"])
    found = table.catalog(tmp_path / "set", mapping)
    assert found.images == ["a.png", "b.png"] and classes(found) == ["cat", "big dog"]
    for text, said in (
        ("a.png cat\nb.png\n", "line 2: 1 columns, the mapping names 2"),
        ("a.png cat\n../b.png cat\n", "line 2, column 'image': the path '../b.png' is not a safe"),
        ("a.png cat\nc.png cat\n", "the first is c.png"),
    ):
        (tmp_path / "set" / "l.txt").write_text(text)
        with pytest.raises(DataError, match=said.replace(".", r"\.")):
            table.catalog(tmp_path / "set", mapping)
    with pytest.raises(DataError, match=r"'columns' is .* a list of different texts is needed"):
        table.catalog(tmp_path / "set", mapping | {"columns": ["a", "a"]})
    pattern = mapping | {"class": "image", "class_pattern": "z"}
    with pytest.raises(DataError, match=r"column 'image': no 'z' in 'a.png'; fix class_pattern"):
        table.catalog(tmp_path / "set", pattern)


def test_a_class_within_a_text(tmp_path: Path) -> None:
    mapping = {"file": "l.txt", "columns": ["image"], "path": "{image}.png", "class": "image"}
    lay(tmp_path / "set", {"l.txt": "pie/1\nsoup/2\n"}, ["pie/1.png", "soup/2.png"])
    found = table.catalog(tmp_path / "set", mapping | {"class_pattern": "^[^/]+"})
    assert classes(found) == ["pie", "soup"]


def test_a_path_for_each_part(tmp_path: Path) -> None:
    files = {"train": "a.csv", "test": "b.csv"}
    lay(tmp_path / "set", dict.fromkeys(files.values(), "id,c\n1,x\n"), ["a/1.png", "b/1.png"])
    mapping = {"file": files, "path": {"train": "a/{id}.png", "test": "b/{id}.png"}, "class": "c"}
    assert table.catalog(tmp_path / "set", mapping).images == ["a/1.png", "b/1.png"]
    with pytest.raises(DataError, match="'path' and 'file' differ in their parts"):
        table.catalog(tmp_path / "set", mapping | {"path": {"train": "a/{id}.png"}})

"""Classes in the paths of images, and folders that are not the classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_init import lay

from data_prep import DataError
from data_prep.readers import class_folders, imagefolder


def test_the_class_is_in_the_path(tmp_path: Path) -> None:
    lay(tmp_path / "set", {}, ["train/cat.0.jpg", "train/dog.0.jpg", "test1/1.jpg"])
    found = imagefolder.catalog(tmp_path / "set", class_pattern="cat|dog")
    assert found.images == ["train/cat.0.jpg", "train/dog.0.jpg"] and found.parts is None
    assert found.classes == ("cat", "dog") and found.labels.tolist() == [0, 1]

    lay(tmp_path / "nested", {}, [f"p{at}/{at % 2}/{at}.png" for at in range(4)])
    last = class_folders.LAST_FOLDER
    nested = imagefolder.catalog(tmp_path / "nested", group="p[0-9]", class_pattern=last)
    assert nested.classes == ("0", "1") and nested.groups == ["p0", "p1", "p2", "p3"]

    with pytest.raises(DataError, match=r"cat.0.jpg: no 'bird' in the path; fix the pattern of cl"):
        imagefolder.catalog(tmp_path / "set", class_pattern="bird")
    with pytest.raises(DataError, match=r"class_pattern '\(' is not a regular expression"):
        imagefolder.catalog(tmp_path / "set", class_pattern="(")
    lay(tmp_path / "parts", {}, ["train/a1.png", "val/b1.png"])
    with pytest.raises(DataError, match="'b' is a class without training images"):
        imagefolder.catalog(tmp_path / "parts", class_pattern="[ab](?=1)")


def test_folders_that_are_no_classes(tmp_path: Path) -> None:
    lay(tmp_path / "copy", {}, ["no/1.png", "yes/1.png", "all/no/1.png", "all/yes/1.png"])
    with pytest.raises(DataError, match=r"all is a class and contains no, .* --exclude all"):
        imagefolder.catalog(tmp_path / "copy")
    assert len(imagefolder.catalog(tmp_path / "copy", exclude=["all"])) == 2

    names = ["asl_train/A/1.png", "asl_train/B/2.png", "asl_test/A/3.png"]
    lay(tmp_path / "parts", {}, names)
    found = imagefolder.catalog(tmp_path / "parts")
    assert found.classes == ("A", "B") and found.parts is not None
    lay(tmp_path / "one", {}, ["bullet_train/1.png"])
    assert imagefolder.catalog(tmp_path / "one").classes == ("bullet_train",)

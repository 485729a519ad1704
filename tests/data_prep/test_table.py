"""Any CSV: CheXpert's, MIMIC-CXR's, PadChest's and one's own, by a mapping of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_prep_tools import command, lay, picture, the_line

from data_prep import DataError, open_reader
from data_prep.catalog import MISSING, UNCERTAIN, Catalog
from data_prep.readers import table

CHEXPERT = """\
Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Cardiomegaly,Edema
C-small/train/patient00001/study1/view1_frontal.jpg,Female,68,Frontal,AP,1.0,,
C-small/train/patient00002/study2/view1_frontal.jpg,Female,87,Frontal,AP,,-1.0,1.0
C-small/train/patient00002/study1/view2_lateral.jpg,Female,83,Lateral,,,0.0,-1.0
"""
CHEXPERT_VALID = """\
Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Cardiomegaly,Edema
C-small/valid/patient64541/study1/view1_frontal.jpg,Male,73,Frontal,AP,0.0,1.0,0.0
"""
CHEXPERT_MAPPING = {
    "file": {"train": "C-small/train.csv", "valid": "C-small/valid.csv"},
    "path": "Path",
    "group": "Path",
    "group_pattern": "patient[0-9]+",
    "findings": ["Cardiomegaly", "Edema"],
}

PADCHEST = """\
,ImageID,ImageDir,PatientID,Labels
0,20536686640136348236148679891455886468_k6ga29.png,0,839860488,['normal']
1,1379.png,2,313572750,"['exclude', 'pleural effusion ', ""hernia's mass""]"
2,99.png,2,1,"[' loc right', 'nodule']"
3,98.png,2,1,
"""
PADCHEST_MAPPING = {
    "file": "list.csv",
    "path": "{ImageDir}/{ImageID}",
    "group": "PatientID",
    "labels": "Labels",
    "findings": ["nodule", "pleural effusion", "hernia's mass"],
    "no_finding": ["normal"],
    "handle_unknown": "ignore",
}


def read(folder: Path, mapping: dict[str, Any], files: str | dict[str, str]) -> Catalog:
    for name, text in (files if isinstance(files, dict) else {"list.csv": files}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return table.catalog(folder, mapping, check_images=False)


def test_chexpert(tmp_path: Path) -> None:
    files = {"C-small/train.csv": CHEXPERT, "C-small/valid.csv": CHEXPERT_VALID}
    found = read(tmp_path, CHEXPERT_MAPPING, files)
    assert found.classes == ("Cardiomegaly", "Edema")
    assert found.labels.dtype == np.int8
    assert found.labels.tolist() == [[MISSING, MISSING], [UNCERTAIN, 1], [0, UNCERTAIN], [1, 0]]
    patients = ["patient00001", "patient00002", "patient00002", "patient64541"]
    assert found.groups == patients
    assert found.splits is not None and found.splits.tolist() == [0, 0, 0, 1]
    assert found.sources[3] == "C-small/valid/patient64541/study1/view1_frontal.jpg"


def test_padchest(tmp_path: Path) -> None:
    found = read(tmp_path, PADCHEST_MAPPING, PADCHEST)
    assert found.images[1] == "2/1379.png"
    assert found.labels.tolist() == [[0, 0, 0], [0, 1, 1], [1, 0, 0], [MISSING] * 3]
    assert found.groups == ["839860488", "313572750", "1", "1"]


def test_one_column_of_classes(tmp_path: Path) -> None:
    text = "file,animal\na.png,dog\nb.png,cat\nc.png, dog\n"
    mapping = {"file": "list.csv", "path": "file", "class": "animal"}
    found = read(tmp_path, mapping, text)
    assert found.classes == ("cat", "dog")  # sorted, or in the order that the mapping gives
    assert found.labels.dtype == np.int64 and found.labels.tolist() == [1, 0, 1]
    ordered = read(tmp_path, mapping | {"classes": ["dog", "cat", "fox"]}, text)
    assert ordered.classes == ("dog", "cat", "fox") and ordered.labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("cell", "file", "is_found"),
    [
        ("in\\a.png", "a.png", True),
        ("in/\u00dcb.png", "U\u0308b.png", True),
        ("in/7", "007.png", False),
        ("in/7.0", "7.png", False),
        ("in/A.png", "a.PNG", False),
        ("in/a.png", "a.jpg", False),
    ],
)
def test_a_file_that_is_there_by_another_name(
    tmp_path: Path, cell: str, file: str, is_found: bool
) -> None:
    picture(tmp_path / "in" / file)
    (tmp_path / "list.csv").write_text(f"p,x\n{cell},1\n", encoding="utf-8")
    mapping = {"file": "list.csv", "path": "p", "findings": ["x"]}
    if is_found:
        assert open_reader("table", tmp_path, table=mapping).read(0).shape == (4, 4, 3)
        return
    with pytest.raises(DataError, match=f"'{file}' is there, whose name differs in ending, case"):
        open_reader("table", tmp_path, table=mapping)


def test_a_mapping_in_another_place(tmp_path: Path) -> None:
    names = [f"{at}.png" for at in range(30)]
    folder = lay(tmp_path / "set", *names)
    (folder / "list.csv").write_text("p,x\n" + "".join(f"{name},1\n" for name in names))
    mine = tmp_path / "mine.toml"
    mine.write_text('file = "list.csv"\npath = "p"\nfindings = ["x"]\n')
    words = ("verify", "--quick", folder, "--reader", "table", "--table")
    done = command(*words, mine)
    assert done.returncode == 0 and "no problems" in done.stdout
    assert "the mapping of columns is missing" in the_line(command(*words, tmp_path / "other"))


def test_paths_that_start_with_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """CheXpert's CSV names the folder that it is in."""
    picture(tmp_path / "train" / "p1" / "a.jpg")
    (tmp_path / "train.csv").write_text("Path,x\nC-small/train/p1/a.jpg,1\n")
    mapping = {"file": "train.csv", "path": "Path", "findings": ["x"]}
    with pytest.raises(DataError, match=r'not there: add remove_prefix = "C-small/" to the map'):
        open_reader("table", tmp_path, table=mapping)
    reader = open_reader("table", tmp_path, table=mapping | {"remove_prefix": "C-small/"})
    assert reader.catalog.images == ["train/p1/a.jpg"] and reader.read(0).shape == (4, 4, 3)
    (tmp_path / "train.csv").write_text("Path,x\nC-small//etc/passwd,1\n")
    with pytest.raises(DataError, match=r"'/etc/passwd' is not a safe path"):
        open_reader("table", tmp_path, table=mapping | {"remove_prefix": "C-small/"})


@pytest.mark.parametrize("path", ["part_*/{id}.jpg", "**/{id}.jpg", "*/{id}.jpg"])
def test_images_in_several_folders(tmp_path: Path, path: str) -> None:
    """As in HAM10000's two folders."""
    lay(tmp_path, "part_1/a.jpg", "part_2/b.jpg")
    (tmp_path / "part_x.txt").write_text("no folder")
    mapping = {"file": "list.csv", "path": path, "class": "dx"}
    (tmp_path / "list.csv").write_text("id,dx\na,nv\nb,mel\n")
    reader = open_reader("table", tmp_path, table=mapping)
    assert reader.catalog.images == ["part_1/a.jpg", "part_2/b.jpg"]
    (tmp_path / "list.csv").write_text("id,dx\na,nv\nc,mel\n")
    with pytest.raises(DataError, match=r"1 of the 2 images .*/c\.jpg; add .*'\*' stands for any"):
        open_reader("table", tmp_path, table=mapping)
    picture(tmp_path / "part_3" / "a.jpg")
    with pytest.raises(DataError, match=r"is both part_1/a.jpg and part_3/a.jpg; remove one"):
        open_reader("table", tmp_path, table=mapping)


def test_the_rows_of_an_image_are_joined(tmp_path: Path) -> None:
    """As RSNA and VinDr list images: a row for each box, or for each radiologist."""
    mapping: dict[str, Any]
    mapping = {"file": "list.csv", "path": "id", "labels": "name", "findings": ["mass", "edema"]}
    mapping |= {"no_finding": ["none"], "group": "who"}
    text = "id,name,who\na,none,1\nb,mass,2\na,edema,1\nb,edema,2\nc,none,3\n"
    with pytest.raises(DataError, match=r"the image a is listed twice; .*merge_rows = true"):
        read(tmp_path, mapping, text)
    found = read(tmp_path, mapping | {"merge_rows": True}, text)
    assert found.images == ["a", "b", "c"] and found.groups == ["1", "2", "3"]
    assert found.labels.tolist() == [[0, 1], [1, 1], [0, 0]]
    with pytest.raises(DataError, match="rows of a differ in path, group or split"):
        read(tmp_path, mapping | {"merge_rows": True}, text + "a,mass,4\n")
    mapping = {"file": "list.csv", "path": "id", "class": "name", "merge_rows": True}
    with pytest.raises(DataError, match="'merge_rows' joins findings only"):
        read(tmp_path, mapping, text)

"""`data-prep init` on data sets that it does not know by name: it guesses, or names the way."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from data_prep_tools import command, the_line
from test_init import lay, refusal

from data_prep import open_reader
from data_prep.catalog import Catalog


def ready(folder: Path, *options: str) -> tuple[str, Catalog]:
    """The line that init prints, and what the command that it recommends has resized."""
    done = command("init", folder, *options)
    assert done.returncode == 0, done.stderr
    first, _, _, prepare, _ = done.stdout.splitlines()
    words = shlex.split(prepare)[1:]
    assert command(*words, "--size", 16, "--num-workers", 1).returncode == 0
    return first, open_reader(words[words.index("--reader") + 1], words[2]).catalog


def labels(found: Catalog) -> dict[str, object]:
    names = found.labels.tolist()
    if found.task == "classes":
        names = [found.classes[label] for label in names]
    return dict(zip(found.images, names, strict=True))


GUESSES = {
    "id without extension": (
        {
            "labels.csv": "id,breed\na1,pug\na2,boxer\na3,pug\n",
            "sample_submission.csv": "id,breed\nb1,pug\nb2,boxer\n",
        },
        ["train/a1.jpg", "train/a2.jpg", "train/a3.jpg", "test/b1.jpg"],
        "labels.csv with classes in the column 'breed', 3 images, 2 classes (boxer, pug)",
        {"train/a1.jpg": "pug", "train/a2.jpg": "boxer", "train/a3.jpg": "pug"},
    ),
    "numbers that two folders have": (
        {"trainLabels.csv": "id,label\n1,frog\n2,truck\n"},
        ["test/1.png", "test/2.png", "train/1.png", "train/2.png"],
        "image files without a row: 2",
        {"train/1.png": "frog", "train/2.png": "truck"},
    ),
    "images in folders of classes, and drivers": (
        {"list.csv": "subject,classname,img\np1,c0,1.jpg\np2,c1,2.jpg\np1,c1,3.jpg\n"},
        ["imgs/train/c0/1.jpg", "imgs/train/c1/2.jpg", "imgs/train/c1/3.jpg"],
        "2 groups (patients)",
        {"imgs/train/c0/1.jpg": "c0", "imgs/train/c1/2.jpg": "c1", "imgs/train/c1/3.jpg": "c1"},
    ),
    "a column of parts": (
        {
            "birds.csv": "class id,filepaths,labels,data set\n0,train/1.jpg,owl,train\n"
            "1,train/2.jpg,emu,train\n0,valid/3.jpg,owl,valid\n1,test/4.jpg,emu,test\n"
        },
        ["train/1.jpg", "train/2.jpg", "valid/3.jpg", "test/4.jpg"],
        "birds.csv with classes in the column 'labels', 4 images, 2 classes (emu, owl), every image"
        " is a group, the published split",
        {"train/1.jpg": "owl", "train/2.jpg": "emu", "valid/3.jpg": "owl", "test/4.jpg": "emu"},
    ),
    "a column per finding": (
        {"train.csv": "image_id,healthy,rust,scab\nT0,0,1,1\nT1,1,0,0\nT2,0,0,1\n"},
        ["images/T0.jpg", "images/T1.jpg", "images/T2.jpg"],
        "train.csv with findings in columns, 3 images, 3 findings (healthy, rust, scab)",
        {"images/T0.jpg": [0, 1, 1], "images/T1.jpg": [1, 0, 0], "images/T2.jpg": [0, 0, 1]},
    ),
    "-1 means no": (
        {
            "list_attr_celeba.csv": "image_id,Bald,Male\n1.jpg,-1,1\n2.jpg,1,1\n",
            "list_eval_partition.csv": "image_id,partition\n1.jpg,0\n2.jpg,1\n",
        },
        ["img/img/1.jpg", "img/img/2.jpg"],
        "list_attr_celeba.csv with findings in columns",
        {"img/img/1.jpg": [0, 1], "img/img/2.jpg": [1, 1]},
    ),
    "names with spaces between them": (
        {"train.csv": "image,labels\n1.jpg,scab rot\n2.jpg,scab\n3.jpg,rot\n4.jpg,scab rot\n"},
        ["t/1.jpg", "t/2.jpg", "t/3.jpg", "t/4.jpg"],
        "2 findings (rot, scab)",
        {"t/1.jpg": [1, 1], "t/2.jpg": [0, 1], "t/3.jpg": [1, 0], "t/4.jpg": [1, 1]},
    ),
    "Hugging Face's metadata": (
        {
            "train/metadata.csv": "file_name,label\n0.jpg,cat\n1.jpg,dog\n",
            "test/metadata.csv": "file_name,label\n0.jpg,dog\n1.jpg,cat\n",
        },
        ["train/0.jpg", "train/1.jpg", "test/0.jpg", "test/1.jpg"],
        "2 classes (cat, dog), every image is a group, the published split",
        {"test/0.jpg": "dog", "test/1.jpg": "cat", "train/0.jpg": "cat", "train/1.jpg": "dog"},
    ),
    "a list with spaces": (
        {
            "annotations/trainval.txt": "cat_1 1 2\ndog_1  2 2 \n",
            "annotations/test.txt": "cat_2 1 2\n",
            "README.txt": "One line,\nand another.\n",
        },
        ["images/cat_1.jpg", "images/dog_1.jpg", "images/cat_2.jpg"],
        "annotations/test.txt and annotations/trainval.txt with classes in the column 'class'",
        {"images/cat_2.jpg": "1", "images/cat_1.jpg": "1", "images/dog_1.jpg": "2"},
    ),
    "a class with spaces": (
        {"list_train.txt": "1 707-320\n2 Cessna 172\n3 707-320\n"},
        ["images/1.jpg", "images/2.jpg", "images/3.jpg"],
        "2 classes (707-320, Cessna 172)",
        {"images/1.jpg": "707-320", "images/2.jpg": "Cessna 172", "images/3.jpg": "707-320"},
    ),
    "a list of paths": (
        {"meta/train.txt": "pie/1\nsoup/2\n", "meta/test.txt": "pie/3\n"},
        ["images/pie/1.jpg", "images/soup/2.jpg", "images/pie/3.jpg"],
        "3 images, 2 classes (pie, soup), every image is a group, the published split",
        {"images/pie/3.jpg": "pie", "images/pie/1.jpg": "pie", "images/soup/2.jpg": "soup"},
    ),
}


@pytest.mark.parametrize("name", GUESSES)
def test_columns_are_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    files, images, said, expected = GUESSES[name]
    lay(tmp_path / "set", files, images)
    first, found = ready(Path("set"))
    assert said in first
    assert labels(found) == expected


@pytest.mark.parametrize(
    ("files", "images", "said"),
    [
        (
            {},
            ["flowers/rose/1.jpg", "flowers/daisy/2.jpg"],
            "flowers; run data-prep init {}/flowers",
        ),
        ({"x/labels.mat": ""}, ["a b/c/rose/1.jpg", "a b/c/daisy/2.jpg"], "init '{}/a b/c'"),
        ({"train.parquet": "PAR1"}, [], "but train.parquet, and no image file; unpack archives"),
        ({"l.csv": "label,pixel1\n3,107\n"}, [], "columns label, pixel1, and no image file"),
        ({"labels.mat": ""}, ["jpg/1.jpg", "jpg/2.jpg"], "write a CSV file with the columns image"),
        (
            {"l.csv": "id,gender,colour\n1,m,red\n2,f,blue\n3,m,red\n"},
            ["i/1.jpg", "i/2.jpg", "i/3.jpg"],
            "l.csv with the columns id, gender, colour; describe a CSV file in table.toml",
        ),
        (
            dict.fromkeys(("a.csv", "b.csv"), "id,label\n1,x\n2,y\n"),
            ["1.jpg", "2.jpg"],
            "a.csv, b.csv have the same columns; keep one of them",
        ),
        (
            {"val/annotations.txt": "v1.jpg\ta\nv2.jpg\tb\n"},
            ["train/a/1.jpg", "train/a/2.jpg", "train/b/3.jpg", "val/images/v1.jpg"],
            "run data-prep init {}/train",
        ),
    ],
)
def test_the_nearest_way_is_named(
    tmp_path: Path, files: dict[str, str], images: list[str], said: str
) -> None:
    assert said.format(tmp_path / "set") in refusal(tmp_path / "set", files, images)


def test_init_excludes_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = [f"{of}/{kind}/1.png" for of in ("covid", "normal") for kind in ("images", "masks")]
    lay(tmp_path / "set", {}, images)
    assert "leave the folder out with --exclude masks" in the_line(command("init", "set"))
    _, found = ready(Path("set"), "--exclude", "masks")
    assert found.images == ["covid/images/1.png", "normal/images/1.png"]
    line = the_line(command("init", "set", "--exclude", "cat"))
    assert "exists: use it, or remove it" in line


def test_the_class_is_found_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = ["train/cat.0.jpg", "train/dog.0.jpg", "train/dog.1.jpg", "test1/1.jpg"]
    lay(tmp_path / "set", {}, images)
    assert "find it with --class-pattern" in the_line(command("init", "set"))
    first, found = ready(Path("set"), "--class-pattern", "cat|dog")
    assert "a class in each path, 3 images, 2 classes (cat, dog)" in first
    assert labels(found) == dict(zip(images[:3], ("cat", "dog", "dog"), strict=True))

    lay(tmp_path / "nested", {}, [f"p{at}/{at % 2}/{at}.png" for at in range(4)])
    how = "a folder per class with folders inside (if they are the classes, find them with"
    assert how in command("init", "nested").stdout


def test_links_are_named_and_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay(tmp_path / "away", {}, ["cat/1.png", "dog/2.png"])
    (tmp_path / "set").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / "set" / name).symlink_to(tmp_path / "away" / name)
    assert "allow links with --follow-links" in the_line(command("init", "set"))
    _, found = ready(Path("set"), "--follow-links")
    assert labels(found) == {"cat/1.png": "cat", "dog/2.png": "dog"}

"""`data-prep init`: from a published data set as it is unpacked to images ready to train on."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from data_prep_tools import HEADER, command, digest, picture, row, the_line

from data_prep import open_reader
from helpers.recipe import recipe_file

XRAY_HEADER = "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Edema,Support Devices"
HAM = "lesion_id,image_id,dx\n"
VINDR = "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max"


class Set(NamedTuple):
    files: dict[str, str]
    images: list[str]
    classes: list[str]
    said: str
    labels: list[object] | None = None


def three(pattern: str) -> list[str]:
    return [pattern.format(at) for at in range(1, 4)]


SETS = {
    "nih": Set(
        {"Data_Entry_2017.csv": "\n".join([HEADER, *(row(f"{at}.png") for at in range(1, 4))])},
        three("images_00{0}/images/{0}.png"),
        [],
        "the NIH's ChestX-ray14, 3 images",
    ),
    "chexpert": Set(
        {
            "train.csv": f"{XRAY_HEADER}\nC/train/patient1/study1/a.jpg,F,1,Frontal,AP,,1.0,\n"
            "C/train/patient2/study1/a.jpg,F,1,Frontal,AP,1.0,-1.0,0.0\n",
            "valid.csv": f"{XRAY_HEADER}\nC/valid/patient3/study1/a.jpg,F,1,Frontal,AP,,,1.0\n",
        },
        [
            "train/patient1/study1/a.jpg",
            "train/patient2/study1/a.jpg",
            "valid/patient3/study1/a.jpg",
        ],
        ["Edema", "Support Devices"],
        "2 findings (Edema, Support Devices), 3 groups (patients), the published split",
    ),
    "padchest": Set(
        {
            "PADCHEST_160K.csv": ",ImageID,ImageDir,PatientID,Labels\n"
            "0,1.png,0,7,['normal']\n1,2.png,1,8,\"['nodule', 'x']\"\n2,3.png,1,8,['normal']\n"
        },
        ["0/1.png", "1/2.png", "1/3.png"],
        [],
        "2 groups (patients)",
    ),
    "rsna": Set(
        {
            "stage_2_train_labels.csv": "patientId,x,y,width,height,Target\n"
            "a1,1,1,1,1,1\na1,2,2,2,2,1\na2,,,,,0\na3,,,,,0\n",
            "stage_2_detailed_class_info.csv": "patientId,class\na1,Lung Opacity\n",
        },
        three("stage_2_train_images/a{}.dcm"),
        ["Target"],
        "RSNA Pneumonia, 3 images, 1 finding (Target)",
        [[1], [0], [0]],
    ),
    "vindr": Set(
        {
            "annotations/image_labels_train.csv": "image_id,rad_id,Aortic enlargement,ILD,"
            "No finding\na1,R1,0,0,1\na1,R2,1,0,0\na2,R1,0,0,1\na3,R1,0,1,0\n",
            "annotations/annotations_train.csv": f"{VINDR}\na1,No finding,14,R1,,,,\n",
        },
        three("train/a{}.dicom"),
        ["Aortic enlargement", "ILD"],
        "VinDr-CXR, 3 images, 2 findings",
        [[1, 0], [0, 0], [0, 1]],
    ),
    "ham10000": Set(
        {
            "HAM10000_metadata.csv": "lesion_id,image_id,dx,dx_type,age,sex,localization\n"
            "H1,I1,nv,histo,1.0,male,back\nH1,I2,nv,histo,1.0,male,back\nH2,I3,mel,histo,,male,back\n",
            "hmnist_8_8_L.csv": "pixel0000,label\n1,2\n",
        },
        [
            "HAM10000_images_part_1/I1.jpg",
            "HAM10000_images_part_1/I2.jpg",
            "HAM10000_images_part_2/I3.jpg",
            "ham10000_images_part_1/I1.jpg",  # Kaggle has each image twice
        ],
        ["mel", "nv"],
        "HAM10000, 3 images, 2 classes (mel, nv), 2 groups (patients)",
        [1, 1, 0],
    ),
    "isic-2018": Set(
        {
            f"ISIC2018_Task3_{part}_GroundTruth/ISIC2018_Task3_{part}_GroundTruth.csv": (
                f"image,MEL,NV,BCC\nI{at},1.0,0.0,0.0\n"
            )
            for at, part in enumerate(("Training", "Validation", "Test"), start=1)
        },
        [
            "ISIC2018_Task3_Training_Input/I1.jpg",
            "ISIC2018_Task3_Validation_Input/I2.jpg",
            "ISIC2018_Task3_Test_Input/I3.jpg",
        ],
        ["MEL", "NV", "BCC"],
        "every image is a group, the published split",
    ),
    "table": Set(
        {"labels.csv": "id,breed\na1,pug\na2,boxer\na3,pug\n", "notes.csv": "id,who\nx,y\n"},
        three("train/a{}.jpg"),
        ["boxer", "pug"],
        "labels.csv with classes in the column 'breed', 3 images, 2 classes (boxer, pug)",
        [1, 0, 1],
    ),
    "excels-table-of-names-from-a-mac": Set(
        {
            "labels.csv": "\ufeffimage;Patient ID;x;y\n\u00dc1.png;p;1,0;0,0\n"
            "\u00dc2.png;p;;1,0\n\u00dc3.png;q;0;-1,0\n"
        },
        three("images/U\u0308{}.png"),
        ["x", "y"],
        "labels.csv with a column per finding, 3 images, 2 findings (x, y), 2 groups",
        [[1, 0], [0, 1], [0, 0]],
    ),
    "parts": Set(
        {},
        ["train/cat/1.jpg", "train/dog/2.jpg", "val/dog/1.jpg"],
        ["cat", "dog"],
        "a folder per class, 3 images, 2 classes (cat, dog), every image is a group, the published",
    ),
}


def lay(folder: Path, files: dict[str, str], images: list[str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for seed, name in enumerate(images):
        picture(folder / name, (20, 24, 3), seed, "PNG")  # read by its content, not its name


@pytest.mark.parametrize("name", SETS)
def test_from_the_unpacked_set_to_a_recipes_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = SETS[name]
    lay(tmp_path / "my set", given.files, given.images)
    done = command("init", "my set")
    assert done.returncode == 0 and given.said in done.stdout, done.stderr + done.stdout
    _, _, _, prepare, train = done.stdout.splitlines()
    assert shlex.split(train) == ["rosetta", "run", "--recipe", "my set/recipe.toml"]
    words = shlex.split(prepare)
    assert words[0] == "data-prep"
    assert command(*words[1:], "--num-workers", 1).returncode == 0
    recipe = recipe_file.file_of("my set/recipe.toml").recipe
    reader = open_reader(recipe.reader, recipe.folder)
    assert len(reader) == 3 and list(reader.classes) == (given.classes or list(reader.classes))
    assert (reader.task == "findings") == (recipe.task == "multilabel")
    assert reader.read(0).shape == (264, 264, 3)
    if given.labels is not None:
        assert reader.targets.tolist() == given.labels
    before = digest(tmp_path / "my set")
    assert "exists: use it, or remove it" in the_line(command("init", "my set"))
    assert digest(tmp_path / "my set") == before


@pytest.mark.parametrize(
    ("files", "images", "said"),
    [
        (
            {"list.csv": "file;width;height\na.png;1;2\n"},
            ["a.png"],
            "table.toml, with lines such as file = 'labels.csv', path = 'image', class = 'label'",
        ),
        ({"notes.txt": ""}, ["scans/a.png"], "there is only one class"),
        (
            {"l.csv": "id,label\n1,a\n2,b\n"},
            ["001.png", "002.png"],
            "'1' in the column 'id' of l.csv is not an image: '001.png' is there",
        ),
        ({"x.csv": 'a\n"'}, [], "the layout is unknown"),
        ({"l.csv": "id,label\n1,a\n2,b\n"}, ["1.png"], "the layout is unknown"),
        ({"l.csv": f"{HAM}H1,I1,nv\n"}, ["a/I2.jpg"], "line 2: the image I1 is nowhere in"),
        ({"l.csv": f"{HAM}H1,I1,nv\nH2,I2,nv\n"}, ["a/I1.jpg"], "1 of the 2 images named in l.csv"),
        ({"l.csv": f"{HAM}H1,../../I1,nv\n"}, ["a/I1.jpg"], "'../../I1' is not a safe path"),
        ({"l.csv": HAM}, [], "no rows below the header"),
        (
            dict.fromkeys(("a.csv", "b.csv"), "image,MEL,NV,BCC\nI1,1,0,0\n"),
            ["I1.jpg"],
            "a.csv, b.csv have the same columns; keep one of them",
        ),
    ],
)
def test_what_is_not_recognised_is_described(
    tmp_path: Path, files: dict[str, str], images: list[str], said: str
) -> None:
    lay(tmp_path / "set", files, images)
    before = digest(tmp_path)
    assert said in the_line(command("init", tmp_path / "set"))
    assert digest(tmp_path) == before


def test_any_name_of_a_column_is_written_as_toml(tmp_path: Path) -> None:
    names = ['"]\n[x] \\', "é😀\x7f"]
    header = "image,MEL,NV,BCC," + ",".join('"' + name.replace('"', '""') + '"' for name in names)
    lay(tmp_path / "set", {"list.csv": f"{header}\nI1,1,0,0,1,0\n"}, ["I1.jpg"])
    assert command("init", tmp_path / "set").returncode == 0
    assert list(open_reader("table", tmp_path / "set").classes) == ["MEL", "NV", "BCC", *names]


def test_options_of_class_folders_are_recommended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images = [f"{of}/{kind}/1.png" for of in ("covid", "normal") for kind in ("images", "masks")]
    lay(tmp_path / "set", {}, images)
    assert "leave the folder out with --exclude masks" in the_line(command("init", "set"))
    done = command("init", "set", "--exclude", "masks", "--class-pattern", "covid|normal")
    assert "a class in each path, 2 images, 2 classes (covid, normal)" in done.stdout
    assert " --exclude masks\n" in done.stdout and " --class-pattern 'covid|normal'" in done.stdout


def test_the_files_go_to_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = SETS["table"]
    lay(tmp_path / "set", given.files, given.images)
    before = digest(tmp_path / "set")
    assert "is not a folder" in the_line(command("init", "nowhere"))
    done = command("init", "set", "--output", "mine")
    assert done.returncode == 0 and digest(tmp_path / "set") == before
    words = shlex.split(done.stdout.splitlines()[3])
    assert command(*words[1:], "--num-workers", 1).returncode == 0
    recipe = recipe_file.file_of("mine/recipe.toml").recipe
    assert len(open_reader(recipe.reader, recipe.folder)) == 3
    (tmp_path / "file").write_text("")
    assert "with --output" in the_line(command("init", "set", "--output", "file/x"))

"""A folder a class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import command, lay, the_line
from PIL import Image

from data_prep import DataError, open_reader
from data_prep.readers import imagefolder


def test_train_and_val(tmp_path: Path) -> None:
    images = ["train/cat/deep/er/3.png", "train/dog/1.png", "train/dog/2.PNG", "val/dog/9.png"]
    lay(tmp_path, *images[::-1])
    (tmp_path / "train" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "train" / ".cache").mkdir()
    found = imagefolder.catalog(tmp_path)
    assert found.classes == ("cat", "dog")
    assert found.images == images
    assert found.labels.tolist() == [0, 1, 1, 1]
    assert found.splits is not None and found.splits.tolist() == [0, 0, 0, 1]


def test_without_parts_it_is_split_by_seed(tmp_path: Path) -> None:
    lay(tmp_path, *(f"{'ab'[at % 2]}/{at}.png" for at in range(20)))
    first = open_reader("imagefolder", tmp_path, seed=1).splits()
    assert sum(map(len, first.values())) == 20 and len(first["test"]) == 4
    again = open_reader("imagefolder", tmp_path, seed=1).splits()
    other = open_reader("imagefolder", tmp_path, seed=2).splits()
    assert all(np.array_equal(first[split], again[split]) for split in first)
    assert not all(np.array_equal(first[split], other[split]) for split in first)


def test_groups_by_what_a_path_says(tmp_path: Path) -> None:
    lay(tmp_path, *(f"{'ab'[at % 2]}/person{at // 4}_{at}.png" for at in range(40)))
    reader = open_reader("imagefolder", tmp_path, group=r"person\d+")
    groups = reader.catalog.groups
    assert groups is not None and len(set(groups)) == 10
    splits = {split: {groups[i] for i in indices} for split, indices in reader.splits().items()}
    assert not splits["train"] & splits["test"] and not splits["train"] & splits["valid"]
    with pytest.raises(DataError, match="no 'who' in the path"):
        open_reader("imagefolder", tmp_path, group="who")
    with pytest.raises(DataError, match="not a regular expression"):
        open_reader("imagefolder", tmp_path, group="(")


@pytest.mark.parametrize("kind", ["ppm", "pnm", "pbm", "pgm", "jpe", "jfif", "gif", "tif", "bmp"])
def test_a_folder_of_each_kind_of_image(tmp_path: Path, kind: str) -> None:
    for name in ("a/1", "b/2"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        grey = Image.new("L", (3, 2), 200)
        format = {"jpe": "JPEG", "jfif": "JPEG", "gif": "GIF", "tif": "TIFF", "bmp": "BMP"}
        grey.save(tmp_path / "in" / f"{name}.{kind}", format.get(kind, "PPM"))
    assert open_reader("imagefolder", tmp_path / "in").read(1).shape == (2, 3, 3)
    words = ("resize", tmp_path / "in", tmp_path / "out", "--reader", "imagefolder", "--size", 8)
    done = command(*words)
    assert done.returncode == 0 and "2 grey images" in done.stdout
    assert "passed over" not in done.stderr
    assert {path.name for path in (tmp_path / "out").rglob("*.png")} == {"1.png", "2.png"}


def test_other_files_are_counted_by_ending(tmp_path: Path) -> None:
    """As in GTSRB, where each class has a CSV file beside its images."""
    lay(tmp_path / "in", *(f"{'ab'[at % 2]}/{at}.ppm" for at in range(20)))
    for name in ("a/GT-0.csv", "b/GT-1.CSV", "a/deep/notes.txt", "b/README", "b/.hidden"):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text("no image")
    says = "note: passed over: 2 .csv, 1 .txt, 1 without ending\n"
    words = (tmp_path / "in", "--reader", "imagefolder")
    assert says in command("verify", "--quick", *words).stdout
    assert says in command("verify", *words).stdout
    assert says in command("resize", *words, tmp_path / "out", "--size", 8).stderr
    assert says in command("resize", tmp_path / "in", tmp_path / "plain", "--size", 8).stderr


def test_published_names_of_parts(tmp_path: Path) -> None:
    brain = lay(tmp_path / "a", "Training/glioma/1.jpg", "Testing/glioma/2.jpg", "Val/glioma/3.jpg")
    found = imagefolder.catalog(brain)
    assert found.classes == ("glioma",)
    assert found.images == ["Training/glioma/1.jpg", "Val/glioma/3.jpg", "Testing/glioma/2.jpg"]
    assert found.splits is not None and found.splits.tolist() == [0, 1, 2]
    short = imagefolder.catalog(lay(tmp_path / "b", "train/a/1.png", "dev/a/2.png", "test/a/3.png"))
    assert short.splits is not None and short.splits.tolist() == [0, 1, 2]
    languages = imagefolder.catalog(lay(tmp_path / "c", "tr/1.png", "de/2.png"))
    assert languages.classes == ("de", "tr") and languages.splits is None
    twice = lay(tmp_path / "d", "train/a/1.png", "Train/a/2.png")
    with pytest.raises(DataError, match="two folders for the split train; keep one"):
        imagefolder.catalog(twice)


def test_a_folder_of_the_same_name_is_a_wrapper(tmp_path: Path) -> None:
    intel = (
        "seg_train/seg_train/sea/1.jpg",
        "seg_test/seg_test/sea/2.jpg",
        "seg_pred/seg_pred/3.jpg",
    )
    lay(tmp_path / "intel" / "intel", *intel)
    found = imagefolder.catalog(tmp_path / "intel")
    assert found.classes == ("sea",)
    assert found.images == [f"intel/{name}" for name in intel[:2]]
    assert found.splits is not None and found.splits.tolist() == [0, 2]
    labelled = lay(tmp_path / "b", "seg_train/sea/1.jpg", "seg_pred/sea/2.jpg")
    assert len(imagefolder.catalog(labelled)) == 2


def test_a_part_without_labels_is_refused_or_left_out(tmp_path: Path) -> None:
    folder = lay(tmp_path / "set", "train/a/1.png", "val/a/2.png", "test/3.png")
    line = the_line(command("verify", "--quick", folder, "--reader", "imagefolder"))
    assert "test: contains no folder; it needs one per class" in line
    assert 'leave the folder out with --exclude test (in a recipe: exclude = ["test"])' in line
    assert imagefolder.catalog(folder, exclude=["test"]).images == ["train/a/1.png", "val/a/2.png"]
    with pytest.raises(DataError, match="exclude names 'tset', but no folder has this name"):
        imagefolder.catalog(folder, exclude=["test", "tset"])
    (folder / "val" / "a" / "2.png").unlink()
    with pytest.raises(DataError, match=r"set/val: no image in it; add images, or .*--exclude val"):
        imagefolder.catalog(folder, exclude=["test"])
    only_train = imagefolder.catalog(folder, exclude=["test", "val"])
    assert only_train.splits is None  # it is split as a set in one piece


def test_masks_are_not_learned(tmp_path: Path) -> None:
    covid = [
        f"{of}/{kind}/{of}-1.png" for of in ("COVID", "Normal") for kind in ("images", "masks")
    ]
    folder = lay(tmp_path / "set", *covid)
    line = the_line(command("verify", "--quick", folder, "--reader", "imagefolder"))
    assert "every class has images in the same folders (images, masks)" in line
    assert "--exclude masks" in line and "COVID-1.png" in line
    found = imagefolder.catalog(folder, exclude=["masks"])
    assert found.images == [name for name in covid if "images" in name]
    patients = imagefolder.catalog(folder, group="images|masks")  # folders that are groups
    assert len(patients) == 4
    with pytest.raises(DataError, match=r"same folders \(train\)"):  # and images beside it
        imagefolder.catalog(
            lay(tmp_path / "b", *(f"{x}/{y}1.png" for x in "ab" for y in ("", "train/")))
        )


def test_links_to_nothing_in_circles_and_to_other_files(tmp_path: Path) -> None:
    away, links = lay(tmp_path / "away", "cat/1.png", "2.png"), tmp_path / "farm"
    (links / "dog").mkdir(parents=True)
    (links / "cat").symlink_to(away / "cat")
    (links / "dog" / "2.png").symlink_to(away / "2.png")
    assert imagefolder.catalog(links).images == ["cat/1.png", "dog/2.png"]

    def refused() -> str:
        with pytest.raises(DataError) as caught:
            imagefolder.catalog(links)
        return str(caught.value)

    (links / "bird").symlink_to(tmp_path / "gone")
    assert "bird: cannot be read (No such file or directory); fetch what" in refused()
    (links / "bird").unlink()
    (links / "dog" / "more").symlink_to(links)
    assert "more: a link to a folder that is read already" in refused()
    (links / "dog" / "more").unlink()
    (away / "cat" / "up").symlink_to("..")  # to its parent, which the farm does not have
    (away / "down").symlink_to("cat")
    assert "a link to a folder that is read already" in refused()
    (away / "cat" / "up").unlink()
    (links / "dog" / "self").symlink_to("self")
    assert "self: cannot be read (Too many levels of symbolic links)" in refused()
    (links / "dog" / "self").unlink()

    (links / "dog" / "3.png").symlink_to(tmp_path / "gone.png")
    (links / "dog" / "4.png").symlink_to("/etc/hostname")
    words = ("resize", links, tmp_path / "small", "--reader", "imagefolder", "--size", 8)
    line = the_line(command(*words, "--num-workers", 1))
    assert "2 of 4 images were left out, the first is dog/3.png" in line
    assert "a link that leads to nothing" in line
    reasons = (tmp_path / "small" / "rejected.csv").read_text()
    assert 'dog/4.png,"cannot be read as an image (not a PNG' in reasons


def test_what_a_part_cannot_measure_is_said_before_training(tmp_path: Path) -> None:
    names = "train/cat/1.png", "train/dog/2.png", "val/cat/3.png", "val/dog/4.png", "test/cat/5.png"
    folder = lay(tmp_path / "set", *names)
    (folder / "test" / "dog").mkdir()
    note = (
        "test has no image of dog, so its accuracy cannot be measured; add images, or split with"
        " another seed or other shares"
    )
    words = folder, "--reader", "imagefolder"
    done = command("verify", *words, "--num-workers", 1)
    assert done.returncode == 0 and f"note: the split by seed 0: {note}" in done.stdout
    (folder / "train" / "bird").mkdir()
    line = the_line(command("verify", "--quick", *words))
    assert "bird: no image in this class's folder" in line and "--exclude bird" in line

    alone = lay(tmp_path / "alone", *(f"cat/p1_{at}.png" for at in range(9)))
    done = command("verify", alone, "--reader", "imagefolder", "--num-workers", 1)
    assert done.returncode == 1
    assert "PROBLEM: has only the class 'cat': give images of at least two" in done.stdout


def test_the_class_is_in_the_path(tmp_path: Path) -> None:
    lay(tmp_path / "set", "train/cat.0.jpg", "train/dog.0.jpg", "test1/1.jpg")
    found = imagefolder.catalog(tmp_path / "set", class_pattern="cat|dog")
    assert found.images == ["train/cat.0.jpg", "train/dog.0.jpg"] and found.splits is None
    assert found.classes == ("cat", "dog") and found.labels.tolist() == [0, 1]

    lay(tmp_path / "nested", *(f"p{at}/{at % 2}/{at}.png" for at in range(4)))
    last = imagefolder.LAST_FOLDER
    nested = imagefolder.catalog(tmp_path / "nested", group="p[0-9]", class_pattern=last)
    assert nested.classes == ("0", "1") and nested.groups == ["p0", "p1", "p2", "p3"]

    with pytest.raises(DataError, match=r"cat.0.jpg: no 'bird' in the path; fix the pattern of cl"):
        imagefolder.catalog(tmp_path / "set", class_pattern="bird")
    with pytest.raises(DataError, match=r"class_pattern '\(' is not a regular expression"):
        imagefolder.catalog(tmp_path / "set", class_pattern="(")
    lay(tmp_path / "parts", "train/a1.png", "val/b1.png")
    with pytest.raises(DataError, match="'b' is a class without training images"):
        imagefolder.catalog(tmp_path / "parts", class_pattern="[ab](?=1)")


def test_folders_that_are_no_classes(tmp_path: Path) -> None:
    lay(tmp_path / "copy", "no/1.png", "yes/1.png", "all/no/1.png", "all/yes/1.png")
    with pytest.raises(DataError, match=r"all is a class and contains no, .* --exclude all"):
        imagefolder.catalog(tmp_path / "copy")
    assert len(imagefolder.catalog(tmp_path / "copy", exclude=["all"])) == 2

    names = ["asl_train/A/1.png", "asl_train/B/2.png", "asl_test/A/3.png"]
    lay(tmp_path / "parts", *names)
    found = imagefolder.catalog(tmp_path / "parts")
    assert found.classes == ("A", "B") and found.splits is not None
    lay(tmp_path / "one", "bullet_train/1.png")
    assert imagefolder.catalog(tmp_path / "one").classes == ("bullet_train",)
    lay(tmp_path / "tests", "crash_test/1.png", "wind_test/1.png")
    assert imagefolder.catalog(tmp_path / "tests").classes == ("crash_test", "wind_test")

"""The one interface of all readers: what each gives, and what is no reader."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_prep_tools import MAKERS

from data_prep import DataError, open_reader
from data_prep.catalog import MISSING, UNCERTAIN, Catalog, apply_label_policies, split_catalog
from data_prep.readers import READERS, check_reader
from data_prep.readers.catalog_reader import CatalogReader
from data_prep.synthetic_shapes import generate_cifar10


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("channels", [1, 3])
def test_what_every_reader_gives(tmp_path: Path, name: str, channels: int) -> None:
    MAKERS[name](tmp_path / "set")
    reader = open_reader(name, tmp_path / "set", channels=channels)
    check_reader(reader, name)
    assert len(reader) == len(reader.targets) == len(reader.table())
    for image in (0, len(reader) - 1):
        pixels = reader.read(image)
        assert pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[2] == channels
    splits = reader.splits()
    together = np.concatenate(list(splits.values()))
    assert sorted(together.tolist()) == list(range(len(reader)))
    groups = np.array(reader.table()["group"])
    seen = [set(groups[indices]) for indices in splits.values()]
    assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])
    again = pickle.loads(pickle.dumps(reader))  # as a loader's worker gets it
    assert np.array_equal(again.read(1), reader.read(1))


def catalog(labels: Any, **more: Any) -> Catalog:
    images = [f"{at}.png" for at in range(len(labels))]
    classes = ("a", "b") if np.ndim(labels) == 2 else ("a", "b", "c")
    dtype = np.int8 if np.ndim(labels) == 2 else np.int64
    return Catalog(Path("set"), images, images, classes, np.array(labels, dtype=dtype), **more)


DOUBTS = catalog([[1, 0], [UNCERTAIN, 1], [0, MISSING], [MISSING, UNCERTAIN]])


@pytest.mark.parametrize(
    ("uncertain", "missing", "images", "targets"),
    [
        ("zero", "zero", [0, 1, 2, 3], [[1, 0], [0, 1], [0, 0], [0, 0]]),
        ("one", "zero", [0, 1, 2, 3], [[1, 0], [1, 1], [0, 0], [0, 1]]),
        ("zero", "one", [0, 1, 2, 3], [[1, 0], [0, 1], [0, 1], [1, 0]]),
        ("ignore", "zero", [0, 2], [[1, 0], [0, 0]]),
        ("zero", "ignore", [0, 1], [[1, 0], [0, 1]]),
        ("ignore", "ignore", [0], [[1, 0]]),
    ],
)
def test_policies(uncertain: Any, missing: Any, images: list[int], targets: Any) -> None:
    kept, found = apply_label_policies(DOUBTS, uncertain, missing)
    assert [int(name[0]) for name in kept.images] == images
    assert found.dtype == np.uint8 and found.tolist() == targets


def test_a_policy_that_leaves_nothing_or_is_none() -> None:
    with pytest.raises(DataError, match="no image is left"):
        apply_label_policies(DOUBTS.select(np.array([1, 3])), "ignore", "zero")
    with pytest.raises(DataError, match="uncertain is 'skip'; use one of zero, one, ignore"):
        apply_label_policies(DOUBTS, "skip", "zero")  # type: ignore[arg-type]


def test_images_left_out_by_a_policy_keep_their_pixels(tmp_path: Path) -> None:
    """In an array an image's row is no longer its place."""
    array = np.arange(4, dtype=np.uint8)[:, None, None] * np.ones((4, 2, 2), dtype=np.uint8)
    pictures = CatalogReader(DOUBTS, array, channels=1, uncertain="ignore")
    assert [int(pictures.read(i)[0, 0, 0]) for i in range(len(pictures))] == [0, 2]


def test_published_parts_stay_and_validation_comes_of_train() -> None:
    published = np.array([0] * 80 + [2] * 20, dtype=np.int8)
    found = split_catalog(catalog([0] * 100, splits=published), seed=3, valid=0.25)
    assert found["test"].tolist() == list(range(80, 100))
    assert len(found["valid"]) == 20 and len(found["train"]) == 60
    other = split_catalog(catalog([0] * 100, splits=published), seed=4, valid=0.25)
    assert other["valid"].tolist() != found["valid"].tolist()


def test_a_group_in_two_published_parts_is_refused() -> None:
    published = np.array([0, 0, 2], dtype=np.int8)
    with pytest.raises(DataError, match="the group p1 is in both train and test"):
        split_catalog(catalog([0] * 3, splits=published, groups=["p1", "p2", "p1"]))


class Mine:
    classes = ("left", "right")
    targets = np.array([0, 1, 1, 0])

    def splits(self) -> dict[str, Any]:
        return {"train": [0, 1], "valid": np.array([2]), "test": [3]}

    def read(self, i: int) -> np.ndarray:
        return np.full((5, 4, 3), i, dtype=np.uint8)


@pytest.mark.parametrize(
    ("attribute", "value", "says"),
    [
        ("classes", (), "classes are \\[\\]"),
        ("classes", ("a", "a"), "none twice"),
        ("targets", np.array([0.0, 1.0, 1.0, 0.0]), "targets are float64"),
        ("targets", np.zeros((4, 3), dtype=np.uint8), r"0 and 1 of the shape \(images, 2\)"),
        ("targets", np.full((4, 2), 7), "targets go from 7 to 7; they must be 0 to 1"),
        ("splits", lambda: {"train": [0], "test": [1]}, "a mapping with train, valid and test"),
        ("splits", lambda: {"train": [0], "valid": [], "test": [1]}, "the split valid must be"),
        ("splits", lambda: {"train": [0], "valid": [-1], "test": [1]}, "outside of 0 to 3"),
        (
            "splits",
            lambda: {"train": [0, 1], "valid": [1], "test": [2]},
            "image 1 is in the splits",
        ),
        ("read", lambda i: np.zeros((5, 4, 3)), r"gives float64 \(5, 4, 3\); it must be uint8"),
    ],
)
def test_what_is_no_reader(
    monkeypatch: pytest.MonkeyPatch, attribute: str, value: Any, says: str
) -> None:
    reader = Mine()
    monkeypatch.setattr(reader, attribute, value, raising=False)
    with pytest.raises(DataError, match=says) as caught:
        check_reader(reader, "mine.py:Reader")
    assert str(caught.value).startswith("mine.py:Reader: ")


def test_unknown_readers_options_and_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no reader 'cifar'; did you mean 'cifar10'"):
        open_reader("cifar", tmp_path)
    with pytest.raises(
        DataError, match="the reader nih has no option 'table'; its options are skip_missing"
    ):
        open_reader("nih", tmp_path, table="x")
    with pytest.raises(DataError, match="does not exist"):
        open_reader("imagefolder", tmp_path / "nowhere")
    with pytest.raises(DataError, match="channels is 2"):
        open_reader("imagefolder", tmp_path, channels=2)


def test_cifar10s_planes_and_parts_are_as_published(tmp_path: Path) -> None:
    generate_cifar10(tmp_path, images=120, progress=False)
    record = (tmp_path / "data_batch_2.bin").read_bytes()[3073 : 2 * 3073]
    reader = open_reader("cifar10", tmp_path, valid=0.1)
    image = reader.read(21)  # 20 in the first batch
    assert reader.targets[21] == record[0]
    assert image[0, 0].tolist() == [record[1], record[1 + 1024], record[1 + 2048]]
    assert image[3, 7, 1] == record[1 + 1024 + 3 * 32 + 7]
    splits = reader.splits()
    assert splits["test"].tolist() == list(range(100, 120))
    assert len(splits["valid"]) == 10 and len(splits["train"]) == 90

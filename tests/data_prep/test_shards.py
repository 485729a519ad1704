"""Image files in tar files, as `data-prep pack --shards` writes them, are read in place."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import command, digest, the_line
from PIL import Image

from data_prep import DataError, open_packed, open_reader, pack_folder, resize_folder, verify_folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A resized folder of two classes, whose noise takes more than one megabyte."""
    folder = tmp_path_factory.mktemp("noise")
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(40):
            pixels = random.integers(0, 256, (128, 128), np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number:02}.png")
    resize_folder(
        folder / "photos", folder / "small", reader="imagefolder", size=128, progress=False
    )
    return folder / "small"


@pytest.fixture
def shards(small: Path, tmp_path: Path) -> Path:
    pack_folder(small, tmp_path / "shards", shards=1, progress=False)
    return tmp_path / "shards"


def test_a_run_sees_the_same_images_from_files_an_array_and_shards(
    small: Path, shards: Path, tmp_path: Path
) -> None:
    pack_folder(small, tmp_path / "array", progress=False)
    of_files, *others = (
        open_reader("imagefolder", folder) for folder in (small, tmp_path / "array", shards)
    )
    for other in others:
        assert other.classes == of_files.classes
        assert np.array_equal(other.targets, of_files.targets)
        for name, part in of_files.parts().items():
            assert np.array_equal(other.parts()[name], part)
        for image in range(len(of_files)):
            assert np.array_equal(other.read(image), of_files.read(image))


def test_other_programs_find_the_files_unchanged(small: Path, shards: Path) -> None:
    tars = sorted(shards.glob("images-*.tar"))
    assert [file.name for file in tars] == ["images-00000.tar", "images-00001.tar"]
    found: dict[str, bytes] = {}
    for file in tars:
        with tarfile.open(file) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                found[member.name] = content.read()
    places = {f"{path.parent.name}/{path.name}": path for path in small.rglob("*.png")}
    assert found == {name: path.read_bytes() for name, path in places.items()}


def test_as_many_processes_as_there_are_give_the_same_bytes(small: Path, tmp_path: Path) -> None:
    for workers in (1, 3):
        folder = tmp_path / f"{workers}"
        pack_folder(small, folder, shards=1, num_workers=workers, progress=False)
    assert digest(tmp_path / "1") == digest(tmp_path / "3")


def test_damage_is_found(shards: Path) -> None:
    assert verify_folder(shards, reader="imagefolder", progress=False).ok
    file = shards / "images-00001.tar"
    data = bytearray(file.read_bytes())
    place = json.loads((shards / "packed.json").read_text())["shards"][-1]
    data[int(place.partition("@")[2].partition("+")[0]) + 100] ^= 1
    file.write_bytes(data)
    done = command("verify", shards, "--reader", "imagefolder")
    assert done.returncode == 1 and "dog/39" in done.stdout
    file.write_bytes(data[:5000])
    line = the_line(command("verify", shards, "--reader", "imagefolder"))
    assert "images-00001.tar: missing, or cut short; pack it again with" in line


@pytest.mark.parametrize(
    "place",
    ["../x.tar@0+5", "images-00000.tar@0+99999999", "images-00002.tar@0+5", "images-00000.tar", 7],
)
def test_places_that_are_none_are_refused(shards: Path, place: object) -> None:
    (shards.parent / "x.tar").write_bytes(bytes(1024))
    note = json.loads((shards / "packed.json").read_text())
    note["shards"][3] = place
    (shards / "packed.json").write_text(json.dumps(note))
    with pytest.raises(DataError, match=r"damaged \('shards'\)|missing, or cut short"):
        open_reader("imagefolder", shards)


def test_packed_again_another_way_nothing_is_left(small: Path, shards: Path) -> None:
    assert command("pack", small, shards).returncode == 0
    assert not [*shards.glob("*.tar")] and (shards / "images.npy").exists()
    done = command("pack", small, shards, "--shards", "5")
    assert "80 images of 128 px in 1 tar file" in done.stdout
    assert not (shards / "images.npy").exists()


def test_what_cannot_be_packed_so_is_one_line(tmp_path: Path, shards: Path, small: Path) -> None:
    command("generate", tmp_path / "cifar", "--layout", "cifar10", "--num-images", "60")
    where = next((tmp_path / "cifar").iterdir()).parent
    line = the_line(
        command("pack", where, tmp_path / "x", "--reader", "cifar10", "--rgb", "--shards", "1")
    )
    assert "its images are no files to put into shards" in line
    assert "shards is 0" in the_line(command("pack", small, tmp_path / "x", "--shards", "0"))
    with pytest.raises(DataError, match="its images are in shards"):
        open_packed(shards)

"""CIFAR-10's two versions, packed and unpacked: the same pixels, and nothing is executed."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep import DataError, open_reader
from data_prep.readers import load_catalog, safe_unpickle
from data_prep.synthetic_shapes import CLASSES, generate_cifar10

BATCHES = [*(f"data_batch_{at}" for at in range(1, 6)), "test_batch"]


@pytest.fixture(name="binary", scope="module")
def binary_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("binary")
    generate_cifar10(folder, images=120, progress=False)
    return folder


def python_2(content: dict[str, Any]) -> bytes:
    """A pickle as Python 2 with NumPy 1 wrote the published files: protocol 2, byte strings."""
    array, labels = content["data"], content["labels"]
    out = io.BytesIO()
    out.write(b"\x80\x02}q\x01(U\x04dataq\x02")
    out.write(b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b")
    out.write(b"\x87Rq\x05(K\x01" + b"J" + len(array).to_bytes(4, "little") + b"M\x00\x0c\x86")
    out.write(b"cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xff")
    out.write(b"J\xff\xff\xff\xffK\x00tb\x89T" + (array.size).to_bytes(4, "little"))
    out.write(array.tobytes() + b"tbU\x06labelsq\x08]q\x09(")
    out.write(b"".join(b"K" + bytes([label]) for label in labels) + b"eu.")
    return out.getvalue()


def as_python(binary: Path, folder: Path, how: Any) -> Path:
    """The python version of a set in the binary one."""
    folder.mkdir()
    for name in BATCHES:
        rows = np.frombuffer((binary / f"{name}.bin").read_bytes(), np.uint8).reshape(-1, 3073)
        content = {"data": rows[:, 1:].copy(), "labels": rows[:, 0].tolist()}
        (folder / name).write_bytes(how(content))
    names = {b"label_names": [name.encode() for name in CLASSES]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, 2))
    return folder


def archive(folder: Path, file: Path, inside: str) -> Path:
    with tarfile.open(file, "w:gz") as out:
        out.add(folder, inside)
    return file


HOW = {
    "protocol 2": lambda content: pickle.dumps(content, 2),
    "protocol 3": lambda content: pickle.dumps(content, 3),
    "protocol 4": lambda content: pickle.dumps(content, 4),
    "Python 2": python_2,
}


@pytest.mark.parametrize("how", HOW)
def test_the_python_version_is_the_binary_one(binary: Path, tmp_path: Path, how: str) -> None:
    one = open_reader("cifar10", binary)
    other = open_reader("cifar10", as_python(binary, tmp_path / "python", HOW[how]))
    assert one.classes == other.classes == CLASSES
    assert np.array_equal(one.targets, other.targets)
    assert one.array is not None and other.array is not None
    assert one.array.tobytes() == other.array.tobytes()
    assert list(one.catalog.images) == list(other.catalog.images)


def test_archives_are_read_as_they_come(binary: Path, tmp_path: Path) -> None:
    one = open_reader("cifar10", binary)
    archive(binary, tmp_path / "cifar-10-binary.tar.gz", "cifar-10-batches-bin")
    python = as_python(binary, tmp_path / "cifar-10-batches-py", python_2)
    (tmp_path / "other").mkdir()
    packed = archive(python, tmp_path / "other" / "cifar-10-python.tar.gz", "cifar-10-batches-py")
    for place in (tmp_path / "cifar-10-binary.tar.gz", tmp_path, tmp_path / "other", packed):
        other = open_reader("cifar10", place)
        assert one.array is not None and other.array is not None
        assert one.array.tobytes() == other.array.tobytes(), place
        assert np.array_equal(one.targets, other.targets)


def test_the_planes_are_red_green_blue(binary: Path) -> None:
    record = (binary / "data_batch_2.bin").read_bytes()[3073 : 2 * 3073]
    reader = open_reader("cifar10", binary)
    image = reader.read(21)  # 20 in the first batch
    assert reader.targets[21] == record[0]
    assert image[0, 0].tolist() == [record[1], record[1 + 1024], record[1 + 2048]]
    assert image[3, 7, 1] == record[1 + 1024 + 3 * 32 + 7]


def test_parts_are_as_published(binary: Path) -> None:
    reader = open_reader("cifar10", binary, valid=0.1)
    parts = reader.parts()
    assert parts["test"].tolist() == list(range(100, 120))
    assert len(parts["valid"]) == 10 and len(parts["train"]) == 90


class Planted:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("where", ["data", "labels", "key", "array"])
def test_a_planted_call_stays_inert(
    binary: Path, tmp_path: Path, protocol: int, where: str
) -> None:
    folder = as_python(binary, tmp_path / "set", python_2)
    ran = tmp_path / "it-ran"
    call = Planted(os.system, f"touch {ran}")
    content: dict[Any, Any] = {"data": np.zeros((1, 3072), np.uint8), "labels": [0]}
    if where == "key":
        content[call] = 1
    elif where == "array":
        content["data"] = [content["data"], call]
    else:
        content[where] = call
    data = pickle.dumps(content, protocol)
    (folder / "data_batch_3").write_bytes(data)
    with pytest.raises(DataError, match=r"nothing was run|damaged|an array of something"):
        open_reader("cifar10", folder)
    assert not ran.exists()
    pickle.loads(data)  # what anybody else does
    assert ran.exists()


def test_all_calls_but_those_of_arrays_are_refused() -> None:
    for function in (eval, open, __import__, np.load, np.frombuffer, np.dtype, getattr):
        data = pickle.dumps({"data": Planted(function, "1")}, 2)
        if function is np.dtype:
            assert safe_unpickle.load_dictionary(data, "x") == {"data": None}
            continue
        with pytest.raises(DataError, match="nothing was run"):
            safe_unpickle.load_dictionary(data, "x")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**40), 2**40)
        | st.text()
        | st.binary(min_size=1),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
        max_leaves=12,
    ),
    st.sampled_from([2, 3, 4, 5]),
)
@settings(max_examples=150)
def test_plain_things_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    data = pickle.dumps({"a": [value] if not isinstance(value, bytes) else value}, protocol)
    expected = pickle.loads(data)["a"]
    found = safe_unpickle.load_dictionary(data, "x")["a"]
    if isinstance(expected, list) and isinstance(expected[0], bytes):
        expected = [item.decode("latin-1") for item in expected]
    assert found == expected


@given(st.data())
@settings(max_examples=300)
def test_damage_is_one_line(data: st.DataObject) -> None:
    whole = pickle.dumps({"data": np.zeros((1, 9), np.uint8), "labels": [1, 2, (3, "x")]}, 2)
    spoilt = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = safe_unpickle.load_dictionary(bytes(spoilt), "x")
    except DataError as error:
        assert str(error).startswith("x: ") and str(error).isprintable()
    else:
        assert isinstance(found, dict)


def test_a_batch_that_changes_is_read_anew(binary: Path, tmp_path: Path) -> None:
    for file in binary.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    first = load_catalog("cifar10", tmp_path)[1]
    assert first is not None and load_catalog("cifar10", tmp_path)[1] is not None
    data = bytearray((tmp_path / "data_batch_1.bin").read_bytes())
    data[1] ^= 255
    (tmp_path / "data_batch_1.bin").write_bytes(data)
    again = load_catalog("cifar10", tmp_path)[1]
    assert again is not None and again[0, 0, 0, 0] == first[0, 0, 0, 0] ^ 255

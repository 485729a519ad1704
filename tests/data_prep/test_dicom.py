"""DICOM: shown as the file asks; refused in one line, also where pydicom is missing."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_prep_tools import command, the_line
from PIL import Image
from pydicom import Dataset, Sequence, dcmread, dcmwrite
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import UID, ExplicitVRLittleEndian, JPEGBaseline8Bit, RLELossless

from data_prep import DataError, open_reader, read_grey
from data_prep.image_decoding import MAX_PIXELS

RESCALE = {"RescaleSlope": 2, "RescaleIntercept": -1000}
NOT_HERE = bytes(128) + b"DICM" + bytes(64)


def test_without_pydicom_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydicom", None)  # as where it is not installed
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.dcm").write_bytes(NOT_HERE)
    with pytest.raises(DataError, match=r"x\.dcm: a DICOM file, which needs .* pip install"):
        read_grey(tmp_path / "in" / "x.dcm")
    words = ("resize", tmp_path / "in", tmp_path / "out", "--size", 8, "--num-workers", 1)
    assert "x.dcm: a DICOM file, which needs the package pydicom" in the_line(command(*words))


def dicom(stored: np.ndarray, bits: int = 12, **tags: Any) -> bytes:
    """A DICOM file of one grey frame with these stored values."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = UID("1.2.840.10008.5.1.4.1.1.7")
    meta.MediaStorageSOPInstanceUID = UID("1.2.3")
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = FileDataset("x.dcm", {}, file_meta=meta, preamble=bytes(128))
    file.Rows, file.Columns = stored.shape
    file.SamplesPerPixel = 1
    file.PhotometricInterpretation = "MONOCHROME2"
    file.BitsAllocated, file.BitsStored, file.HighBit = 16, bits, bits - 1
    file.PixelRepresentation = int(stored.min() < 0)
    file.PixelData = stored.astype("<i2" if stored.min() < 0 else "<u2").tobytes()
    for name, value in tags.items():
        setattr(file, name, value)
    buffer = io.BytesIO()
    file.save_as(buffer)
    return buffer.getvalue()


def shown(tmp_path: Path, stored: Any, **tags: Any) -> list[list[int]]:
    (tmp_path / "x.dcm").write_bytes(dicom(np.array(stored), **tags))
    return list(read_grey(tmp_path / "x.dcm").tolist())


def window(centre: Any, width: Any) -> dict[str, Any]:
    return {"WindowCenter": centre, "WindowWidth": width}


@pytest.mark.parametrize(
    ("stored", "tags", "expected"),
    [
        # Without a window, the range of the stored bits.
        ([0, 4095, 2048], {}, [0, 255, 128]),
        ([0, 1023], {"bits": 10}, [0, 255]),
        ([-2048, 2047, 0], {}, [0, 255, 128]),
        ([0, 4095], window("", ""), [0, 255]),
        ([0, 4095, 2048], {"PhotometricInterpretation": "MONOCHROME1"}, [255, 0, 127]),
        # PS3.3, C.11.2.1.2: its own examples, from level 0 to 255.
        ([0, 4095], window(2048, 4096), [0, 255]),
        ([0, 74, 125, 4095, 99], window(100, 51), [0, 0, 255, 255, 125]),
        ([0, 100], window([10, 2000], [2, 4000]), [0, 255]),
        # Slope and intercept come before the window.
        ([0, 1000, 500], RESCALE | window(0.5, 2001), [0, 255, 128]),
        ([0, 4095], RESCALE, [0, 255]),
        ([0, 4095], RESCALE | {"RescaleSlope": -1}, [255, 0]),
    ],
)
def test_values_are_shown_as_the_file_asks(
    tmp_path: Path, stored: list[int], tags: dict[str, Any], expected: list[int]
) -> None:
    assert shown(tmp_path, [stored], **tags) == [expected]


@pytest.mark.parametrize("bits", [8, 16])
def test_a_look_up_table_is_applied(tmp_path: Path, bits: int) -> None:
    """Dark values, up to a tenth of the stored range, that the table stretches to all levels."""
    table = Dataset()
    table.LUTDescriptor = [4096, 0, bits]
    values = np.minimum(np.arange(4096) * (2**bits - 1) // 400, 2**bits - 1).astype("<u2")
    table.add_new(0x00283006, "OW", values.tobytes())
    shown_as = shown(tmp_path, [[0, 200, 400, 500]], VOILUTSequence=Sequence([table]))
    assert shown_as == [[0, pytest.approx(127, abs=1), 255, 255]]


def test_a_file_without_its_header_is_read(tmp_path: Path) -> None:
    whole = dcmread(io.BytesIO(dicom(np.array([[0, 4095]]), SOPClassUID="1.2.3")))
    with (tmp_path / "x.dcm").open("wb") as file:
        dcmwrite(file, Dataset(whole), implicit_vr=True, little_endian=True)
    assert read_grey(tmp_path / "x.dcm").tolist() == [[0, 255]]


def compressed(syntax: UID, frame: bytes, **tags: Any) -> bytes:
    """A DICOM file of 8 x 8 pixels of 8 bits, with this frame in this transfer syntax."""
    file = dcmread(io.BytesIO(dicom(np.zeros((8, 8), np.uint16), bits=8, BitsAllocated=8)))
    file.file_meta.TransferSyntaxUID = syntax
    file.PixelData = encapsulate([frame])
    file["PixelData"].is_undefined_length = True
    for name, value in tags.items():
        setattr(file, name, value)
    buffer = io.BytesIO()
    file.save_as(buffer)
    return buffer.getvalue()


def jpeg(width: int, mode: str = "L") -> bytes:
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((width, 8)).convert(mode).save(buffer, "JPEG")
    return buffer.getvalue()


def test_run_lengths_and_plain_jpeg_are_read(tmp_path: Path) -> None:
    """As RSNA's pneumonia set, which is JPEG."""
    expected = np.asarray(Image.open(io.BytesIO(jpeg(8))))
    (tmp_path / "x.dcm").write_bytes(compressed(JPEGBaseline8Bit, jpeg(8)))
    assert np.array_equal(read_grey(tmp_path / "x.dcm"), expected)
    inverted = compressed(JPEGBaseline8Bit, jpeg(8), PhotometricInterpretation="MONOCHROME1")
    (tmp_path / "x.dcm").write_bytes(inverted)
    assert np.array_equal(read_grey(tmp_path / "x.dcm"), 255 - expected)
    file = dcmread(io.BytesIO(dicom(np.array([[0, 4095], [2048, 0]]))))
    file.compress(RLELossless)
    file.save_as(tmp_path / "x.dcm")
    assert read_grey(tmp_path / "x.dcm").tolist() == [[0, 255], [128, 0]]
    for frame in (jpeg(9), jpeg(8, "RGB"), jpeg(8)[:40]):
        (tmp_path / "x.dcm").write_bytes(compressed(JPEGBaseline8Bit, frame))
        with pytest.raises(DataError, match=r"x\.dcm: cannot be read as a DICOM image"):
            read_grey(tmp_path / "x.dcm")


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ({"NumberOfFrames": 2}, "2 frames; only single-frame images are supported"),
        ({"PhotometricInterpretation": "RGB", "SamplesPerPixel": 3}, "RGB pixels; MONOCHROME1"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "PALETTE"),
        ({"Rows": 65535, "Columns": 65535}, "65535 x 65535 pixels, more than"),
        ({"Rows": 100}, "cannot be read as a DICOM image"),
        (window(1, 0), "Window Width must be greater"),
    ],
)
def test_what_is_refused(tmp_path: Path, tags: dict[str, Any], says: str) -> None:
    assert MAX_PIXELS < 65535**2
    with pytest.raises(DataError, match=says) as caught:
        shown(tmp_path, [[0, 1], [2, 3]], **tags)
    assert "x.dcm" in str(caught.value) and str(caught.value).isprintable()


def test_a_folder_of_dicom_files_is_resized_as_any_other(tmp_path: Path) -> None:
    ramp = np.tile(np.arange(64) * 64, (64, 1))
    for name in ("a", "b"):
        for at in range(8):
            file = tmp_path / "in" / name / f"{at}.dcm"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(dicom(ramp + at))
    assert open_reader("imagefolder", tmp_path / "in").read(0).shape == (64, 64, 3)
    words = ("resize", tmp_path / "in", tmp_path / "out", "--reader", "imagefolder", "--size", 8)
    assert command(*words).returncode == 0
    small = np.asarray(Image.open(tmp_path / "out" / "images" / "a" / "0.png"))
    assert small.shape == (8, 8) and small[0, 0] < 20 < 230 < small[0, -1]

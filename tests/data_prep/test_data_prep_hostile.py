"""What strangers' files do to the rest: nothing runs, no other row is lost, all shows as text.

The single lines that hostile files draw are in tests/hostile.
"""

from __future__ import annotations

import io
import os
import pickle
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from data_prep_tools import ROOT, command, make_folder, quiet
from PIL import Image, ImageOps

from data_prep import DataError, read_grey
from data_prep import __main__ as data_prep_command
from data_prep.errors import MAX_ERROR_LENGTH, printable
from data_prep.image_decoding import COLOUR_LOST, TRANSPARENCY_LOST, TURNED, decode
from data_prep.readers.nih import parse_label_file
from gpumon import __main__ as gpumon_command
from helpers import __main__ as rosetta_command

RAMP = np.tile(np.arange(0, 256, 4, dtype=np.uint8), (64, 1))


def test_postscript_called_an_image_reaches_no_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gs = tmp_path / "bin" / "gs"
    gs.parent.mkdir()
    gs.write_text(f"#!/bin/sh\ntouch {tmp_path / 'it-ran'}\n")
    gs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gs.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # Pillow looks once and remembers
    (tmp_path / "x.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    )
    with pytest.raises(DataError) as caught:
        read_grey(tmp_path / "x.png")
    assert not (tmp_path / "it-ran").exists()
    assert "not a PNG, JPEG" in str(caught.value)


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\r\n"])
def test_the_row_of_the_bad_image_goes_and_no_other(tmp_path: Path, odd: str) -> None:
    """Only CR and LF end a line of a CSV file, and inside quotes not even those."""
    source = make_folder(tmp_path / "set")
    file = source / "Data_Entry_2017.csv"
    text = file.read_text().replace(",M,PA,", f',M,"P{odd}A",', 3)
    file.write_text(text, newline="")
    names = parse_label_file(file).images
    (source / "images" / names[3]).write_bytes(b"no image")
    quiet(source, tmp_path / "small")
    kept = tmp_path / "small" / file.name
    assert parse_label_file(kept).images == names[:3] + names[4:]
    bad = next(line for line in text.split("\n") if line.startswith(names[3]))
    assert kept.read_bytes().decode() == text.replace(f"{bad}\n", "")


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("ending", ["jpg", "png"])
@pytest.mark.parametrize("orientation", [1, 3, 5, 6, 8])
def test_pixels_are_turned_upright(
    tmp_path: Path, mode: str, ending: str, orientation: int
) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    image = Image.fromarray(RAMP[:32]).convert(mode)
    image.save(tmp_path / f"turned.{ending}", exif=exif)
    with Image.open(tmp_path / f"turned.{ending}") as saved:
        upright = np.asarray(ImageOps.exif_transpose(saved).convert("L"))
    notes: list[str] = []
    data = (tmp_path / f"turned.{ending}").read_bytes()
    assert np.array_equal(decode(data, "x", 1, notes)[..., 0], upright)
    assert notes == ([] if orientation == 1 else [TURNED])


def test_what_an_image_loses_is_noted() -> None:
    colours = np.random.default_rng(0).integers(0, 255, (8, 8, 4), np.uint8)
    grey = np.repeat(colours[..., :1], 3, axis=2)
    for pixels, expected in (
        (colours[..., :3], [COLOUR_LOST]),
        (grey, list[str]()),
        (colours, [TRANSPARENCY_LOST, COLOUR_LOST]),
    ):
        buffer, notes = io.BytesIO(), list[str]()
        Image.fromarray(pixels).save(buffer, "PNG")
        decode(buffer.getvalue(), "x", 1, notes)
        assert notes == expected


def test_an_error_is_one_line_that_a_terminal_only_shows() -> None:
    error = DataError("a\x1b[2Jb\nc\r\u2028\u202e\udcff: damaged, fetch it")
    assert str(error) == r"a\x1b[2Jb\nc\r\u2028\u202e\udcff: damaged, fetch it"
    assert printable(str(error)) == str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # as from a worker process
    endless = str(DataError(f"x.csv: {'M' * 10**6!r} is not a finding; remove it"))
    assert endless.startswith("x.csv") and endless.endswith("remove it")
    assert len(endless) < MAX_ERROR_LENGTH + 10


def test_reports_are_printable(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "set")
    names = "a\x1b[2J.png", "b\nno problems", os.fsdecode(b"c\xff.png")
    for name in names:
        (source / "images" / name).write_bytes(b"?")
        done = command("verify", source)
        assert done.returncode == 1
        assert all(line.isprintable() for line in done.stdout.removesuffix("\n").split("\n"))
        assert printable(name) in done.stdout
        (source / "images" / name).unlink()
    done = command("verify", source.rename(tmp_path / "\x1b[2J"))
    done = command("verify", "--quick", tmp_path / "\x1b[2J")
    assert done.returncode == 0 and "\x1b" not in done.stdout


@pytest.mark.parametrize("module", [data_prep_command, gpumon_command, rosetta_command])
def test_one_version_everywhere(module: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with pytest.raises(SystemExit):
        module.main(["--version"])
    assert capsys.readouterr().out.endswith(f" {version}\n")

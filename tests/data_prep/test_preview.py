"""The page that shows a data set before training: its numbers, and that it stays small and safe."""

from __future__ import annotations

import base64
import html
import io
import re
from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import command, make_folder
from PIL import Image

RNG = np.random.Generator(np.random.PCG64(8))
FOLDER = ("--reader", "imagefolder")


class Page:
    """The rows of the tables, the text of each heading's section, and the images."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        rows = re.findall("<tr>(.*?)</tr>", self.text, re.DOTALL)
        self.rows = [[*map(html.unescape, re.findall("<t[dh]>(.*?)</t[dh]>", row))] for row in rows]
        first, *sections = self.text.split("<h2>")
        self.sections = {"": first}
        for section in sections:
            heading, _, rest = section.partition("</h2>")
            self.sections[heading] = html.unescape(re.sub("<[^>]*>", "", rest))
        self.images = re.findall('src="([^"]*)"', self.text)


def picture(path: Path, width: int = 30) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 256, (20, width, 3), dtype=np.uint8)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three published parts: a patient in two parts, a copy, a damaged image and a text file."""
    for at, part in enumerate(("train", "val", "test")):
        for name in ("dog", "<b>cat&"):
            for number in range(4):
                picture(tmp_path / "in" / part / name / f"p{at}{number}.png", 30 + at)
    (tmp_path / "in" / "test" / "dog" / "p00-again.png").write_bytes(
        (tmp_path / "in" / "train" / "dog" / "p00.png").read_bytes()
    )
    (tmp_path / "in" / "val" / "dog" / "p13.png").write_bytes(b"no image")
    (tmp_path / "in" / "val" / "dog" / "notes.txt").write_text("")
    return tmp_path / "in"


def test_the_page_shows_what_is_in_the_folder(folder: Path) -> None:
    done = command("preview", folder, *FOLDER, "--group", r"p\d+")
    assert done.returncode == 0, done.stderr
    output = folder.parent / "in-preview.html"
    assert done.stdout == f"{output}: 25 of 25 images sampled, 1 unreadable\n"
    page = Page(output)
    assert ["images", "25", "8", "8", "9"] in page.rows
    assert ["dog", "13", "4", "4", "5"] in page.rows
    assert ["<b>cat&", "12", "4", "4", "4"] in page.rows
    assert ["31 x 20", "7"] in page.rows and ["30 x 20", "9"] in page.rows
    assert "passed over: 1 .txt" in page.sections[""]
    assert "the group p00 is in both train and test" in page.sections[""]
    assert "val/dog/p13.png: cannot be read" in page.sections["Unreadable images in the sample"]
    assert len(page.images) == 24
    data = base64.b64decode(page.images[0].removeprefix("data:image/jpeg;base64,"))
    assert Image.open(io.BytesIO(data)).size[1] == 20
    # Labels are text, and nothing is loaded from elsewhere.
    assert "<b>cat&" in page.sections["train"] and "<b>cat&" not in page.text
    assert not re.search(r"<(script|link|iframe)|https?://", page.text)


def test_the_sample_is_bounded_and_repeats(tmp_path: Path) -> None:
    for at in range(90):
        picture(tmp_path / "in" / "ab"[at % 2] / f"{at}.png")
    words = ("preview", tmp_path / "in", *FOLDER, "--num-images", 24, "--seed", 3)
    for name in ("1.html", "2.html"):
        assert "24 of 90 images sampled" in command(*words, "--output", tmp_path / name).stdout
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()
    page = Page(tmp_path / "1.html")
    assert ["images", "90", "63", "9", "18"] in page.rows and ["30 x 20", "24"] in page.rows


def test_prepared_and_packed_folders(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "set", patients=20)
    assert command("resize", source, tmp_path / "small", "--size", 8).returncode == 0
    assert command("pack", tmp_path / "small", tmp_path / "packed").returncode == 0
    for name in ("small", "packed"):
        words = ("preview", tmp_path / name, "--num-images", 3)
        assert "3 of 40 images sampled" in command(*words).stdout
        page = Page(tmp_path / f"{name}-preview.html")
        assert ["8 x 8", "3"] in page.rows

"""Tables, class folders and archives made to do harm, or that are not what they say."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from hostile.archives import header, padded
from hostile.case import Case

LIST = "list.csv"
MAPPING = 'file = "list.csv"\npath = "Path"\ngroup = "Who"\nfindings = ["Mass"]\n'


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), (9, 99, 199)).save(path)


def table(text: str | bytes, mapping: str = MAPPING) -> Callable[[Path], list[str]]:
    """A folder with this CSV and mapping, and one image `a.png`."""

    def lay(folder: Path) -> list[str]:
        picture(folder / "a.png")
        (folder / LIST).write_bytes(text if isinstance(text, bytes) else text.encode())
        (folder / "table.toml").write_text(mapping)
        return ["data-prep", "stats", str(folder), "--reader", "table"]

    return lay


def row(cell: str) -> Callable[[Path], list[str]]:
    return table(f"Path,Who,Mass\na.png,1,1\n{cell}\n")


def told(mapping: str) -> Callable[[Path], list[str]]:
    return table("Path,Who,Mass\na.png,1,1\n", mapping)


def names(cell: str, more: str = "") -> Callable[[Path], list[str]]:
    text = 'file = "list.csv"\npath = "Path"\nlabels = "Labels"\nfindings = ["mass"]\n'
    return table(f'Path,Labels\na.png,"{cell}"\n', text + more)


def link_out(folder: Path) -> list[str]:
    words = row("b.png,1,0")(folder)
    (folder / "b.png").symlink_to("/etc/hostname")
    return words


def classes(*files: str, spoil: Callable[[Path], object] = lambda _: None) -> Callable:
    def lay(folder: Path) -> list[str]:
        for name in files:
            picture(folder / name)
        spoil(folder)
        return ["data-prep", "stats", str(folder), "--reader", "imagefolder"]

    return lay


def member(name: str, data: bytes = b"x") -> bytes:
    return header(name, len(data)) + padded(data)


def binary(batch: bytes, meta: bytes = b"a\nb\n") -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        (folder / "batches.meta.txt").write_bytes(meta)
        (folder / "data_batch_1.bin").write_bytes(batch)
        (folder / "test_batch.bin").write_bytes(bytes(3073))
        return ["data-prep", "stats", str(folder), "--reader", "cifar10"]

    return lay


def packed(*members: tuple[str, bytes]) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as out:
            for name, data in members:
                header = tarfile.TarInfo(name)
                header.size = len(data)
                out.addfile(header, io.BytesIO(data))
        return ["data-prep", "stats", str(folder), "--reader", "cifar10"]

    return lay


CASES = [
    Case("table-climbing", row("../a.png,1,0"), r"line 3, column 'Path'.*not a safe path within"),
    Case("table-link-out", link_out, "a link that leads out"),
    Case("table-odd-value", row("b.png,1,maybe"), "line 3, column 'Mass': 'maybe' is none of"),
    Case("table-column-twice", table("Path,Who,Mass,Mass\na.png,1,1,0\n"), "two columns.*'Mass'"),
    Case("mapping-no-toml", told("file = list.csv\n"), r"table.toml: cannot be read.*line 1"),
    Case("mapping-unknown", told(MAPPING + 'grupe = "x"\n'), "line 5: 'grupe' is unknown; did"),
    Case("list-call", names("[__import__('os')]", ""), "not a list of"),
    Case("classes-none", classes("a.png"), "contains no folder"),
    Case(
        "classes-link-out",
        classes("cat/a.png", spoil=lambda f: (f / "dog").symlink_to("/etc")),
        "a link that leads out",
    ),
    Case("cifar-half-an-image", binary(bytes(3000)), "not a multiple of 3073"),
    Case("cifar-tar-climbing", packed(("../data_batch_1.bin", b"")), "points outside the folder"),
    Case("reader-unknown", lambda f: ["data-prep", "stats", str(f), "--reader", "nhi"], "'nih'"),
]

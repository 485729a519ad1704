"""Tables, class folders and archives made to do harm, or that are not what they say."""

from collections.abc import Callable
from pathlib import Path

from PIL import Image

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
        return ["data-prep", "verify", "--quick", str(folder), "--reader", "table"]

    return lay


def row(cell: str) -> Callable[[Path], list[str]]:
    return table(f"Path,Who,Mass\na.png,1,1\n{cell}\n")


def told(mapping: str) -> Callable[[Path], list[str]]:
    return table("Path,Who,Mass\na.png,1,1\n", mapping)


def names(cell: str, more: str = "") -> Callable[[Path], list[str]]:
    text = 'file = "list.csv"\npath = "Path"\nlabels = "Labels"\nfindings = ["mass"]\n'
    return table(f'Path,Labels\na.png,"{cell}"\n', text + more)


def binary(batch: bytes, meta: bytes = b"a\nb\n") -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        (folder / "batches.meta.txt").write_bytes(meta)
        (folder / "data_batch_1.bin").write_bytes(batch)
        (folder / "test_batch.bin").write_bytes(bytes(3073))
        return ["data-prep", "verify", "--quick", str(folder), "--reader", "cifar10"]

    return lay


CASES = [
    Case("table-climbing", row("../a.png,1,0"), r"line 3, column 'Path'.*not a safe path within"),
    Case("mapping-no-toml", told("file = list.csv\n"), "table.toml: .*line 1"),
    Case("list-call", names("[__import__('os')]", ""), "not a list of"),
    Case("cifar-half-an-image", binary(bytes(3000)), "not a multiple of 3073"),
]

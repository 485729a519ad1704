"""Tables, class folders, archives and pickles made to do harm, or that are not what they say."""

import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from hostile.archives import END, header, padded
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


def folder_out(folder: Path) -> list[str]:
    words = row("sub/b.png,1,0")(folder)
    (folder / "sub").symlink_to("/etc")
    return words


def classes(*files: str, spoil: Callable[[Path], object] = lambda _: None) -> Callable:
    def lay(folder: Path) -> list[str]:
        for name in files:
            picture(folder / name)
        spoil(folder)
        return ["data-prep", "stats", str(folder), "--reader", "imagefolder"]

    return lay


def member(
    name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, size: int | None = None
) -> bytes:
    if kind == tarfile.SYMTYPE:
        return header(name, 0, kind, "/etc/passwd")
    return header(name, len(data) if size is None else size, kind) + padded(data)


def pax(records: bytes) -> bytes:
    return member("x", records, tarfile.XHDTYPE)


def archive(*members: bytes, end: bytes = END) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        source = folder / "in" / "ILSVRC2012_img_train.tar"
        source.parent.mkdir()
        source.write_bytes(b"".join(members) + end)
        return ["data-prep", "resize", str(source), str(folder / "out"), "--reader", "imagefolder"]

    return lay


def inner(*members: bytes, end: bytes = END) -> Callable[[Path], list[str]]:
    return archive(member("cat.tar", b"".join(members) + end))


class Call:
    """Calls when it is unpickled."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call[0], self.call[1:]


def cifar(**files: bytes) -> Callable[[Path], list[str]]:
    """The python version of CIFAR-10, of which these files are others."""
    meta = pickle.dumps({"label_names": ["a", "b"]}, 2)
    sound = {"batches.meta": meta, "data_batch_1": b"", "test_batch": b""}

    def lay(folder: Path) -> list[str]:
        for name, data in (sound | files).items():
            (folder / name).write_bytes(data)
        return ["data-prep", "stats", str(folder), "--reader", "cifar10"]

    return lay


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


def doubling(levels: int) -> bytes:
    """A key of tuples that hold the next one twice: to hash it takes for ever."""
    value = b"K\x01" + b"".join(b"2\x86" for _ in range(levels))
    return b"\x80\x02}" + value.replace(b"2\x86", b"q\x00h\x00\x86") + b"K\x01s."


SPOILT = "data_batch_1"
RAN = "the-planted-call-ran"

CASES = [
    Case("table-climbing", row("../a.png,1,0"), r"line 3, column 'Path'.*not a safe path within"),
    Case("table-climbing-inside", row("x/../../a.png,1,0"), "not a safe path within the folder"),
    Case("table-absolute", row("/etc/passwd,1,0"), "not a safe path within the folder"),
    Case("table-drive", row("C:a.png,1,0"), "not a safe path within the folder"),
    Case("table-backslash", row("..\\a.png,1,0"), "not a safe path within the folder"),
    Case("table-no-path", row(",1,0"), "not a safe path within the folder"),
    Case("table-nul", row("a\0.png,1,0"), "not a safe path|NUL"),
    Case("table-link-out", link_out, "a link that leads out"),
    Case("table-folder-link-out", folder_out, "a link that leads out"),
    Case("table-not-there", row("b.png,1,0"), "1 of the 2 images.*the first is b.png"),
    Case("table-twice", row("a.png,1,0"), "a.png is listed twice"),
    Case("table-odd-value", row("b.png,1,yes"), "line 3, column 'Mass': 'yes' is none of 1, 1"),
    Case("table-no-group", row("b.png,,1"), "line 3, column 'Who': empty"),
    Case("table-escape", row("\x1b[2J,1,1"), r"\\x1b\[2J"),
    Case("table-column-twice", table("Path,Who,Mass,Mass\na.png,1,1,0\n"), "two columns.*'Mass'"),
    Case("table-semicolons", table("Path;Who;Mass\na.png,1,1\n"), "line 2: 1 columns, the header"),
    Case("table-nan", row("b.png,1,nan"), "line 3, column 'Mass': 'nan' is none of 1, 1.0, 0"),
    Case("table-word", row("b.png,1,uncertain"), "'uncertain' is none of.*add it to the mapping"),
    Case("table-header-only", table("Path,Who,Mass\n"), "no rows below the header"),
    Case("table-near-column", told(MAPPING.replace("Mass", "Masss")), "line 1: no.*mean 'Mass'"),
    Case("table-other-columns", table("Pfad,Who,Mass\na,1,1\n"), "line 1: no column 'Path'"),
    Case("mapping-no-toml", told("file = list.csv\n"), r"table.toml: cannot be read.*line 1"),
    Case("mapping-unknown", told(MAPPING + 'grupe = "x"\n'), "line 5: 'grupe' is unknown; did"),
    Case("mapping-not-a-text", told(MAPPING.replace('"Path"', "3")), "line 2: 'path' is 3"),
    Case("mapping-no-file", told('path = "Path"\nfindings = ["Mass"]\n'), "'file' is missing"),
    Case("mapping-file-out", told(MAPPING.replace("list", "../list")), "a path within the folder"),
    Case("mapping-no-label", told('file = "list.csv"\npath = "Path"\n'), "one type of labels"),
    Case("mapping-two-labels", told(MAPPING + 'class = "Who"\nlabels = "Mass"\n'), "one type of"),
    Case("mapping-regex", told(MAPPING + 'group_pattern = "("\n'), "line 5: 'group_pattern' is no"),
    Case("mapping-regex-finds-nothing", told(MAPPING + 'group_pattern = "p"\n'), "no 'p' in '1'"),
    Case("mapping-join", told(MAPPING + 'join = "x"\n'), "'join' needs 'file' and 'on'"),
    Case("mapping-value-twice", told(MAPPING + 'missing = ["1"]\n'), "'1' has two meanings"),
    Case("mapping-other-name", names("nodule"), "line 2, column 'Labels': 'nodule' is not one"),
    Case("mapping-none-beside", names("mass|No Finding"), "'No Finding' beside a finding"),
    Case("list-call", names("__import__('os')", 'label_format = "list"\n'), "not a list of"),
    Case("list-open", names("['mass'", 'label_format = "list"\n'), "not a list of names in quotes"),
    Case("list-of-a-call", names("['mass', f()]", 'label_format = "list"\n'), "not a list of"),
    Case(
        "list-deep",
        names("[" * 50_000 + "]" * 50_000, 'label_format = "list"\n'),
        "not a list of names",
    ),
    Case("classes-none", classes("a.png"), "contains no folder"),
    Case("classes-empty", classes("cat/a.png", spoil=lambda f: (f / "dog").mkdir()), "no image in"),
    Case("classes-val-has-more", classes("train/cat/a.png", "val/dog/b.png"), "a class without"),
    Case("classes-no-train", classes("val/cat/a.png"), "but no train"),
    Case("classes-two-vals", classes("train/c/a.png", "val/c/a.png", "valid/c/a.png"), "keep one"),
    Case(
        "classes-link-out",
        classes("cat/a.png", spoil=lambda f: (f / "dog").symlink_to("/etc")),
        "a link that leads out",
    ),
    Case(
        "classes-file-link-out",
        classes("cat/a.png", spoil=lambda f: (f / "cat" / "b.png").symlink_to("/etc/hostname")),
        "a link that leads out",
    ),
    Case(
        "classes-not-utf-8",
        classes(
            "cat/a.png",
            spoil=lambda f: Path(os.fsdecode(os.fsencode(f / "cat") + b"/\xff.png")).touch(),
        ),
        r"udcff.png: rename it",
    ),
    Case("tars-climbing", archive(member("../cat.tar", END)), "'../cat.tar' points outside"),
    Case("tars-inner-climbing", inner(member("../../x.JPEG")), "points outside"),
    Case("tars-inner-link", inner(member("x.JPEG", kind=tarfile.SYMTYPE)), "a link, a device"),
    Case("tars-sparse", inner(member("x.JPEG", kind=tarfile.GNUTYPE_SPARSE)), "a link, a device"),
    Case(
        "tars-long-header",
        inner(member("x", bytes(1 << 22), tarfile.XHDTYPE), member("x.JPEG")),
        "belong to no file; refused",
    ),
    Case("tars-pax-size", inner(pax(b"10 size=7\n"), member("x.JPEG")), "left out"),
    Case(
        "tars-pax-sparse",
        inner(pax(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"), member("x.JPEG", b"0\n")),
        "is a link, a device or sparse|damaged",
    ),
    Case("tars-pax-number", inner(pax(b"0 path=x\n"), member("x.JPEG")), "damaged"),
    Case("tars-pax-cut", inner(pax(b"99 path=x\n"), member("x.JPEG")), "no image|damaged"),
    Case("tars-pax-no-record", inner(pax(b"x"), member("x.JPEG")), "left out|damaged"),
    Case("tars-too-far", inner(member("x.JPEG", size=1 << 22)), "more than can be in it"),
    Case("tars-cut", archive(member("cat.tar", END), end=b""), "damaged or cut short"),
    Case("tars-inner-cut", inner(member("x.JPEG"), end=b""), "damaged or cut short"),
    Case("tars-no-class", archive(member("x.txt")), "no tar of a class"),
    Case(
        "tars-imagenets-validation",
        archive(member("ILSVRC2012_val_00000001.JPEG")),
        "lacks the classes of its images: unpack both into train/CLASS/ and val/CLASS/, or",
    ),
    Case("tars-no-image", inner(member("x.txt")), "no image in cat.tar"),
    Case("tars-not-one", archive(b"x" * 2048), "damaged"),
    Case("tars-no-picture", inner(member("x.JPEG")), "1 of 1 images were left out.*cat/x.JPEG"),
    Case(
        "cifar-planted-call",
        cifar(**{SPOILT: pickle.dumps({"data": Call(os.system, f"touch {RAN}")}, 2)}),
        r"names (posix|nt).system.*nothing was run",
    ),
    Case(
        "cifar-planted-call-4",
        cifar(**{SPOILT: pickle.dumps({"data": Call(os.system, f"touch {RAN}")}, 4)}),
        "nothing was run",
    ),
    Case(
        "cifar-planted-call-in-meta",
        cifar(**{"batches.meta": pickle.dumps({"label_names": Call(eval, "1")}, 2)}),
        "names (builtins|__builtin__).eval",
    ),
    Case(
        "cifar-old-call",
        cifar(**{SPOILT: b"(S'touch " + RAN.encode() + b"'\nios\nsystem\n."}),
        "opcode (STRING|INST) at byte",
    ),
    Case("cifar-extension", cifar(**{SPOILT: b"\x80\x02\x82\x01."}), "opcode EXT1 at byte 2"),
    Case("cifar-persistent", cifar(**{SPOILT: b"\x80\x02K\x01Q."}), "opcode BINPERSID at byte"),
    Case("cifar-cut", cifar(**{SPOILT: pickle.dumps({"data": [1] * 99}, 2)[:-1]}), "damaged"),
    Case("cifar-nothing", cifar(), "data_batch_1: damaged"),
    Case("cifar-a-list", cifar(**{SPOILT: pickle.dumps([1], 2)}), "a pickle of list"),
    Case("cifar-other-data", cifar(**{SPOILT: pickle.dumps({"data": [1]}, 2)}), "'data' is no"),
    Case("cifar-doubling-key", cifar(**{SPOILT: doubling(60)}), "more references"),
    Case("cifar-claims-bytes", cifar(**{SPOILT: b"\x80\x04\x8e" + b"\xff" * 8 + b"."}), "damaged"),
    Case("cifar-half-an-image", binary(bytes(3000)), "not a multiple of 3073"),
    Case("cifar-empty", binary(b""), "not a multiple of 3073"),
    Case("cifar-unknown-class", binary(b"\x07" + bytes(3072)), "image 0 has class 7"),
    Case(
        "cifar-names-no-utf-8",
        cifar(**{"batches.meta": pickle.dumps({"label_names": ["\ud800", "b"]}, 2)}),
        "batches.meta: no list of class names",
    ),
    Case("cifar-no-names", binary(bytes(3073), b""), "0 classes"),
    Case("cifar-names-twice", binary(bytes(3073), b"a\na\n"), "two of one name"),
    Case("cifar-tar-climbing", packed(("../data_batch_1.bin", b"")), "points outside the folder"),
    Case("cifar-tar-of-others", packed(("x/readme.html", b"hi")), "not CIFAR-10"),
    Case("reader-unknown", lambda f: ["data-prep", "stats", str(f), "--reader", "nhi"], "'nih'"),
    Case(
        "reader-other-option",
        lambda f: ["data-prep", "stats", str(f), "--reader", "cifar10", "--table", "x"],
        "the reader cifar10 has no option 'table'",
    ),
]

"""Traces and requests that gpumon did not write, or not like that.

A header that is wrong is refused; a line that is wrong is left out, and the command says so.
"""

import gzip
import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpumon_tools import Marks, write

from gpumon.trace_format import LONGEST_LINE, MOST_SERIES
from hostile.case import Case

ESCAPES = "\x1b]0;owned\x07\x1b[2J\nred\u202e"
KEEPS = ("t.jsonl", "t.marks.jsonl")
TRAIN: Marks = (("train", 0.0, 4.0, {"items": 8}),)

Lay = Callable[[Path], list[str]]


def trace(folder: Path) -> Path:
    return write(folder / "t", {"gpu0": [10.0, 20.0, 30.0, 40.0]}, marks=TRAIN)


def reading(folder: Path, command: str = "summary") -> list[str]:
    """The command that reads the folder's trace."""
    more = {
        "summary": [],
        "plot": ["-o", str(folder / "out.png")],
        "html": ["-o", str(folder / "out.html")],
        "export": ["-o", str(folder / "out.csv")],
    }[command]
    name = "plot" if command == "html" else command
    return ["gpumon", name, str(folder / "t"), *more]


def header(command: str = "summary", /, **changes: Any) -> Lay:
    """A trace whose header has other values; ``...`` takes one away."""

    def lay(folder: Path) -> list[str]:
        file = trace(folder).with_name("t.jsonl")
        first, *rest = file.read_text().splitlines()
        content = json.loads(first) | changes
        content = {name: value for name, value in content.items() if value is not ...}
        file.write_text("\n".join([json.dumps(content), *rest]) + "\n")
        return reading(folder, command)

    return lay


def device(command: str = "summary", **changes: Any) -> Lay:
    def lay(folder: Path) -> list[str]:
        lines = trace(folder).with_name("t.jsonl").read_text().splitlines()
        devices = json.loads(lines[0])["devices"]
        return header(command, devices=[devices[0] | changes, *devices[1:]])(folder)

    return lay


def content(data: bytes, command: str = "summary") -> Lay:
    """A trace that is nothing but these bytes."""

    def lay(folder: Path) -> list[str]:
        trace(folder).with_name("t.jsonl").write_bytes(data)
        return reading(folder, command)

    return lay


def rewritten(edit: Callable[[bytes], bytes], command: str = "summary") -> Lay:
    """A sound trace whose bytes are others."""

    def lay(folder: Path) -> list[str]:
        file = trace(folder).with_name("t.jsonl")
        file.write_bytes(edit(file.read_bytes()))
        return reading(folder, command)

    return lay


def line(text: str, command: str = "summary", file: str = "t.jsonl") -> Lay:
    """A sound trace with one line more."""

    def lay(folder: Path) -> list[str]:
        trace(folder)
        with (folder / file).open("a") as stream:
            stream.write(text + "\n")
        return reading(folder, command)

    return lay


def mark(name: str, command: str, *more: str) -> Lay:
    def lay(folder: Path) -> list[str]:
        write(folder / "t", {"gpu0": [1.0] * 4}, marks=((name, 0.0, 3.0, {"epoch": name}),))
        return [*reading(folder, command), *more]

    return lay


def instead(make: Callable[[Path], object], command: str = "summary", file: str = "t.jsonl") -> Lay:
    """Something else where a file of the trace should be."""

    def lay(folder: Path) -> list[str]:
        trace(folder)
        (folder / file).unlink()
        make(folder / file)
        return reading(folder, command)

    return lay


def asked(*words: str, beside: str = "") -> Lay:
    """A sound trace, and a request with ``{}`` for the folder; ``beside`` is a file there."""

    def lay(folder: Path) -> list[str]:
        trace(folder)
        if beside:
            (folder / beside).write_text("mine")
        return ["gpumon", *(word.format(folder) for word in words)]

    return lay


def zipped(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("t.jsonl", '{"gpumon": 1}\n')


def endless(file: Path) -> None:
    file.touch()
    os.truncate(file, 50 * LONGEST_LINE)


def over_a_folder(folder: Path) -> list[str]:
    trace(folder)
    (folder / "out.png").mkdir()
    return reading(folder, "plot")


WRONG = [
    Case("trace: header is a list", content(b'["gpumon", 1]\n'), "no header line"),
    Case("trace: header has nothing", content(b'{"gpumon": 1}\n'), "header 'version' is no text"),
    Case("trace: header without series", header(series=...), "'series' is no list"),
    Case("trace: interval is text", header(**{"interval (s)": "0.1"}), "'interval .s.' is no"),
    Case("trace: interval is 0", header(**{"interval (s)": 0}), "'interval .s.' is no interval"),
    Case("trace: interval is NaN", header("plot", **{"interval (s)": float("nan")}), "interval"),
    Case("trace: interval is endless", header(**{"interval (s)": float("inf")}), "interval"),
    Case("trace: start is huge", header("export", **{"start (unix s)": 10**400}), "'start .unix"),
    Case("trace: boot is a list", header(boot=[]), "'boot' is no text"),
    Case("trace: rank is text", header(rank="first"), "'rank' is no rank"),
    Case("trace: nvml is missing", header("plot", nvml=...), "'nvml' is no object"),
    Case("trace: devices are text", header(devices=["gpu0"]), r"devices\[0\]: is no"),
    Case("trace: a device twice",
         header(devices=[{"name": "a", "kind": "gpu", "product": "p"}] * 2), "a name comes twice"),
    Case("trace: strange device", device(kind=ESCAPES), r"devices\[0\]: 'kind' is no kind"),
    Case("trace: device without product", device("html", product=None), "'product' is no text"),
    Case("trace: negative memory", device("plot", **{"memory total (MiB)": -1}), "is no amount"),
    Case("trace: a series twice", header(series=[{"key": "a/b"}] * 2), "a key comes twice"),
    Case("trace: series of numbers", header(series=[1, 2]), r"series\[0\]: is no object"),
    Case("trace: too many series",
         header(series=[{"key": f"a/{n}"} for n in range(MOST_SERIES + 1)]), "lists more than"),
    Case("trace: newer version", header(gpumon=99), "format 99.*update gpumon"),
    *[
        Case(f"trace: version {version!r}", header(gpumon=version), "'gpumon' is no trace format")
        for version in (0, -1, True, "1", None, 0.5)
    ],
    Case("trace: deep header", content(b'{"gpumon":1,"x":' + b"[" * 200_000), "no whole line"),
    Case("trace: deep list", content(b"[" * 200_000 + b"]" * 200_000 + b"\n"),
         "no header line"),
    Case("trace: binary", content(bytes(range(256)) * 40, "plot"), "no header line"),
    Case("trace: only zeros", content(bytes(5000)), "no whole line"),
    Case("trace: empty", content(b"", "export"), "holds no whole line"),
    Case("trace: cut in its header", content(b'{"gpumon": 1, "vers'), "holds no whole line"),
    Case("trace: packed", content(gzip.compress(b'{"gpumon": 1}\n' * 99)), "no header|no whole"),
    Case("trace: in a zip", instead(zipped), "no header line|no whole line"),
    Case("trace: a pipe", instead(os.mkfifo), "is not a file that could hold a trace"),
    Case("trace: a folder", instead(Path.mkdir), "cannot read the trace|is not a file"),
    Case("trace: endless", instead(lambda file: file.symlink_to("/dev/zero")), "is not a file"),
    Case("trace: link to itself", instead(lambda file: file.symlink_to(file)), "symbolic links"),
    Case("trace: link to nothing", instead(lambda file: file.symlink_to("nowhere")), "not exist"),
    Case("trace: huge and empty", instead(endless), "lines has no end"),
    Case("trace: marks are a pipe", instead(os.mkfifo, "plot", "t.marks.jsonl"), "is not a file"),
    Case("trace: marks are endless", instead(endless, "html", "t.marks.jsonl"), "lines has no end"),
    Case("trace: not there", asked("summary", "{}/" + ESCAPES), "no trace at .*does not exist"),
    Case("trace: no name", asked("plot", ".jsonl"), "does not exist"),
    Case("trace: with a byte order mark", rewritten(lambda data: b"\xef\xbb\xbf" + data),
         "no header line"),
    Case("trace: of wide characters", rewritten(lambda data: data.decode().encode("utf-16")),
         "no header line"),
    Case("trace: old Macintosh's lines", rewritten(lambda data: data.replace(b"\n", b"\r")),
         "holds no whole line"),
]  # fmt: skip

NO_TEXT: list[Any] = [..., None, 7, [], {}]
NO_MOMENT: list[Any] = [..., None, "1", [], True, 1e16, -(10**30)]
NO_AMOUNT: list[Any] = ["1", [], -0.1, True, 1e300]
NO_COUNT: list[Any] = ["1", [], -1, 0.5, True]
# What each field of a header may not be. It is refused with the field's name.
SPOILT = [
    Case(f"trace: header, {field} is {'gone' if value is ... else repr(value)}",
         header(**{field: value}), f"'{re.escape(field)}' is no ")
    for field, values in {
        **dict.fromkeys(("version", "host", "system", "clock"), NO_TEXT),
        "boot": [7, {}, True],
        "rank": NO_COUNT,
        "interval (s)": [*NO_MOMENT, -0.1, 1e-5],
        "start (monotonic s)": NO_MOMENT,
        "start (unix s)": NO_MOMENT,
        "nvml": NO_TEXT[:4],
        "devices": [..., None, 7, {}],
        "series": [None, 7, {}, "gpu0/power (W)"],
    }.items()
    for value in values
] + [
    Case(f"trace: device, {field} is {'gone' if value is ... else repr(value)}",
         device(**{field: value}), rf"devices\[0\]: '{re.escape(field)}' is no ")
    for field, values in {
        "name": NO_TEXT[1:],
        "kind": [None, 7, [], "GPU"],
        "uuid": [7, []],
        "product": NO_TEXT[1:],
        "cuda": NO_COUNT,
        "memory total (MiB)": NO_AMOUNT,
        "power limit (W)": NO_AMOUNT,
    }.items()
    for value in values
] + [
    Case(f"trace: series[0] is {entry!r}", header(series=[entry]), r"series\[0\]: '\w+' is no ")
    for entry in ({}, {"key": None}, {"key": 7}, {"key": "no owner"},
                  {"key": "gpu0/x", "reason": 7})
]  # fmt: skip

MARK: list[Any] = ["B", 10**12, 7, 9, "x", {}]
NO_NUMBER: list[Any] = [None, "7", -1, 0.5, [], True]
NO_PART_OF_A_MARK: list[list[Any]] = [
    ["C", None, 1, []], [None, "1", -1, 1e25, [], True], NO_NUMBER, NO_NUMBER, [None, 7, "", []],
    [None, [], "x", 7],
]  # fmt: skip
MARKS_SPOILT = [
    [*MARK[:place], value, *MARK[place + 1 :]]
    for place, values in enumerate(NO_PART_OF_A_MARK)
    for value in values
] + [[], ["B"], MARK[:4], MARK[:5], [*MARK, 1], ["E", 1, 7], ["E", 1, 7, 9, 1, 1]]  # fmt: skip

# Damaged lines of an otherwise sound trace: left out, and said.
LEFT_OUT = [
    Case(f"trace: mark {text}", line(text, file=KEEPS[1]), "1 damaged line of t left out", 0, KEEPS)
    for text in map(json.dumps, MARKS_SPOILT)
] + [
    Case(f"trace: {name}", line(text, command), "1 damaged line of t left out", 0, KEEPS)
    for name, text, command in (
        ("sample of text", '[4, 0, "50"]', "summary"),
        ("sample nested deep", "[4, 0, " + "[" * 100_000 + "]" * 100_000 + "]", "plot"),
        ("sample nested", "[4, 0, [[[50]]]]", "export"),
        ("sample at a negative time", "[-1, 0, 50]", "summary"),
        ("sample out of order", "[0.5, 0, 50]", "plot"),
        ("sample at a huge time", f"[{10**400}, 0, 50]", "html"),
        ("sample at an endless time", "[1e999, 0, 50]", "summary"),
        ("sample at no time", "[NaN, 0, 50]", "summary"),
        ("sample of a huge value", "[4, 0, 1e300]", "html"),
        ("sample of an unknown series", "[4, 99, 50]", "summary"),
        ("sample of series -1", "[4, -1, 50]", "export"),
        ("sample of series 0.5", "[4, 0.5, 50]", "summary"),
        ("sample without a value", "[4, 0]", "plot"),
        ("torn line", '[4, 0, 5{"t": 4, "ev', "summary"),
        ("text", '"gpumon"', "summary"),
        ("event of a list", '{"t": 4, "event": ["end"]}', "summary"),
        ("event at no time", '{"t": "now", "event": "end", "why": "x"}', "plot"),
        ("end without a reason", '{"t": 4, "event": "end"}', "html"),
        ("failure of no series", '{"t": 4, "event": "failed", "series": [99], "reason": ""}',
         "summary"),
        ("second header", '{"gpumon": 1}', "summary"),
        ("value that is true", "[4, 0, true]", "summary"),
        ("series that is true", "[4, true, 50]", "plot"),
        ("sample of series 0.0", "[4, 0.0, 50]", "export"),
        ("value of 5000 digits", f"[4, 0, {'9' * 5000}]", "html"),
        ("time of 5000 digits", f"[{'4' * 5000}, 0, 50]", "summary"),
        ("zeros of a power cut", "\0" * 4096, "plot"),
        ("no sample at all", "[]", "summary"),
        ("nothing", "null", "export"),
        ("object without an event", '{"t": 4}', "summary"),
    )
] + [
    Case(f"trace: {name}", line(text, command, KEEPS[1]), "1 damaged line of t left out", 0, KEEPS)
    for name, text, command in (
        ("mark of text", '["B", "1", 7, 9, "x", {}]', "plot"),
        ("mark without a name", '["B", 1, 7, 9, "", {}]', "html"),
        ("mark of lists", '["B", 1, [], {}, [], []]', "summary"),
        ("mark at a negative time", '["E", -1, 7, 9]', "summary"),
        ("mark nested deep", '["B", 1, 7, 9, "x", {"a": ' + "[" * 99 + "]" * 99 + "}]", "plot"),
        ("mark of binary", "\0\1\2", "summary"),
    )
]  # fmt: skip

HARMLESS = [
    Case("trace: values that are no numbers", line("[4, 0, NaN, 1, -Infinity]"), "^$", 0, KEEPS),
    Case("trace: formula in a phase", mark(r"$\frac{$ ^_", "plot"), "^$", 0, KEEPS),
    Case("trace: markup in a phase", mark("</script><b>&'\"", "html"), "^$", 0, KEEPS),
    Case("trace: half a letter in a phase", mark("\ud800", "summary"), "^$", 0, KEEPS),
    Case("trace: escapes in a phase drawn", mark(ESCAPES, "plot"), "^$", 0, KEEPS),
    Case("trace: escapes in the host", header(host=ESCAPES), "^$", 0),
    Case("trace: images that are no number",
         line('["B", 1000000000000, 7, 9, "x", {"items": "many"}]', file=KEEPS[1]), "^$", 0),
    Case("trace: attributes named as columns",
         line('["B", 1000000000000, 7, 9, "x", {"phase": [], "seconds": "s"}]', file=KEEPS[1]),
         "^$", 0),
    Case("trace: end in the far future", line('{"t": 1e14, "event": "end", "why": ""}', "plot"),
         "27777777777:46:36 were not recorded", 0),
    Case("trace: older than time", header("html", **{"start (monotonic s)": -1e14}),
         "were not recorded", 0),
    Case("trace: lines of another system",
         rewritten(lambda data: data.replace(b"\n", b"\r\n"), "plot"), "^$", 0),
    Case("trace: a series twice in a sample", line("[4, 0, 1, 0, 2]", "plot"), "^$", 0, KEEPS),
    Case("trace: no memory and no power", device("plot", **{"memory total (MiB)": 0,
         "power limit (W)": 0}), "^$", 0),
    Case("trace: no devices", header(devices=[]), "^$", 0),
    Case("trace: device named as a path", device("html", name="../../x"), "^$", 0),
    Case("trace: all that is said to be merged", header("export", merged=[7]), "^$", 0),
    Case("trace: lost in the far future",
         line('{"t": 1e14, "event": "device lost", "device": "gpu0", "reason": "x"}', "plot"),
         "GPU 0 was lost at", 0, KEEPS),
    Case("trace: lost three times",
         line("\n".join(['{"t": 2, "event": "device lost", "device": "gpu0", "reason": "x"}'] * 3)),
         "GPU 0 was lost at 2 s", 0, KEEPS),
    Case("trace: phase called as the whole", mark("(all)", "summary"), "^$", 0, KEEPS),
    Case("trace: phase of slashes", mark("a//b/", "html"), "^$", 0, KEEPS),
    Case("trace: phase with an endless name", mark("x" * 100_000, "plot"), "^$", 0, KEEPS),
    Case("trace: phase that ends before it begins",
         line('["E", 1000000000000, 7, 9]\n["B", 1002000000000, 7, 9, "x", {"items": 1e15}]\n'
              '["E", 1001000000000, 7, 9]', "plot", KEEPS[1]), "^$", 0, KEEPS),
    Case("trace: only a header", lambda folder: _cut(folder, 1), "^$", 0),
]  # fmt: skip


def _cut(folder: Path, lines: int) -> list[str]:
    file = write(folder / "t", {"gpu0": [1.0] * 4}).with_name("t.jsonl")
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:lines]))
    return reading(folder, "plot")


REQUESTS = [
    Case("gpumon: picture under a file", asked("plot", "{}/t", "-o", "{}/f/x.png", beside="f"),
         "cannot write .*Not a directory", keeps=(*KEEPS, "f")),
    Case("gpumon: page into no folder", asked("plot", "{}/t", "-o", "{}/no/x.html"),
         "cannot write .*No such file", keeps=KEEPS),
    Case("gpumon: picture over a folder", over_a_folder, "cannot write .*Is a directory",
         keeps=KEEPS),
    Case("gpumon: table under a file", asked("export", "{}/t", "-o", "{}/f/x.csv", beside="f"),
         "cannot write", keeps=(*KEEPS, "f")),
    Case("gpumon: unknown table", asked("export", "{}/t", "-o", "{}/x.xlsx"), "no format 'xlsx'",
         keeps=KEEPS),
    Case("gpumon: unknown picture", asked("plot", "{}/t", "-o", "{}/x.\x1b[2J"), "cannot draw to",
         keeps=KEEPS),
    Case("gpumon: GPU 99", asked("record", "--gpu-ids", "99", "--out", "{}/n", "--", "true"),
         "no GPU '?99'? on this machine", keeps=KEEPS),
    Case("gpumon: interval nan",
         asked("record", "--interval", "nan", "--out", "{}/n", "--", "true"), "seconds between"),
    Case("gpumon: trace under a file", asked("record", "--out", "{}/f/t", "--", "true", beside="f"),
         "the trace cannot be written", keeps=("f",)),
    Case("gpumon: no such program", asked("record", "--out", "{}/n", "--", "no\x1b[2J"),
         "cannot run no", keeps=KEEPS),
    Case("gpumon: nothing to run", asked("record", "--out", "{}/n"), "no command was", keeps=KEEPS),
]  # fmt: skip

CASES = WRONG + SPOILT + LEFT_OUT + HARMLESS + REQUESTS

"""This module is the command line of gpumon."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gpumon import __version__
from gpumon.errors import MonitorError, printable, required_for, warnings_as_lines
from gpumon.trace_files import write_atomically

if TYPE_CHECKING:
    from gpumon.trace import Trace

BROKEN_PIPE = 141
"""Exit code if the reader of the output has ended, as in `… | head`: that of SIGPIPE."""
PICTURES = (".png", ".svg", ".pdf")
Run = Callable[[argparse.Namespace], int | None]
"""Runs a parsed command; returns an exit code other than 0."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise MonitorError(f"{message}; run {self.prog} --help for a list of options")


def parser() -> Parser:
    main = Parser(
        prog="gpumon",
        description="Record what the GPUs and the host do while your program runs, and show it.",
    )
    main.add_argument("--version", action="version", version=f"gpumon {__version__}")
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")

    record = _command(
        commands, "record", _record, "run a command, and record the GPUs and the host while it runs"
    )
    record.usage = "%(prog)s [OPTIONS] -- COMMAND ..."
    record.add_argument(
        "--interval",
        type=float,
        default=0.1,
        metavar="SECONDS",
        help="take a sample every SECONDS seconds, 0.005 to 60 (default: 0.1)",
    )
    record.add_argument(
        "--out", type=Path, metavar="TRACE", help="write the trace to TRACE (default: gpumon-trace)"
    )
    record.add_argument(
        "--gpu-ids",
        metavar="IDS",
        help="record the GPUs with these NVML indices or UUIDs (default: those of the program)",
    )
    record.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND ...",
        help="run this command with its arguments",
    )

    summary = _command(commands, "summary", _summary, "print statistics for each phase and device")
    summary.add_argument(
        "--by",
        choices=["phase", "repeat"],
        default="phase",
        help="print a row for each phase, or for each of its repeats (default: phase)",
    )
    summary.add_argument(
        "--csv", action="store_true", help="print the statistics as CSV (default: as a text table)"
    )

    plot = _command(commands, "plot", _plot, "draw the chart of a trace")
    plot.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="write the chart to FILE: .png, .svg, .pdf or .html (default: TRACE.png)",
    )
    plot.add_argument(
        "--theme",
        choices=["light", "dark"],
        default="light",
        help="draw in light or dark colours (default: light)",
    )
    plot.add_argument(
        "--title", metavar="TEXT", help="write TEXT above the chart (default: no title)"
    )
    plot.add_argument(
        "--series",
        metavar="NAMES",
        help="draw these series too, such as temperature,clocks,PCIe (default: none)",
    )

    export = _command(commands, "export", _export, "write a trace as CSV or a Chrome trace")
    export.add_argument(
        "-o",
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="write to FILE (required): .csv, or .json for Perfetto and Chrome",
    )

    _command(commands, "devices", _devices, "list what gpumon can measure on this machine")
    return main


def _command(commands: Any, name: str, run: Run, text: str) -> argparse.ArgumentParser:
    """Add a command with one sentence for the list of commands and for the command's own help."""
    description = f"{text[0].upper()}{text[1:]}."
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=description)
    command.set_defaults(run=run)
    if run in (_summary, _plot, _export):
        told = "read this trace; merge several traces on one time axis"
        command.add_argument("trace", nargs="+", type=Path, metavar="TRACE", help=told)
    return command


def _read(trace: Any) -> Trace:
    """A trace; prints what is missing in it, whatever else the command shows."""
    with required_for("gpumon"):
        from gpumon.trace import read
        from gpumon.trace_notes import problems

    found = read(trace)
    for note in problems(found.recording):
        print(f"gpumon: {note}", file=sys.stderr)
    return found


def _record(options: argparse.Namespace) -> int:
    from gpumon.launch import rank_info
    from gpumon.monitor import Monitor
    from gpumon.record import default_path, record

    command = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not command:
        raise MonitorError("no command was given: use gpumon record [options] -- COMMAND ...")
    gpu_ids = options.gpu_ids.split(",") if options.gpu_ids else None
    here = rank_info()
    path = options.out or default_path(here)
    code = record(command, Monitor(path, options.interval, gpu_ids), here)
    if not here.rank:
        what = f"'{path}*'" if here.is_distributed else path
        print(f"gpumon: trace in {path}; see it with: gpumon plot {what}", file=sys.stderr)
    return code


def _summary(options: argparse.Namespace) -> None:
    trace = _read(options.trace)
    table = trace.summary(options.by)
    from gpumon.diagnosis import sentences
    from gpumon.summary import table_text

    if options.csv:
        table.to_csv(sys.stdout, index=False, lineterminator="\n")
    else:
        print(*map(printable, table_text(table).split("\n")), sep="\n")
        for sentence in sentences(trace.diagnosis()):
            print(sentence)


def _plot(options: argparse.Namespace) -> None:
    *others, last = options.trace
    if others and not options.out and last.suffix in (*PICTURES, ".html"):
        traces = " ".join(map(str, others))
        raise MonitorError(
            f"{last} is not a trace: to write the chart there, give -o: "
            f"gpumon plot {traces} -o {last}"
        )
    trace = _read(options.trace)
    out = options.out or trace.path.with_name(trace.path.name + ".png")
    series = [name.strip() for name in (options.series or "").split(",") if name.strip()]
    look = {"title": options.title, "theme": options.theme, "series": series}
    kind = out.suffix.lower()
    if kind not in (*PICTURES, ".html"):
        raise MonitorError(f"cannot draw to {out}: use .png, .svg, .pdf or .html")
    data = io.BytesIO()
    if kind == ".html":
        data.write(trace.html(**look).encode())
    else:
        trace.plot(**look).savefig(data, format=kind[1:], dpi=150)
    write_atomically(out, lambda file: file.write_bytes(data.getvalue()))
    print(out)


def _export(options: argparse.Namespace) -> None:
    print(_read(options.trace).export(options.out))


def _devices(_: argparse.Namespace) -> None:
    from gpumon.sampler import capabilities, describe

    print(describe(capabilities()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; user errors are one line on standard error and exit code 2."""
    try:
        try:
            with warnings_as_lines():
                options = parser().parse_args(arguments)
                return options.run(options) or 0
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except MonitorError as error:
        print(f"gpumon: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gpumon: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()  # the reader (head, less) has seen enough
        return BROKEN_PIPE
    except OSError as error:
        _drop_output()
        where = error.filename or "standard output"
        print(f"gpumon: cannot write to {where}: {error.strerror}", file=sys.stderr)
        return 2


def _drop_output() -> None:
    """Discard further output, so that Python prints no error for it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())

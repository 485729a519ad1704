"""The command: gpumon record, watch, summary, plot, compare, merge, export, serve, devices."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon import __version__
from gpumon.atomic_write import write_whole
from gpumon.errors import MonitorError, needed_for, warnings_as_lines

if TYPE_CHECKING:
    from gpumon.trace import Trace

READER_GONE = 141
"""Exit code where the program that reads the output has ended, as of `… | head`: SIGPIPE's."""


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(
        prog="gpumon", description="What the GPUs and the host do, lined up with your program."
    )
    main.add_argument("--version", action="version", version=f"gpumon {__version__}")
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")

    record = commands.add_parser("record", help="run a command under the monitor")
    record.add_argument("--interval", type=float, default=0.1, help="seconds (default: 0.1)")
    record.add_argument("--out", type=Path, help="the trace (default: gpumon-trace)")
    record.add_argument("--gpus", help="NVML indices or UUIDs, with commas (default: visible ones)")
    limit = record.add_argument("--limit", type=float, metavar="MB")
    limit.help = "of packed samples to keep: beyond, the oldest are dropped, and their means stay"
    record.add_argument("program", nargs=argparse.REMAINDER, metavar="-- command ...")

    watch = commands.add_parser("watch", help="follow a trace, or this machine, in the terminal")
    watch.add_argument("trace", nargs="?", type=Path, help="default: this machine, from now on")
    watch.add_argument("--once", action="store_true", help="print one picture and stop")

    summary = commands.add_parser("summary", help="figures per phase and device")
    summary.add_argument("trace", nargs="+", type=Path)
    by = summary.add_argument("--by", choices=["phase", "mark"], default="phase")
    by.help = "a row for each phase (default), or for each time that one was run"
    idle = summary.add_argument("--idle-below", type=float, default=5.0, metavar="PERCENT")
    idle.help = "of utilisation; the idle share is the time below (default: 5)"
    summary.add_argument("--csv", action="store_true", help="as CSV")
    summary.add_argument("--provenance", action="store_true", help="how it was measured, as JSON")

    plot = commands.add_parser("plot", help="draw a trace")
    plot.add_argument("trace", nargs="+", type=Path)
    compare = commands.add_parser("compare", help="what changed between runs, and their chart")
    compare.add_argument("trace", nargs="+", metavar="NAME=TRACE")
    compare.add_argument("--align", metavar="PHASE", help="its first start becomes time 0")
    for each in (plot, compare):
        each.add_argument("-o", "--out", type=Path, help=".png, .svg or .pdf; plot also .html")
        each.add_argument("--theme", choices=["light", "dark"], default="light")
        each.add_argument("--title")

    plot.add_argument(
        "--series", help="what else to draw, with commas: temperature,clocks,PCIe,..."
    )

    merge = commands.add_parser("merge", help="traces of ranks and hosts as one, on one time axis")
    merge.add_argument("trace", nargs="+", type=Path)
    merge.add_argument("-o", "--out", type=Path, required=True, help="the new trace")

    export = commands.add_parser("export", help="write a trace for other tools")
    export.add_argument("trace", nargs="+", type=Path)
    export.add_argument(
        "-o", "--out", type=Path, required=True, help="a .csv, .parquet, .prom or .json"
    )
    export.add_argument(
        "--with",
        type=Path,
        dest="beside",
        metavar="PROFILE",
        help="of torch.profiler, into a .json",
    )

    serve = commands.add_parser("serve", help="the latest values over HTTP, for Prometheus")
    serve.add_argument("trace", nargs="?", type=Path, help="default: this machine, from now on")
    serve.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    serve.add_argument("--port", type=int, default=9401, help="default: 9401")

    devices = commands.add_parser("devices", help="what this machine can measure, and why not more")
    devices.add_argument("--json", action="store_true", help="as JSON")
    return main


def run(options: argparse.Namespace) -> int:
    """Carry out a parsed command; gives the exit code."""
    if options.command == "record":
        return _record(options)
    if options.command == "devices":
        from gpumon.capabilities import capabilities, describe

        found = capabilities()
        print(json.dumps(found, indent=1) if options.json else describe(found))
        return 0
    if options.command == "watch":
        return _watch(options)
    if options.command == "serve":
        return _serve(options)
    if options.command == "compare":
        return _compare(options)
    if options.command == "merge":
        return _merge(options)
    from gpumon.diagnosis import sentences
    from gpumon.summary import summarize
    from gpumon.tables import text, write_csv
    from gpumon.trace import read

    trace = read(options.trace)
    _tell(trace)
    if options.command == "summary":
        if options.provenance:
            print(json.dumps(trace.provenance(), indent=1))
            return 0
        columns, rows = summarize(trace.recording, options.by, options.idle_below)
        if options.csv:
            write_csv(sys.stdout, columns, rows)
        else:
            print(text(columns, rows))
            for sentence in sentences(trace.diagnosis()):
                print(sentence)
    elif options.command == "export":
        print(trace.export(options.out, beside=options.beside))
    else:
        out = options.out or trace.path.with_name(trace.path.name + ".png")
        series = [name.strip() for name in (options.series or "").split(",") if name.strip()]
        if out.suffix == ".html":
            _write(
                out, trace.html(title=options.title, theme=options.theme, series=series).encode()
            )
        else:
            _save(trace.plot(theme=options.theme, title=options.title, series=series), out)
    return 0


def _tell(trace: Trace) -> None:
    """What is missing in a trace, beside whatever the command shows of it."""
    from gpumon.trace_notes import losses

    for note in losses(trace.recording):
        print(f"gpumon: {note}", file=sys.stderr)


def _record(options: argparse.Namespace) -> int:
    from gpumon.launch import place
    from gpumon.monitor import Monitor
    from gpumon.record import default_path, record

    command = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not command:
        raise MonitorError("nothing to run: gpumon record [options] -- command ...")
    gpus = options.gpus.split(",") if options.gpus else None
    here = place()
    path = options.out or default_path(here)
    code = record(command, Monitor(path, options.interval, gpus, limit=options.limit), here)
    if not here.rank:
        what = f"'{path}*'" if here.is_of_many else path
        print(f"gpumon: trace in {path}; see it with: gpumon plot {what}", file=sys.stderr)
    return code


def _merge(options: argparse.Namespace) -> int:
    from gpumon.merge import save
    from gpumon.trace import read

    trace = read(options.trace)
    _tell(trace)
    print(save(trace.recording, options.out))
    return 0


def _watch(options: argparse.Namespace) -> int:
    from gpumon.monitor import Monitor
    from gpumon.trace_files import prefix_of
    from gpumon.watch import watch

    if options.trace is not None:
        watch(prefix_of(options.trace), once=options.once)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        with Monitor(Path(folder) / "trace", interval=0.25).of_everybody() as monitor:
            if options.once:
                time.sleep(1.3)  # until the slowest series has a value
            watch(monitor.path, once=options.once)
    return 0


def _serve(options: argparse.Namespace) -> int:
    from gpumon.monitor import Monitor
    from gpumon.serve import server
    from gpumon.trace_files import prefix_of

    with contextlib.ExitStack() as stack:
        if options.trace is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            machine = Monitor(Path(folder) / "trace", interval=1.0)
            prefix = stack.enter_context(machine.of_everybody()).path
        else:
            prefix = prefix_of(options.trace)
        serving = stack.enter_context(server(prefix, options.host, options.port))
        where = f"http://{options.host}:{serving.server_address[1]}/metrics"
        print(f"gpumon: serving {where}; end with Ctrl-C", file=sys.stderr, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            serving.serve_forever()
    return 0


def _compare(options: argparse.Namespace) -> int:
    from gpumon.trace import read
    from gpumon.trace_comparison import describe

    traces: dict[str, Trace] = {}
    for text in options.trace:
        name, equals, path = text.rpartition("=")
        name = name if equals else _name_of(path, options.trace)
        if name in traces:
            raise MonitorError(f"two traces would be called {name}: give each a name, NAME=TRACE")
        traces[name] = read(path)
        _tell(traces[name])
    drawn = _compared(options, traces)
    (first, before), *others = traces.items()
    for number, (name, after) in enumerate(others):
        print("\n" * (number > 0) + "\n".join(describe(before, after, (first, name))))
    if drawn is not None:
        _save(drawn, options.out or Path("gpumon-compare.png"))
    return 0


def _name_of(path: str, among: Sequence[str]) -> str:
    """A trace without a name is called after its folder, or itself where it shares that."""
    folder = Path(path).parent
    alike = sum(Path(other.rpartition("=")[2]).parent == folder for other in among) > 1
    return Path(path).name if alike else folder.name or path


def _compared(options: argparse.Namespace, traces: dict[str, Trace]) -> object | None:
    """The chart; None where it cannot be drawn here and was not asked for by name."""
    try:
        with needed_for("gpumon compare"):
            from gpumon.drawing.comparison import compare
    except MonitorError as error:
        if options.out or options.align or len(traces) < 2:
            raise
        print(f"gpumon: no chart: {error}", file=sys.stderr)
        return None
    return compare(traces, theme=options.theme, title=options.title, align=options.align)


def _save(figure: object, out: Path) -> None:
    import io

    kind = out.suffix.lstrip(".").lower()
    if kind not in ("png", "svg", "pdf"):
        raise MonitorError(f"cannot draw to {out}: use .png, .svg or .pdf (gpumon plot: or .html)")
    data = io.BytesIO()
    figure.savefig(data, format=kind, dpi=150)  # type: ignore[attr-defined]
    _write(out, data.getvalue())


def _write(out: Path, data: bytes) -> None:
    write_whole(out, lambda file: file.write_bytes(data))
    print(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; user errors are one line on standard error and exit code 2."""
    try:
        try:
            with warnings_as_lines():
                code = run(parser().parse_args(arguments))
        except SystemExit:  # argparse's, once it has printed the help
            _flush()
            raise
        _flush()
        return code
    except MonitorError as error:
        print(f"gpumon: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gpumon: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()  # the reader (head, less) has seen enough
        return READER_GONE
    except OSError as error:
        _drop_output()
        where = error.filename or "standard output"
        print(f"gpumon: cannot write to {where}: {error.strerror}", file=sys.stderr)
        return 2


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _drop_output() -> None:
    """Keep Python from complaining at exit of what it could not print."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())

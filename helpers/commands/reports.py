"""``rosetta report``, ``diff``, ``export`` and ``open``: report and compare experiments."""

import argparse
import webbrowser
from pathlib import Path

from helpers.commands.parser import Commands, Parser, command, options
from helpers.errors import UserError
from helpers.record import FILE
from helpers.runner.experiments import LATEST
from helpers.terminal import say

NAME = "an experiment under runs/, or its folder"


def add(commands: Commands) -> None:
    report = command(
        commands,
        "report",
        help="write one report on one or several experiments (default: the last)",
        epilog="""\
examples:
  rosetta report                            write the last experiment's report again
  rosetta report before after --out both    combine two experiments in one report
  rosetta report --results docs/results     list the records of all machines below a folder
""",
    )
    several = f"{NAME}; several names give one report (default: the last experiment)"
    report.add_argument("names", nargs="*", metavar="NAME", default=[LATEST], help=several)
    table = {
        "--out FOLDER": "write the report to FOLDER (default: the first experiment's folder)",
        "--json": "print all numbers as JSON instead of writing a report",
        "--results": "write the results page instead: a row for each machine and framework, from "
        "every record in these folders and below them (default: one report)",
    }
    options(report, table, FOLDER=Path)
    report.set_defaults(run=_report)
    diff = command(
        commands,
        "diff",
        help="show which results changed from OLD to NEW (default: the last experiment)",
        epilog="""\
example:
  rosetta diff before after      compare two experiments, without starting a run

Exit codes: 0 no result changed; 1 a result changed by more than the spread of the repeats; 2 the
experiments cannot be compared.
""",
    )
    diff.add_argument("old", metavar="OLD", help=NAME)
    _add_last(diff, "new").set_defaults(run=_diff)
    to = command(
        commands,
        "export",
        help="write an experiment's runs for another program (default: the last)",
        epilog="""\
examples:
  rosetta export --to tensorboard           write event files into the last experiment's folder
  rosetta export overnight --to wandb --out wandb-runs
                                            write offline runs, for wandb sync to upload

Nothing is sent over a network. Each target needs its own package in the environment lab.
""",
    )
    _add_last(to, "name").set_defaults(run=_export)
    to.add_argument(
        "--to",
        required=True,
        choices=["wandb", "mlflow", "tensorboard", "mllog"],
        help="write for Weights & Biases, MLflow or TensorBoard, or as MLPerf log lines (required)",
    )
    out = "write to FOLDER (default: export-TARGET in the experiment's folder)"
    options(to, {"--out FOLDER": out}, FOLDER=Path)
    opens = "open an experiment's report in a browser (default: the last)"
    _add_last(command(commands, "open", help=opens), "name").set_defaults(run=_open)


def _add_last(parser: Parser, name: str) -> Parser:
    """Take the name of an experiment, by default the last."""
    text = f"{NAME} (default: the last experiment)"
    parser.add_argument(name, nargs="?", default=LATEST, metavar=name.upper(), help=text)
    return parser


def _export(given: argparse.Namespace) -> int:
    from helpers.results import export  # with pandas

    folder, runs = export.write(given.name, given.to, given.out)
    say(f"{folder}: {runs} run{'s' * (runs != 1)} for {given.to}")
    return 0


def _report(given: argparse.Namespace) -> int:
    if given.json and given.out:
        raise UserError("--json writes no file, so --out has no effect; give one of them")
    if given.results:
        return _results(given)
    from helpers.results import comparison, report  # with Jinja and the charts

    for name in given.names:
        comparison.must_exist(comparison.folder_of(name))

    if given.json:
        print(report.as_json(report.load(given.names)))
    else:
        page = report.write(given.names, given.out)
        say(f"{page}\nOpen it with: rosetta open {given.out or given.names[0]}")
    return 0


def _results(given: argparse.Namespace) -> int:
    if given.json:
        raise UserError("--results lists records, without --json; leave it out")
    from helpers.results import comparison
    from helpers.results.report import results_page

    collected = results_page.collect(given.names)
    for line in collected.left_out:
        say(f"left out: {line}", error=True)
    folder = given.out or comparison.folder_of(given.names[0])
    say(f"{results_page.write(collected, folder)}\n{collected.headline}")
    return 0


def _diff(given: argparse.Namespace) -> int:
    from helpers.results import regression  # with pandas

    return regression.check(given.old, given.new)


def _open(given: argparse.Namespace) -> int:
    from helpers.results import comparison, report

    folder = comparison.folder_of(given.name).resolve()
    comparison.must_exist(folder)
    page = folder / report.HTML
    since = page.stat().st_mtime if page.is_file() else None
    if since is None or any(path.stat().st_mtime > since for path in folder.glob(f"*/{FILE}")):
        report.write(folder)  # with the runs that have ended since
    say(page)
    if not webbrowser.open(page.as_uri()):
        raise UserError("no browser was found on this machine: copy the file above, and open it")
    return 0

"""Print the pages of the site that code makes: Markdown, and the page of results as HTML.

    .venvs/lab/bin/python tools/reference_pages.py commands
    .venvs/lab/bin/python tools/reference_pages.py python-api
    .venvs/lab/bin/python tools/reference_pages.py results

Reads the argument parsers, the docstrings and docs/results, so it needs the packages of the
environment lab.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import data_prep
import gpumon
from data_prep import __main__ as data_prep_command
from gpumon import __main__ as gpumon_command
from helpers import __main__ as rosetta_command
from helpers import paths
from helpers.results.report import results_page


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Those of all commands, and of their subcommands."""
    found = [rosetta_command.build()[0], data_prep_command.parser(), gpumon_command.parser()]
    while found:
        yield (parser := found.pop(0))
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found[:0] = action.choices.values()


def commands() -> str:
    """The ``--help`` of all commands and subcommands."""
    os.environ["COLUMNS"] = "100"
    return "\n".join(f"## {each.prog}\n\n{block(each.format_help())}" for each in parsers())


def python_api() -> str:
    """The public names of each module with their signatures and docstrings."""
    parts = []
    for module in (gpumon, data_prep):
        parts += [f"## {module.__name__}\n", block(inspect.getdoc(module))]
        for name in sorted(module.__all__, key=str.lower):
            found = getattr(module, name)
            if not callable(found):
                parts += [f"### {module.__name__}.{name}\n", block(repr(found))]
                continue
            parts += [f"### {module.__name__}.{name}\n", described(name, found)]
            if inspect.isclass(found):
                parts += [
                    f"#### {name}.{member}\n\n{described(member, getattr(found, member))}"
                    for member, value in vars(found).items()
                    if not member.startswith("_") and inspect.getdoc(value)
                ]
    return "\n".join(parts)


def described(name: str, found: Any) -> str:
    try:
        signature = str(inspect.signature(found)).replace("'", "")
    except (TypeError, ValueError):  # a property, or a class of C
        signature = ""
    return block(f"{name}{signature}\n\n{inspect.getdoc(found) or ''}")


def block(text: str | None) -> str:
    return f"```text\n{(text or '').strip()}\n```\n"


def results() -> str:
    """The results page of docs/results."""
    folder = paths.ROOT / "docs" / "results"
    return results_page.render(results_page.collect([folder]), folder)


PAGES = {"commands": commands, "python-api": python_api, "results": results}

if __name__ == "__main__":
    print(PAGES[sys.argv[1]]())

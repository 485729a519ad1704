"""The reference pages name every command, option and public name, with its text."""

import argparse
from collections.abc import Iterator

import reference_pages

import data_prep
import gpumon
from data_prep import command_line
from gpumon import __main__ as gpumon_command
from helpers import __main__ as rosetta_command


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subcommand in action.choices.values():
                yield from parsers(subcommand)


def test_every_command_and_option_is_listed() -> None:
    page = reference_pages.commands()
    tops = (rosetta_command.build()[0], command_line.parser(), gpumon_command.parser())
    every = [parser for top in tops for parser in parsers(top)]
    assert len(every) > 20
    for parser in every:
        heading = f"# {parser.prog}\n"
        assert page.count(heading) == 1
        section = page.split(heading)[1].split("\n#")[0]
        options = [o for a in parser._actions if a.help != argparse.SUPPRESS
                   for o in a.option_strings if o not in ("-h", "--help")]  # fmt: skip
        assert [option for option in options if option not in section] == []


def test_every_public_name_has_its_text() -> None:
    page = reference_pages.python_api()
    for module in (gpumon, data_prep):
        for name in module.__all__:
            assert f"### {module.__name__}.{name}\n" in page
    assert "#### Trace.summary\n" in page and "**Raises**" in page
    assert ":meth:" not in page and ":class:" not in page

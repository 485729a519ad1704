"""The reference pages name every command, option and public name, with its text."""

import argparse
from collections.abc import Iterator

import reference_pages

import data_prep
import gpumon
from data_prep import command_line
from gpumon import __main__ as gpumon_command
from helpers import __main__ as rosetta_command
from helpers import paths


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


def test_defaults_and_choices_are_given() -> None:
    parser = argparse.ArgumentParser(prog="toy")
    parser.add_argument("--size", type=int, default=7, help="the size")
    parser.add_argument("--way", choices=["a|b", "c"], metavar="WAY", help="the <way>")
    page = "\n".join(reference_pages._of_parser(parser, 2))
    assert "| `--size SIZE` | the size (default: 7) |" in page
    assert "| `--way WAY` | the \\<way\\>; one of a\\|b, c |" in page


def test_every_public_name_has_its_text() -> None:
    page = reference_pages.python_api()
    for module in (gpumon, data_prep):
        for name in module.__all__:
            assert f"### {module.__name__}.{name}\n" in page
    assert "#### Trace.summary\n" in page and "**Raises**" in page
    assert ":meth:" not in page and ":class:" not in page


def test_the_pages_have_a_place_for_them() -> None:
    for name in reference_pages.PAGES:
        page = (paths.ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert page.endswith(f"\n<!-- generated: {name} -->\n")

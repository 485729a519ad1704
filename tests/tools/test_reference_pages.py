"""The reference pages name every command, option and public name, with its text."""

import argparse

import reference_pages

import data_prep
import gpumon


def test_every_command_and_option_is_listed() -> None:
    page = reference_pages.commands()
    every = list(reference_pages.parsers())
    assert len(every) > 15
    for parser in every:
        heading = f"# {parser.prog}\n"
        assert page.count(heading) == 1
        section = page.split(heading)[1].split("\n#")[0]
        options = [o for a in parser._actions if a.help != argparse.SUPPRESS
                   for o in a.option_strings]  # fmt: skip
        assert [option for option in options if option not in section] == []


def test_every_public_name_has_its_text() -> None:
    page = reference_pages.python_api()
    for module in (gpumon, data_prep):
        for name in module.__all__:
            assert f"### {module.__name__}.{name}\n" in page
    assert "#### Trace.summary\n" in page and "Raises:" in page

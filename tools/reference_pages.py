"""Print the pages of the site that code makes: Markdown, and the page of results as HTML.

    .venvs/lab/bin/python tools/reference_pages.py commands
    .venvs/lab/bin/python tools/reference_pages.py python-api
    .venvs/lab/bin/python tools/reference_pages.py results

Reads the argument parsers, the docstrings and docs/results, so it needs the packages of the
environment lab.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

MODULES = ("gpumon", "data_prep")
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")
HEAD = re.compile(rf"^({'|'.join(SECTIONS)}):$")
ENTRY = re.compile(r"^(?: {4})(\**\w[\w.*, ]*?)(?: \([^)]*\))?: +(.*)$")
ROLE = re.compile(r":\w+:`")


def commands() -> str:
    """All commands with their subcommands, options and defaults."""
    from data_prep import command_line
    from gpumon import __main__ as gpumon_command
    from helpers import __main__ as rosetta_command

    parsers = (rosetta_command.build()[0], command_line.parser(), gpumon_command.parser())
    return "\n".join(part for parser in parsers for part in _of_parser(parser, 2))


def python_api() -> str:
    """The public names of each module with their signatures and docstrings."""
    return "\n".join(part for name in MODULES for part in _of_module(name))


def results() -> str:
    """The results page of docs/results."""
    from helpers import paths
    from helpers.results.report import results_page

    folder = paths.ROOT / "docs" / "results"
    return results_page.render(results_page.collect([folder]), folder)


def _of_parser(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}\n"
    if parser.description:
        yield f"{_plain(' '.join(parser.description.split()))}\n"
    yield f"```text\n{_usage(parser)}\n```\n"
    subcommands: dict[str, argparse.ArgumentParser] = {}
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            subcommands.update(action.choices)
        elif action.help is not argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
            rows.append(f"| {_invocation(parser, action)} | {_help(parser, action)} |")
    if rows:
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) + "\n"
    if parser.epilog:
        yield f"```text\n{parser.epilog.strip()}\n```\n"
    for subcommand in subcommands.values():
        yield from _of_parser(subcommand, level + 1)


def _usage(parser: argparse.ArgumentParser) -> str:
    """The usage without the list of options, which the table has."""
    positional = [a for a in parser._actions if not a.option_strings]
    formatter = parser._get_formatter()
    words = [parser.prog, "[options]"]
    for action in positional:
        default = formatter._get_default_metavar_for_positional(action)
        words.append(formatter._format_args(action, default))
    return " ".join(words)


def _invocation(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    text = formatter._format_action_invocation(action)
    return f"`{text}`".replace("|", "\\|")


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    if action.choices and action.metavar and not any(str(c) in text for c in action.choices):
        text += f"; one of {', '.join(map(str, action.choices))}"
    silent = (None, False, argparse.SUPPRESS)
    if action.option_strings and action.default not in silent and "default" not in text:
        text += f" (default: {action.default})"
    return _plain(" ".join(text.split())).replace("|", "\\|")


def _plain(text: str) -> str:
    """Text as Markdown shows it, without tags or emphasis."""
    return re.sub(r"([<>*_\[\]`#])", r"\\\1", text)


def _of_module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield f"## {name}\n"
    yield f"{_docstring(module)}\n"
    for public in _public(module):
        found = getattr(module, public)
        if inspect.isclass(found):
            yield from _of_class(name, public, found)
        elif callable(found):
            yield from _of_function(f"{name}.{public}", found, 3)
        else:
            yield f"### {name}.{public}\n\n`{found!r}`\n"


def _public(module: Any) -> list[str]:
    named = getattr(module, "__all__", None)
    if named is not None:
        return sorted(named, key=str.lower)
    return [
        name
        for name, found in vars(module).items()
        if not name.startswith("_") and getattr(found, "__module__", "") == module.__name__
    ]


def _of_class(module: str, name: str, found: type) -> Iterator[str]:
    yield from _of_function(f"{module}.{name}", found, 3)
    for member, value in vars(found).items():
        if member.startswith("_") or not inspect.getdoc(value):
            continue
        if isinstance(value, property):
            yield f"#### {name}.{member}\n\n{_docstring(value)}\n"
        elif isinstance(value, classmethod | staticmethod):
            yield from _of_function(f"{name}.{member}", value.__func__, 4)
        elif inspect.isfunction(value):
            yield from _of_function(f"{name}.{member}", value, 4)


def _of_function(name: str, found: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    try:
        signature = inspect.signature(found)
    except ValueError:
        signature = None
    if signature and not (inspect.isclass(found) and issubclass(found, Exception)):
        parameters = [
            p.replace(annotation=_bare(p.annotation))
            for p in signature.parameters.values()
            if p.name not in ("self", "cls")
        ]
        returned = "" if inspect.isclass(found) else signature.return_annotation
        shown = signature.replace(parameters=parameters, return_annotation=_bare(returned))
        yield f"```python\n{_call(name, shown)}\n```\n"
    yield f"{_docstring(found)}\n"


class _Bare(str):
    """An annotation that a signature shows without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


def _bare(annotation: Any) -> Any:
    if annotation in ("", inspect.Parameter.empty):
        return inspect.Parameter.empty
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _call(name: str, signature: inspect.Signature) -> str:
    """The call as code, with one argument a line if it is long."""
    short = f"{name}{signature}"
    if len(short) <= 88:
        return short
    lines, star = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            lines.append("    *,")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        lines.append(f"    {parameter},")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            lines.append("    /,")
    returned = signature.return_annotation
    end = ")" if returned is inspect.Signature.empty else f") -> {returned}"
    return "\n".join([f"{name}(", *lines, end])


def _docstring(found: Any) -> str:
    """A docstring of Google's style as Markdown; its sections become lists."""
    text = ROLE.sub("`", inspect.getdoc(found) or "")
    out, section = [], False
    for line in text.splitlines():
        if head := HEAD.match(line):
            section = True
            out.append(f"\n**{head[1]}**\n")
        elif section and (entry := ENTRY.match(line)):
            out.append(f"- `{entry[1]}`: {entry[2]}")
        elif section and line.startswith("    "):
            out.append(f"  {line.strip()}" if line.startswith(" " * 6) else line.strip())
        else:
            section = section and not line
            out.append(line)
    text = re.sub(r"``([^`]+)``", r"`\1`", "\n".join(out))
    return re.sub(r"\n{3,}", "\n\n", _prompts(text)).strip()


def _prompts(text: str) -> str:
    """The text with its `>>>` examples in blocks of code."""
    return re.sub(
        r"(?:^(?:>>>|\.\.\.) .*$\n?)+",
        lambda found: f"\n```python\n{found[0].rstrip()}\n```\n",
        text,
        flags=re.M,
    )


PAGES = {"commands": commands, "python-api": python_api}


if __name__ == "__main__":
    print((PAGES | {"results": results})[sys.argv[1]]())

#!/usr/bin/env python3
"""Checks that public text is plain English, and prints a better example for each broken rule.

python3 tools/prose_check.py             all pages, notebooks, messages, help and report texts
python3 tools/prose_check.py FILE...     these files (.md, .ipynb, .py)

Exit code 1 means that a rule is broken. Code blocks, code spans and link targets are left out.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import error_messages
import prose_words

LONGEST = 30  # words a sentence
SHORTEST = 6  # words of a report's string
REPORT = ("helpers", "results")
PUBLIC = (
    *("*.md", "notebooks/*.ipynb", "helpers/*.py", "data_prep/*.py", "gpumon/*.py"),
    *("environments/*.py", "tools/*.py", "benchmarks/*.py"),
)
LEFT_OUT = ("docs/results/",)  # as they were when they ran

LONG = "split it, or list its conditions"
BRACKETS = 'give the second remark a sentence: "It took 5 s (single run). The cache was warm."'

ABBREVIATIONS = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|Fig|St|al|resp)|\b[A-Z])\.$")
END = re.compile(r"[.!?]+[\"'”’)*_]*(?=\s+[\"'“(*_\[]*[A-Z0-9‹…])|[.!?][\"'”’)*_]*$")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ x]\] )?")
FIGURES = re.compile(
    r"(?:[\d\s.,:%×±+–-]|\b(?:to|of|s|ms|min|h|[KMGT]i?B|px|W|J|M?Hz|bits)\b)*"  # and their units
)
HELP = ("help", "description", "epilog")
HIDDEN = (
    (re.compile(r"<!--.*?-->", re.S), ""),
    (re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S), "‹code›"),
    (re.compile(r"\$\$.+?\$\$|\$(?=\S)[^$\n]+?(?<=\S)\$(?!\d)", re.S), "‹formula›"),
    (re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^()]*(?:\([^()]*\))?\)"), None),
    (re.compile(r"!?\[([^\[\]]+)\]\[[^\]]*\]"), None),
    (re.compile(r"<https?://[^>]+>|https?://\S+"), "‹address›"),
    (re.compile(r"</?[a-z][^>]*>|\{[:.#][^}]*\}"), ""),
)  # fmt: skip


class Block(NamedTuple):
    line: int
    text: str
    kind: str = "text"  # or "heading", "cell" of a table, "message" of a program


def visible(text: str) -> str:
    """The words that a reader sees, with as many lines as before."""
    for pattern, instead in HIDDEN:
        for _ in range(2):  # a picture within a link
            text = pattern.sub(
                lambda m: m[1] if instead is None else instead + "\n" * m[0].count("\n"),  # noqa: B023
                text,
            )
    return text


def markdown(content: str, first: int = 1) -> Iterator[Block]:
    """The paragraphs, list items, headings and table cells of a page."""
    content = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), content, flags=re.S)
    block: list[str] = []
    begin, fence, nested, blank, front = first, "", False, True, content.startswith("---\n")
    for number, line in enumerate([*content.splitlines(), ""], start=first):
        bare = re.sub(r"^\s*(?:>\s?)+", "", line)
        ticks = re.match(r"\s*(```+|~~~+|---$)", bare)
        within = fence or (front and number > first)
        nested = nested if not bare.strip() or bare[0] == " " else False
        is_code = blank and not nested and not block and line.startswith("    ")
        is_block = re.match(r"(\s*$|#+ |\s*\||!!!|\?\?\?|\[[^\]]+\]: |</?\w+[^>]*>$)", bare)
        if block and (ticks or is_block or ITEM.match(bare) or within):
            yield Block(begin, "\n".join(block))
            block = []
        if front and number > first:
            front = bare != "---"
        elif ticks and (not fence or bare.strip() == fence):
            fence = "" if fence or ticks[1] == "---" else ticks[1]
        elif fence or is_code:
            pass
        elif re.match(r"#+ ", bare):
            yield Block(number, bare.lstrip("# "), "heading")
        elif bare.lstrip().startswith("|") and not re.fullmatch(r"[\s|:-]+", bare):
            for cell in re.split(r"(?<!\\)\|", visible(bare.strip())[1:].removesuffix("|")):
                yield Block(number, cell.strip(), "cell")
        elif title := re.match(r"(?:!!!|\?\?\?\+?) \w+(?: \"(.*)\")?", bare):
            yield Block(number, title[1] or "", "heading")
            nested = True
        elif not is_block:
            nested = nested or bool(ITEM.match(bare))
            begin = begin if block else number
            block.append(bare if block else ITEM.sub("", bare, count=1))
        blank = not line.strip()
    if block:
        yield Block(begin, "\n".join(block))


def strings(node: ast.AST, part: bool = False) -> Iterator[tuple[str, int]]:
    """Each string within a node that is no docstring, with its line; ``part``: of a longer one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    whole = error_messages.text(node) if isinstance(node, ast.expr) else ""
    if whole.strip("…") and not part:
        yield whole, getattr(node, "lineno", 0)
    for each in ast.iter_child_nodes(node):
        yield from strings(each, bool(whole.strip("…")))


def program(path: Path) -> Iterator[Block]:
    """The messages and help texts of a module, and the sentences of a report."""
    source = path.read_text(encoding="utf-8")
    of_report = REPORT in zip(path.parts, path.parts[1:], strict=False)
    # Most modules have neither a report's sentences nor help: they need not be parsed.
    module = ast.parse(source if of_report or any(f"{key}=" in source for key in HELP) else "")
    found = list(error_messages.in_module(path))
    if of_report:
        found += [each for each in strings(module) if len(each[0].split()) >= SHORTEST]
    for text, line in dict.fromkeys(found):
        yield Block(line, text, "message")
    for node in ast.walk(module):
        if isinstance(node, ast.keyword) and node.arg in HELP:
            for part in re.split(r"\n\s*\n|\n(?= )", error_messages.text(node.value)):
                yield Block(node.value.lineno, part, "message")


def blocks(path: Path) -> Iterator[tuple[str, Block]]:
    if path.suffix == ".py":
        yield from ((str(path), block) for block in program(path))
    elif path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
            if cell["cell_type"] == "markdown":
                found = markdown("".join(cell["source"]))
                yield from ((f"{path}:cell {number}", block) for block in found)
    else:
        yield from ((str(path), block) for block in markdown(path.read_text(encoding="utf-8")))


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Each sentence and on which line of the text it begins."""
    begin = 0
    for end in END.finditer(text):
        if not ABBREVIATIONS.search(text[begin : end.start() + 1]):
            yield text[:begin].count("\n"), text[begin : end.end()]
            begin = end.end() + len(text[end.end() :]) - len(text[end.end() :].lstrip())
    if text[begin:].strip():
        yield text[:begin].count("\n"), text[begin:]


def broken(block: Block) -> Iterator[tuple[int, str, str]]:
    """The line, the rule with the words that break it, and an example of better text."""
    for offset, raw in sentences(visible(block.text)):
        line, text = block.line + offset, " ".join(re.sub(r"\*+|\b_+|_+\b", "", raw).split())
        for match in prose_words.ANY.finditer(text):
            yield line, f'word "{match[0]}"', f"write: {prose_words.better(match[0])}"
        if block.kind != "heading" and not text.endswith("?"):
            for opening, better in prose_words.OPENINGS.items():
                if re.match(opening, text, re.I if block.kind == "message" else 0):
                    yield line, f'opening "{text[:50]}"', better
        words = [word for word in text.split() if re.search(r"\w", word)]
        if len(words) > LONGEST:
            yield line, f'{len(words)} words in "{text[:50]}…"', LONG
        pairs = re.findall(r"(?<!\w)\(([^()]*)\)", text)
        figures = [pair for pair in pairs if block.kind == "cell" and FIGURES.fullmatch(pair)]
        if len(pairs) - len(figures) + bool(figures) > 1:
            yield line, f'{len(pairs)} brackets in "{text[:50]}…"', BRACKETS


def public() -> list[Path]:
    found = subprocess.run(
        ["git", "ls-files", "-z", *PUBLIC], capture_output=True, text=True, check=True
    )
    names = filter(None, found.stdout.split("\0"))
    return [Path(name) for name in names if not name.startswith(LEFT_OUT) and Path(name).is_file()]


def main(files: list[str]) -> int:
    count = 0
    for path in [Path(name) for name in files] or public():
        for where, block in blocks(path):
            for line, rule, better in broken(block):
                print(f"{where}:{line}: {rule}\n    {better}")
                count += 1
    print(f"{count} places to change" if count else "no place to change", file=sys.stderr)
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Lists the messages of the errors that a user can put right, from the code that raises them.

python3 tools/error_messages.py            one a line, with "…" for what differs
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("helpers", "data_prep", "gpumon", "environments")
SHARED = ("helpers", "errors.py")
ERRORS = {
    *("UserError", "DataError", "MonitorError", "UnsupportedError", "ChoiceError", "LoaderError"),
    *("HeldError", "RankError", "BuildError", "DriverError", "ArgumentTypeError"),
}


def text(node: ast.expr) -> str:
    """The text of a string or f-string, with an ellipsis for each part that differs."""
    match node:
        case ast.Constant(value=str(found)):
            return found
        case ast.JoinedStr(values=parts):
            return "".join(text(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text(left) + text(right)
    return "…"


def in_module(path: Path) -> Iterator[tuple[str, int]]:
    """Each message of a module and its line; ``helpers.errors`` returns those of other modules."""
    source = path.read_text(encoding="utf-8")
    if not any(name in source for name in ERRORS):  # most modules: they need not be parsed
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Return) and node.value and path.parts[-2:] == SHARED:
            yield text(node.value), node.lineno
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else None
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if name in ERRORS and (found := text(node.args[-1])) != "…":
            yield found, node.args[-1].lineno


def messages() -> Iterator[tuple[str, str]]:
    """Each message and the module that has it."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for message, _ in in_module(path):
                yield message, str(path.relative_to(ROOT))


def main() -> None:
    for message, module in messages():
        print(f"{module}: {message}")


if __name__ == "__main__":
    main()

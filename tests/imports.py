"""What the project's modules import, anywhere in them, as their source says."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from helpers import paths


def module_of(path: Path, root: Path = paths.ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_of(path): path
    for package in ("helpers", "data_prep", "gpumon")
    for path in sorted((paths.ROOT / package).rglob("*.py"))
}


def imports(source: str) -> Iterator[str]:
    """What a module imports, within functions and for a type checker alone too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are written from the top"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


@cache
def imports_of(module: str) -> frozenset[str]:
    return frozenset(imports(MODULES[module].read_text(encoding="utf-8")))

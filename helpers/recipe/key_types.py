"""Types of a TOML key's value, which msgspec checks, with words and an example for its message."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from helpers.errors import UserError, unknown
from helpers.recipe.toml_file import TomlFile

MOST = 2**31 - 1


def described(kind: Any, what: str, example: str, **limits: Any) -> Any:
    """A type with ``what`` it is, in words, and an example as TOML has it."""
    return Annotated[kind, Meta(description=what, examples=[example], **limits)]


def whole(example: str, least: int, most: int = MOST) -> Any:
    return described(int, f"a whole number from {least} to {most}", example, ge=least, le=most)


def number(example: str, most: float, *, least: float = 0, above: bool = False) -> Any:
    """From ``least``, or ``above`` it, to ``most``."""
    what = f"a number {'above' if above else 'from'} {least:g} to {most:g}"
    return described(float, what, example, le=most, **{"gt" if above else "ge": least})


def word(*words: str) -> Any:
    return described(Literal[words], f"one of {', '.join(words)}", f'"{words[0]}"')


def text(what: str, example: str, pattern: str = r"\S") -> Any:
    """A text that has the pattern in it, and no invisible character.

    Not for a union with a list: msgspec 0.22 frees the pattern there and crashes.
    """
    return described(str, what, example, pattern=pattern)


def list_of(kind: Any, what: str, example: str) -> Any:
    """A list that is not empty."""
    return described(list[kind], what, example, min_length=1)


def example(kind: Any) -> str:
    return str(kind.__metadata__[0].examples[0])


def check(
    file: TomlFile,
    table: tuple[str, ...],
    key: str,
    value: Any,
    known: Mapping[str, Any],
    shown: Mapping[str, Any] | None = None,
) -> Any:
    """The value of a key in a table of a file, as its type has it.

    ``known`` are the types by key, ``shown`` the keys to list where it is unknown; without it all.

    Raises:
        UserError: the table has no such key, or the value is of another type.
    """
    where, home = file.where(*table, key), "".join(f" in [{name}]" for name in table)
    if key not in known:
        raise UserError(f"{where}: {unknown('key', key, shown or known, home)}")
    try:
        return convert(value, known[key])
    except msgspec.ValidationError:
        said = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
        wanted = f"give {known[key].__metadata__[0].description}, such as {example(known[key])}"
        raise UserError(f"{where}: '{key}'{home} is {said}: {wanted}") from None


def convert(value: Any, kind: Any) -> Any:
    """``value`` as a type has it.

    Raises:
        msgspec.ValidationError: it is of another.
    """
    if not _is_visible_and_finite(value):
        raise msgspec.ValidationError
    return msgspec.convert(value, kind)


def _is_visible_and_finite(value: Any) -> bool:
    """Neither a number that is none, for which no comparison holds, nor a hidden character."""
    if isinstance(value, list):
        return all(map(_is_visible_and_finite, value))
    return value == value and (not isinstance(value, str) or value.isprintable())

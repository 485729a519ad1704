"""Read the plain data of a pickle without executing it.

A pickle is a program for a stack machine, and unpickling runs it: an opcode may call any function
by name. Here `pickletools.genops` parses the opcodes, and the code below repeats the effect of
opcodes that build dictionaries, lists, tuples, texts, bytes and integers. Three function names are
known, because NumPy's arrays of bytes contain them, and none is called: `_reconstruct`, `dtype` and
`_codecs.encode` are treated as an array, its type and its bytes.
"""

from __future__ import annotations

import pickletools
from typing import Any, NamedTuple

import numpy as np

from data_prep.errors import DataError


class _Global(NamedTuple):
    """A function or class that a pickle names."""

    module: str
    name: str


class _Array:
    """An array whose bytes follow later."""

    value: np.ndarray | None = None


class _Kind(NamedTuple):
    """The name of a dtype."""

    name: Any


_ARRAY = {_Global(m, "_reconstruct") for m in ("numpy.core.multiarray", "numpy._core.multiarray")}
_KNOWN = {*_ARRAY, _Global("numpy", "ndarray"), _Global("numpy", "dtype")}
_ENCODE = _Global("_codecs", "encode")
_MARK = object()

_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def load_dictionary(data: bytes, where: str) -> dict[str, Any]:
    """Return the dictionary of a pickle, with its keys as text; error messages name `where`.

    Values are texts, bytes, numbers, lists, tuples, dictionaries and uint8 arrays. Raises
    `DataError` for a pickle of anything else, in particular with a function call; no code is run.
    """
    try:
        found = _interpret(data)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    except Exception as error:
        # pickletools and an inconsistent stack raise almost any exception.
        text = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{where}: damaged ({text}); download it again") from None
    if not isinstance(found, dict):
        raise DataError(f"{where}: a pickle of {type(found).__name__}, no dictionary")
    return {_text(key): _plain(value) for key, value in found.items()}


def _interpret(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any
    for code, argument, at in pickletools.genops(data):
        name, place = code.name, at or 0
        if name in ("PROTO", "FRAME"):
            continue
        if name == "STOP":
            return stack.pop()
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _TUPLES:
            items = tuple(stack[-_TUPLES[name] :])
            del stack[-_TUPLES[name] :]
            stack.append(items)
        elif name == "TUPLE":
            stack.append(tuple(_since_mark(stack)))
        elif name in ("APPEND", "APPENDS"):
            more = [stack.pop()] if name == "APPEND" else _since_mark(stack)
            _require_type(list, stack[-1]).extend(more)
        elif name in ("SETITEM", "SETITEMS"):
            pairs = _since_mark(stack) if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            # The hash of deeply nested tuples would take for ever.
            if not all(type(key) in (str, bytes, int) for key in pairs[::2]):
                raise ValueError("a key that is no text and no number")
            _require_type(dict, stack[-1]).update(zip(pairs[::2], pairs[1::2], strict=True))
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "GLOBAL":
            stack.append(_named(_Global(*argument.split(" ")), place))
        elif name == "STACK_GLOBAL":
            last = stack.pop()
            stack.append(
                _named(_Global(_require_type(str, stack.pop()), _require_type(str, last)), place)
            )
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_reduce(stack.pop(), arguments, place))
        elif name == "BUILD":
            state = stack.pop()
            _build(stack[-1], state, place)
        else:
            raise DataError(
                f"the opcode {name} at byte {place}, which no data of CIFAR-10 has; nothing was"
                " run: download the file again, or the binary version"
            )
    raise ValueError("no end")


def _since_mark(stack: list[Any]) -> list[Any]:
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise ValueError("no mark")
    items = stack[at + 1 :]
    del stack[at:]
    return items


def _require_type(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__} is needed")
    return value


def _named(function: _Global, place: int) -> _Global:
    if function not in _KNOWN and function != _ENCODE:
        raise DataError(
            f"names {function.module}.{function.name} at byte {place}, to be called when it is"
            " unpickled; nothing was run: download the file again, or the binary version"
        )
    return function


def _reduce(function: Any, arguments: Any, place: int) -> Any:
    """Return the result that a call of a known function would have; no function is called."""
    if not isinstance(function, _Global):
        raise ValueError(f"a call of no function at byte {place}")
    if function == _ENCODE:
        text, how = arguments
        if how == "latin1" and type(text) is str:
            return text.encode("latin-1")
    elif function == _Global("numpy", "dtype"):
        return _Kind(arguments[0])
    elif function in _ARRAY:
        return _Array()
    raise ValueError(f"an unknown call at byte {place}")


def _build(thing: Any, state: Any, place: int) -> None:
    """Set the pickled state of a dtype or an array."""
    if isinstance(thing, _Kind):
        return
    if not isinstance(thing, _Array):
        raise ValueError(f"nothing to be built at byte {place}")
    _, shape, kind, by_columns, raw = state
    raw = raw.encode("latin-1") if isinstance(raw, str) else raw
    if kind != _Kind("u1") or by_columns or type(raw) is not bytes:
        raise ValueError("an array of something else than bytes, row by row")
    array = np.frombuffer(raw, dtype=np.uint8)
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("an array of no shape")
    thing.value = array.reshape(shape)


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key


def _plain(value: Any) -> Any:
    """Convert a value of the dictionary: an array itself, a list with its bytes as text."""
    if isinstance(value, _Array):
        return value.value
    return [_text(item) for item in value] if type(value) is list else value

"""Read the plain data of a pickle without calling what it names.

A pickle is a program for a stack machine: an opcode may call any function by name. Here only
opcodes of plain data are let through, and a name gives an inert object that records its calls. The
three names in NumPy's arrays of bytes are known, and all others are refused.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np

from data_prep.errors import DataError

_ARRAY = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}
_KIND, _ENCODE = ("numpy", "dtype"), ("_codecs", "encode")
_KNOWN = {*_ARRAY, _KIND, _ENCODE, ("numpy", "ndarray")}

#: The opcodes of texts and names.
PLAIN = {
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING"),
    *("GLOBAL", "STACK_GLOBAL"),
}
#: Those, and the opcodes of dictionaries, lists, tuples, bytes, numbers and NumPy's arrays; not
#: those of sets, nor other ways to name or call something.
OPCODES = {
    *PLAIN,
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE"),
    *("BININT", "BININT1", "BININT2", "LONG1", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("APPEND", "APPENDS", "SETITEM", "SETITEMS"),
    *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
    *("REDUCE", "BUILD"),
}

#: References to earlier objects that are neither texts nor names; CIFAR-10 has none. Tuples that
#: hold each other twice, many levels deep, would take for ever to hash as a key.
MAX_REFERENCES = 40


class _Named:
    """A function or class that a pickle names, or the result of its call: nothing is called.

    The exception is the encoding of a text, which is how Python 3 writes bytes in protocol 2.
    """

    def __init__(self, name: tuple[str, str], arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = None

    def __call__(self, *arguments: Any) -> _Named | bytes:
        if self.name == _ENCODE:
            text, how = arguments
            if how != "latin1" or type(text) is not str:
                raise ValueError("an unknown encoding")
            return text.encode("latin-1")
        return _Named(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise DataError(
                f"names {module}.{name}, to be called when it is unpickled; nothing was run:"
                " download the file again, or the binary version"
            )
        return _Named((module, name))


def load_dictionary(data: bytes, where: str) -> dict[str, Any]:
    """Return the dictionary of a pickle, with its keys as text; error messages name `where`.

    Values are texts, bytes, numbers, lists, tuples, dictionaries and uint8 arrays. Raises
    `DataError` for a pickle of anything else, in particular with a function call; no code is run.
    """
    try:
        _check_opcodes(data)
        found = _Unpickler(io.BytesIO(data), encoding="latin1").load()
        if isinstance(found, dict):
            return {_text(key): _plain(value) for key, value in found.items()}
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    except Exception as error:
        # Damaged pickles raise almost any exception.
        text = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{where}: damaged ({text}); download it again") from None
    raise DataError(f"{where}: a pickle of {type(found).__name__}, not a dictionary")


def _check_opcodes(data: bytes) -> None:
    argument: Any
    plain: set[int] = set()
    before, puts, references = "", 0, 0
    for code, argument, at in pickletools.genops(data):
        if code.name not in OPCODES:
            raise DataError(
                f"the opcode {code.name} at byte {at}, which no data of CIFAR-10 has; nothing was"
                " run: download the file again, or the binary version"
            )
        if code.name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            place = puts if argument is None else argument
            puts += 1
            (plain.add if before in PLAIN else plain.discard)(place)
            if place > len(data):
                raise ValueError(f"an object stored at place {place:,}")
        elif code.name in ("BINGET", "LONG_BINGET") and argument not in plain:
            references += 1
            if references > MAX_REFERENCES:
                raise ValueError(f"more references at byte {at} than data of CIFAR-10 has")
        before = code.name


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key


def _plain(value: Any) -> Any:
    """Convert a value of the dictionary: an array itself, a list with its bytes as text."""
    if isinstance(value, _Named):
        return _array(value) if value.name in _ARRAY and value.state else None
    return [_text(item) for item in value] if type(value) is list else value


def _array(named: _Named) -> np.ndarray:
    _, shape, kind, by_columns, raw = named.state
    raw = raw.encode("latin-1") if isinstance(raw, str) else raw
    is_bytes = isinstance(kind, _Named) and kind.name == _KIND and kind.arguments[0] == "u1"
    if not is_bytes or by_columns or type(raw) is not bytes:
        raise ValueError("an array of something else than bytes, row by row")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)

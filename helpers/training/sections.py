"""The order of a notebook's sections: the needs of each, and the results that a rerun discards.

A method of a run that carries out a section says so with :func:`section`. Sections may be run in
any order and more than once; one that came too early says in a line what to run first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from helpers.errors import UserError

Method = TypeVar("Method", bound=Callable[..., Any])

UNFINISHED = "did not finish"


class Section(NamedTuple):
    """A section's number and name, the methods that have to be done before it, and its records."""

    number: int
    name: str
    needs: tuple[str, ...]
    records: tuple[str, ...]

    def __str__(self) -> str:
        return f"section {self.number} ({self.name})"


SECTIONS: dict[str, Section] = {}
"""By the name of the method that carries it out, in the notebook's order."""


class Progress:
    """Which sections of a run are done."""

    def __init__(self) -> None:
        self._done: set[str] = set()
        self._why: dict[str, str] = {}  # of those that were begun and do not hold, why not
        self.replaced = False
        """Whether the kernel has begun another run since."""

    def skip(self, *names: str) -> None:
        """Take these for done: for tests and benchmarks of what comes after them."""
        self._done.update(names)

    def begin(self, name: str) -> list[str]:
        """A section begins; the records that hold no longer.

        Raises:
            UserError: something has to be run before it.
        """
        section = SECTIONS[name]
        if self.replaced:
            raise UserError("running section 3 again ended this run; run all cells from section 3")
        if missing := [need for need in _needs(name) if need not in self._done]:
            raise UserError(f"{section} needs {self._list(missing)}; run {_these(missing)}")
        after = [other for other in SECTIONS if name in _needs(other)]
        for other in self._done.intersection(after):
            self._why[other] = f"is from before {section} was run again"
        self._why[name] = UNFINISHED
        self._done.difference_update([name, *after])
        return [record for each in (name, *after) for record in SECTIONS[each].records]

    def end(self, name: str) -> None:
        """A section is done."""
        self._done.add(name)

    def _list(self, missing: Iterable[str]) -> str:
        why = {name: f", which {said}" for name, said in self._why.items()}
        return ", ".join(f"{SECTIONS[name]}{why.get(name, '')}" for name in missing)


def section(
    number: int, name: str, *, needs: tuple[str, ...] = (), records: tuple[str, ...] = ()
) -> Callable[[Method], Method]:
    """Decorate the method of a run that carries out a section.

    Args:
        name: for the message that another section needs this one.
        needs: names of the methods that have to be done before it.
        records: the record's sections that it writes.
    """

    def decorate(method: Method) -> Method:
        own = method.__name__
        SECTIONS[own] = Section(number, name, needs, records)

        @wraps(method)
        def carried_out(run: Any, *args: Any, **named: Any) -> Any:
            run.check_parameters()
            run.record.remove(*run.progress.begin(own))
            found = method(run, *args, **named)
            run.progress.end(own)
            return found

        return carried_out  # type: ignore[return-value]

    return decorate


def _needs(name: str) -> list[str]:
    """All that a section needs, with what that needs itself, in the notebook's order."""
    found, waiting = set[str](), [name]
    while waiting:
        for need in SECTIONS[waiting.pop()].needs:
            if need not in found:
                found.add(need)
                waiting.append(need)
    return [each for each in SECTIONS if each in found]


def _these(missing: list[str]) -> str:
    numbers = list(dict.fromkeys(SECTIONS[name].number for name in missing))
    if len(numbers) == 1:
        return f"section {numbers[0]} first"
    return f"sections {', '.join(map(str, numbers[:-1]))} and {numbers[-1]} first"

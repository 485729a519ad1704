"""What a batch can run, and what of it somebody asked for: notebooks in kernels."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import row_of, rows_of, why_not


class Offer(NamedTuple):
    """What can be run: a notebook in a kernel."""

    notebook: str
    framework: str
    kernel: str

    @property
    def word(self) -> str:
        """What it is asked for by in ``--frameworks``."""
        row = row_of(self.notebook, self.kernel)
        return row.asked if row and row.asked else self.framework

    @property
    def optional(self) -> bool:
        """Whether it is run only where somebody asks for it."""
        row = row_of(self.notebook, self.kernel)
        return bool(row and row.optional)

    @property
    def of_many_nodes(self) -> bool:
        """Whether it is run on one node only where somebody asks for it."""
        row = row_of(self.notebook, self.kernel)
        return bool(row and row.many_nodes_only)

    @property
    def spans(self) -> bool:
        """Whether it spans nodes."""
        return not why_not(self.notebook, self.kernel, devices=1, nodes=2)


def chosen(
    known: Mapping[str, tuple[str, str]], notebooks: Sequence[str], frameworks: Sequence[str]
) -> list[Offer]:
    """What somebody asked for, by notebooks' names or by frameworks'; else all but optional ones.

    A row with a word of its own is asked for by that: ``horovod``, ``keras-jax``.
    """
    if not known:
        raise UserError(f"{paths.NOTEBOOKS}: no notebook there names its framework in its metadata")
    if notebooks and frameworks:
        raise UserError("notebooks and frameworks both choose what is run: give one of them")
    wanted = []
    for name in (name.removesuffix(".ipynb") for name in notebooks):
        if name not in known:
            raise UserError(f"unknown notebook '{name}': the notebooks are {', '.join(known)}")
        wanted.append(Offer(name, *known[name]))
    offers = _all(known)
    for asked in frameworks:
        found = [offer for offer in offers if _is_named(offer.word, asked)]
        if not found:
            names = dict.fromkeys(offer.word for offer in offers)
            raise UserError(f"unknown framework '{asked}': the frameworks are {', '.join(names)}")
        wanted += found
    return list(dict.fromkeys(wanted)) or [offer for offer in offers if not offer.optional]


def _all(known: Mapping[str, tuple[str, str]]) -> list[Offer]:
    """Each notebook in its own kernel, whichever that is here, and in those of its other rows."""
    return [
        Offer(name, framework, kernel)
        for name, (framework, own) in known.items()
        for kernel in dict.fromkeys([own, *(row.kernel for row in rows_of(name)[1:])])
    ]


def _is_named(framework: str, asked: str) -> bool:
    """Whether ``mxnet`` or ``mxnet gluon`` names ``MXNet Gluon``."""
    name = framework.casefold()
    return asked.casefold() in (name, name.split()[0])

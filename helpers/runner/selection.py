"""Select the notebooks and environments of an experiment by the names in the command."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from helpers import paths
from helpers.errors import UserError, unknown
from helpers.frameworks import ROWS, Row, order, row_of, why_not
from helpers.record import this_notebook


class Offer(NamedTuple):
    """A notebook in an environment that can run it."""

    notebook: str
    framework: str
    kernel: str

    @property
    def row(self) -> Row | None:
        return row_of(self.notebook)

    @property
    def word(self) -> str:
        """Its name in ``--frameworks``."""
        return self.row.word if self.row and self.row.optional else self.framework

    @property
    def spans(self) -> bool:
        """Whether the notebook spans nodes."""
        return not why_not(self.notebook, nodes=2)


def chosen(notebooks: Sequence[str], frameworks: Sequence[str]) -> list[Offer]:
    """The named notebooks, or those of the named frameworks; otherwise all except the optional
    ones.

    An optional row is chosen by its own word, ``horovod``, and a copy by its notebook's name.
    """
    known = framework_notebooks()
    if not known:
        raise UserError(f"{paths.NOTEBOOKS}: no notebook there names its framework in its metadata")
    if notebooks and frameworks:
        raise UserError("notebooks and frameworks both choose what is run: give only one of them")
    wanted = []
    for name in (name.removesuffix(".ipynb") for name in notebooks):
        if name not in known:
            raise UserError(unknown("notebook", name, known))
        wanted.append(Offer(name, *known[name]))
    offers = _all(known)
    for asked in frameworks:
        # ``mxnet``, ``gluon`` and ``mxnet gluon`` name ``MXNet Gluon``.
        words = [(offer, offer.word.casefold()) for offer in offers]
        found = [offer for offer, word in words if asked.casefold() in (word, *word.split())]
        if not found:
            names = dict.fromkeys(offer.row.word if offer.row else offer.word for offer in offers)
            raise UserError(unknown("framework", asked, names))
        wanted += found
    usual = [offer for offer in offers if not (offer.row and offer.row.optional)]
    found = list(dict.fromkeys(wanted)) or usual
    for name in dict.fromkeys(offer.notebook for offer in found):
        check_parameters_cell(name)
    return found


def framework_notebooks() -> dict[str, tuple[str, str]]:
    """Each framework notebook's framework and kernel, in the order they are run and shown.

    A framework notebook says so in its metadata: ``"rosetta": {"framework": "PyTorch"}``.
    """
    found = {}
    for path in sorted(paths.NOTEBOOKS.glob("[!.]*.ipynb")):  # editors and macOS hide theirs
        try:
            metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
            framework = metadata.get("rosetta", {}).get("framework")
            if framework:
                found[path.stem] = (str(framework), str(metadata["kernelspec"]["name"]))
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
            raise UserError(f"{path}: not a notebook ({error})") from None
        except KeyError as error:
            raise UserError(
                f"{path}: its metadata lack {error}; choose a kernel in Jupyter and save it"
            ) from None
    return dict(sorted(found.items(), key=lambda item: order(item[0])))


def check_parameters_cell(notebook: str) -> None:
    """See that the runner can give a notebook its parameters."""
    path = paths.NOTEBOOKS / f"{notebook}{this_notebook.SUFFIX}"
    try:
        tagged = len(this_notebook.code_cells(path)[1])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a notebook ({error})") from None
    if path.exists() and tagged != 1:
        raise UserError(
            f"{path}: {tagged or 'no'} cell{'s have' if tagged else ' has'} the tag "
            f"'{this_notebook.PARAMETERS}', so a run would not get its parameters: give the tag "
            "to the parameters cell of section 2 alone (JupyterLab: Property Inspector, Cell Tags)"
        )


def _all(known: Mapping[str, tuple[str, str]]) -> list[Offer]:
    """All but copies: notebooks without a row of a framework whose own notebook is there, too."""
    there = {row.framework for row in ROWS if row.notebook in known}
    shipped = {row.notebook for row in ROWS}
    return [
        Offer(name, framework, kernel)
        for name, (framework, kernel) in known.items()
        if name in shipped or framework not in there
    ]

"""The code that all notebooks share, in packages that import only from earlier packages.

docs/architecture.md lists the packages in this order, which ``tests/test_packages.py`` checks. All
packages may use the modules at the top.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helpers.run import Run


def begin(framework: str, names: Mapping[str, Any]) -> "Run":
    """Begin the run that a notebook's parameters ask for; its record begins here.

    Run it again after a change of the parameters.

    Args:
        framework: the framework's word: ``pytorch``, ``tensorflow``, ``keras``, ``mxnet``,
            ``chainer`` or ``jax``.
        names: the notebook's ``globals()``, in which the parameters are.

    Raises:
        UserError: what a parameter asks for cannot be had.
        UnsupportedError: the framework cannot do this here; ``rosetta run`` skips the notebook.
    """
    from helpers import run

    return run.begin(framework, names)

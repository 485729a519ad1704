"""Map each Keras backend to its module in this folder.

Each sets ``KERAS_BACKEND`` before it imports Keras, so it does not matter what the shell or
``~/.keras/keras.json`` says.
"""

import sys
from importlib import import_module
from types import ModuleType

from helpers.errors import UserError
from helpers.frameworks import ROWS

ROW_OF = {row.parameters["backend"]: row for row in ROWS if "backend" in row.parameters}
"""The registry's rows of Keras, by the backend that their notebook is given."""


def module_of(backend: str) -> ModuleType:
    """Keras's module on ``backend``: ``tensorflow`` or ``jax``. Imports Keras.

    Raises:
        UserError: Keras has no such backend, this kernel lacks it, or Keras runs here on another.
    """
    if not isinstance(backend, str) or backend not in ROW_OF:
        raise UserError(f"backend is {backend!r}: give one of {', '.join(map(repr, ROW_OF))}")
    row = ROW_OF[backend]
    if "keras" in sys.modules and (now := sys.modules["keras"].backend.backend()) != backend:
        raise UserError(
            f"backend is {backend!r}, but Keras already runs on {now}: restart the kernel"
        )
    try:
        return import_module(f"helpers.frameworks.{row.module}")
    except ModuleNotFoundError as error:
        raise UserError(
            f"backend is {backend!r}, but this kernel has no {error.name}: choose the kernel "
            f"'{row.kernel}', or run: rosetta run --frameworks "
            f"{row.word}; if it is that kernel, its "
            "environment is older than its lock: make envs"
        ) from None

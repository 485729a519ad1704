"""Build the custom networks of a recipe, and try them out before a run depends on them.

Their weights have the framework's own names and its own initial values.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from helpers.networks.weights import Weights
from helpers.recipe import Recipe, custom_code

_MARK = "is_own"
IMAGES = 2
"""Black ones, which a network is tried out with."""


def make(
    framework: str, recipe: Recipe, outputs: int, kind: type, shape: Callable[[Any], Any]
) -> Any:
    """The network of this ``kind`` that the recipe's function returns for these outputs.

    NumPy and Python are seeded with the recipe's seed; the caller seeds the framework. ``shape``
    gives that of its logits for ``IMAGES`` images.

    Raises:
        UserError: its code fails, or gives something else; with the file, the line and the name.
    """
    called = f"{recipe.own[framework].rpartition(':')[2]}({outputs})"
    with custom_code.report_errors(recipe, framework, called), _seeded(recipe.seed):
        model = custom_code.load(recipe, framework)(outputs)
        if not isinstance(model, kind):
            wanted = f"{kind.__module__.split('.')[0]}'s {kind.__name__}"
            raise TypeError(f"it returns a {type(model).__name__}, not a {wanted}")
        if (found := list(shape(model))) != [IMAGES, outputs]:
            raise ValueError(
                f"for {IMAGES} images of {recipe.crop} px its network returns {found}: "
                f"give {outputs} logits an image, {[IMAGES, outputs]}"
            )
    setattr(model, _MARK, True)  # by which weights are named otherwise, see is_own
    return model


def is_own(model: Any) -> bool:
    """Whether a model is a custom network, whose weights have the framework's names."""
    return getattr(model, _MARK, False) is True


def initial(framework: ModuleType, recipe: Recipe, outputs: int) -> Weights:
    """The initial weights of all replicas, which the framework draws from the seed."""
    arrays = framework.dump_weights(framework.networks.own(recipe, outputs))
    return Weights(arrays, "own", f"drawn by the framework itself from seed {recipe.seed}")


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Python's and NumPy's generators have this seed inside, and their state back afterwards."""
    # NumPy's one generator for all is what Chainer draws by, and others' initialisers.
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002

"""The networks in each framework, and the initial weights that all frameworks share."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np

from helpers.recipe import Recipe

Model: TypeAlias = Any
"""A framework's network; each module has its own type."""


class Networks(Protocol):
    """A framework's module in this folder."""

    def build(
        self, network: str, arrays: Mapping[str, np.ndarray], recipe: Recipe, outputs: int = 0
    ) -> Model:
        """A network for these weights, which are yet to be loaded; from images to logits.

        Args:
            network: one of ``shapes.NETWORKS``, ``shapes.SHALLOW``, or ``own``: the custom network
                of the recipe.
            arrays: float arrays by torchvision's names; the last layer gives the number of outputs.
            recipe: for BatchNorm's epsilon and momentum, or with the custom code.
            outputs: of a custom network.

        Raises:
            UserError: the custom code fails, or returns something else.
        """

"""Recipes: the network, data and hyperparameters of a training, the same for every framework.

Each setting has one place: a notebook never repeats a number of its recipe. Recipes are TOML files
(docs/recipes.md). Built-in recipes are in ``recipes/``. A user's recipe can be in any folder, and
its custom code is in the same folder.
"""

from helpers.recipe.catalog import RECIPES, file_of, full_name, lookup
from helpers.recipe.settings import (
    AS_USUAL,
    COMPILED,
    EAGER,
    EXECUTIONS,
    MULTICLASS,
    MULTILABEL,
    PRECISIONS,
    Recipe,
    Rule,
    ScaledRecipe,
    must_agree,
)

__all__ = [
    "AS_USUAL",
    "COMPILED",
    "EAGER",
    "EXECUTIONS",
    "MULTICLASS",
    "MULTILABEL",
    "PRECISIONS",
    "RECIPES",
    "Recipe",
    "Rule",
    "ScaledRecipe",
    "file_of",
    "full_name",
    "lookup",
    "must_agree",
]

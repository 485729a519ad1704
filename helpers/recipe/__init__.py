"""Recipes: what is trained, on what, and how; the same for every framework.

One place for each setting: a notebook never writes a number that stands in its recipe. Recipes are
TOML files (docs/recipes.md): those that ship are in ``recipes/``, anybody's own lie where they
like, with their own code beside them.
"""

from helpers.recipe.catalog import RECIPES, digest_now, file_of, full_name, lookup
from helpers.recipe.settings import (
    MULTICLASS,
    MULTILABEL,
    PRECISIONS,
    Recipe,
    Rule,
    ScaledRecipe,
)

__all__ = [
    "MULTICLASS",
    "MULTILABEL",
    "PRECISIONS",
    "RECIPES",
    "Recipe",
    "Rule",
    "ScaledRecipe",
    "digest_now",
    "file_of",
    "full_name",
    "lookup",
]

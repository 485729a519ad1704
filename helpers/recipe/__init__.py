"""Recipes: the network, data and hyperparameters of a training, the same for every framework.

Each setting has one place: a notebook never repeats a number of its recipe. Recipes are TOML files
(docs/recipes.md). Built-in recipes are in ``recipes/``. A user's recipe can be in any folder, and
its custom code is in the same folder. The names of single settings' values are in ``settings``.
"""

from helpers.recipe.recipe_file import RECIPES, file_of, full_name, lookup
from helpers.recipe.settings import Recipe, Rule, ScaledRecipe

__all__ = ["RECIPES", "Recipe", "Rule", "ScaledRecipe", "file_of", "full_name", "lookup"]

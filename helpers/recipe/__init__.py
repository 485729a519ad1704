"""Recipes: the network, data and hyperparameters of a training, the same for every framework."""

from helpers.recipe.recipe_file import RECIPES, file_of, full_name, lookup
from helpers.recipe.settings import Recipe, Rule, ScaledRecipe

__all__ = ["RECIPES", "Recipe", "Rule", "ScaledRecipe", "file_of", "full_name", "lookup"]

"""Check that an experiment's recipe has not changed, and list the custom code that it runs."""

from helpers.errors import UserError
from helpers.frameworks import ROWS, networks_of
from helpers.recipe import lookup
from helpers.runner.plans import Plan


def check(plan: Plan) -> None:
    """Check that the experiment may begin, or continue, with its recipe."""
    if problem := changed(plan):
        raise UserError(f"{problem}: put it back, or start a new experiment")


def problem(plan: Plan, notebook: str) -> str | None:
    """Why a notebook's runs are skipped: the recipe was changed, or has no network for it."""
    if plan.recipe == "auto":
        return None
    if said := changed(plan):
        return said
    modules = [networks_of(row.module) for row in ROWS if row.notebook == notebook]
    return lookup(plan.recipe).lacks(modules[0]) if modules else None


def changed(plan: Plan) -> str | None:
    """Describe how the recipe changed since the experiment began; None if it did not change."""
    if not plan.recipe_digests:  # auto
        return None
    try:
        now = lookup(plan.recipe).digests()
    except UserError as error:
        return str(error)
    differing = sorted(name for name in now if now[name] != plan.recipe_digests.get(name))
    if differing or now.keys() != plan.recipe_digests.keys():
        return f"{', '.join(differing) or plan.recipe} was changed since the experiment began"
    return None


def in_words(plan: Plan) -> list[str]:
    """One line each for the recipe's file and for the custom code that will run."""
    if not plan.recipe.endswith(".toml"):
        return []
    recipe = lookup(plan.recipe)
    lines = [f"recipe {plan.recipe}, SHA-256 {recipe.sha256[:12]}"]
    return lines + [
        f"custom code {recipe.beside}/{file}, SHA-256 {digest[:12]}"
        for file, digest in recipe.code.items()
    ]

"""Sets of hyper-parameters by name: the paper's, and the ones that measured better."""

from __future__ import annotations

from typing import Literal, get_args

from dtdr.errors import unknown_choice

Recipe = Literal["default", "paper"]


def check_recipe(recipe: str) -> None:
    """Raise an InputError for a recipe that does not exist."""
    if recipe not in get_args(Recipe):
        raise unknown_choice("recipe", recipe, get_args(Recipe))

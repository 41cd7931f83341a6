"""Settings of the command line that change nothing in a run, such as those of a section that the recipe leaves out."""

from collections.abc import Callable, Sequence
from typing import Any

from flows.dag import nodes
from flows.recipes.command_line import IGNORED
from flows.recipes.recipe import Recipe
from pipeline.errors import InputError


def ineffective_settings(
    recipe_with: Callable[[Sequence[str]], Recipe], settings: Sequence[str], own: Sequence[str]
) -> list[str]:
    """Returns a line for each setting that changes the recipe, but no stage of its run.

    `recipe_with` returns the complete recipe with settings. `own`: those of `settings` that the user gave; only they
    are checked.
    """
    complete = recipe_with(settings)
    stages = _stages(complete)

    def is_ineffective(setting: str) -> bool:
        section = setting.partition("=")[0].partition(".")[0]
        if section in IGNORED:  # changes no result
            return False
        try:
            without = recipe_with([other for other in settings if other != setting])
            return without != complete and _stages(without) == stages
        except InputError:  # the other settings need it
            return False

    return [f"--set {setting} changes nothing in this run" for setting in own if is_ineffective(setting)]


def _stages(recipe: Recipe) -> dict[str, Any]:
    """Returns what each node reads, by name."""
    found = {}
    for node in nodes(recipe):
        inputs = {parameter: source and source.name for parameter, source in node.inputs.items()}
        shared = {} if node.stage == "report" else node.shared  # the report shows the whole recipe
        found[node.name] = (node.config, inputs, shared)
    return found

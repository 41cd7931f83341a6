"""Settings of the command line that no stage of a run reads, such as one of a section that the recipe leaves out."""

from collections.abc import Sequence
from typing import Any

from flows.dag import nodes
from flows.recipes.command_line import IGNORED
from flows.recipes.recipe import Recipe, resolve
from pipeline.errors import InputError
from tasks.stages import STAGES


def unread_settings(recipe: str, settings: Sequence[str], own: Sequence[str]) -> list[str]:
    """Returns the settings of `own`, some of `settings`, that change the recipe, but none of its stages."""
    complete = resolve(recipe, settings)
    stages = _stages(complete)

    def is_unread(setting: str) -> bool:
        section = setting.partition("=")[0].partition(".")[0]
        if section in IGNORED:  # read by no stage alone
            return False
        try:
            without = resolve(recipe, [other for other in settings if other != setting])
        except InputError:  # the other settings need it
            return False
        return without != complete and _stages(without) == stages

    return [setting for setting in own if is_unread(setting)]


def _stages(recipe: Recipe) -> list[tuple[Any, ...]]:
    """What each node reads, without the recipe that the report shows."""
    found = []
    for node in nodes(recipe):
        unread = STAGES[node.stage].unread(node.config)
        fields = {name: value for name, value in node.config if name not in unread}
        inputs = {name: source and source.name for name, source in node.inputs.items()}
        found.append((node.name, fields, inputs, {} if node.stage == "report" else node.shared))
    return found

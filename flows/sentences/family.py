"""Where the recipes of sentence tasks are. Imports none of their classes, to list them quickly."""

from pathlib import Path

from flows.recipes.yaml_layers import Family, own_texts

SENTENCES = Family(
    Path(__file__).parent, "recipe of sentences", "cocondenser sentences recipes", own_texts, kind="kind"
)

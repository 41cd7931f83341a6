"""What the report calls a training, and its line about a model."""

import pytest
from transformers import AutoConfig

from pipeline.modeling.model_files.model_config import OWN_NAMES, TYPES
from pipeline.report.trainings import architecture, shown_counts, training

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}


@pytest.mark.parametrize("kind", [*TYPES, "albert", "deberta-v2"])
def test_each_type_of_model_is_described(kind, tmp_path):
    own = OWN_NAMES.get(kind, {})
    config = AutoConfig.for_model(kind, vocab_size=51234, **{own.get(name, name): size for name, size in SIZES.items()})
    config.save_pretrained(tmp_path)
    assert architecture(tmp_path) == f"{kind}, 3 layers of 24, 2 heads, 51,234 tokens in the vocabulary"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cocondenser", "coCondenser"),
        ("stage2-3", "Stage 2, round 3"),
        ("cross-encoder-2", "Cross-encoder 2"),
        ("cross-encoder-fold-2", "Cross-encoder, fold 2"),
    ],
)
def test_a_training_has_a_readable_name(name, shown):
    assert training(name) == shown


def test_counts_have_the_words_of_the_notices() -> None:
    counts = {"passages": 12345, "without_rest_left_out": 3, "repeated_left_out": 0, "html": {"other_files": 2}}
    assert shown_counts(counts) == {
        "passages": "12,345",
        "texts not used as questions: too little other text is left to find": "3",
        "html: files left out, other endings": "2",
    }

"""The bi-encoder of the tests of dense retrieval, and how they train."""

from typing import Any

from pipeline.finetune.config import TrainSubset
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import Form
from pipeline.tokenization.token_files import Specials
from pipeline.training.loop import Optimiser

SPECIALS = Specials(vocab_size=305, pad=0, unk=1, cls=2, sep=3, mask=4)
ENCODER = EncoderConfig(
    pooling="cls",
    normalise=False,
    projection=None,
    tied=True,
    question_tokens=16,
    title_tokens=4,
    title_separator="sep",
    question_prefix="",
    passage_prefix="",
)
OPTIMISER = Optimiser(
    learning_rate=3e-3,
    betas=(0.9, 0.98),
    epsilon=1e-6,
    weight_decay=0.01,
    clip_norm=1.0,
    warmup_ratio=0.1,
    warmup_steps=None,
)
TRAINING: dict[str, Any] = {
    "epochs": 2,
    "batch_queries": 7,
    "negatives_per_query": 2,
    "negatives_from": "bm25",
    "negative_depth": None,
    "mix_negatives": "separate_epochs",
    "dropout": 0.0,
    "seed": 3,
    "optimiser": OPTIMISER,
}
"""Fields that fine-tuning and cross-encoders have alike."""
SUBSET = TrainSubset(queries=None, seed=0)
FORM = Form(SPECIALS, question_tokens=16, title_tokens=4, between=(3,))

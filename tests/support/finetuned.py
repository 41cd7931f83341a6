"""A fine-tuning of the small world. Used by several test files."""

from encoders import ENCODER, TRAINING

from pipeline.finetune.config import AbsConfig, FinetuneConfig
from pipeline.finetune.finetune import finetune
from pipeline.finetune.validation import ValidationConfig

CONFIG = FinetuneConfig(
    **TRAINING,
    positives_considered=3,
    share_negatives=0,
    loss="contrastive",
    teacher_temperature=1.0,
    order="random",
    abs=AbsConfig(beam_width=3, list_depth=100, pool=0),
    validation=ValidationConfig(questions=0, candidates=10, select="last"),
    passage_tokens=40,
    temperature=1.0,
    mask_positives=True,
)


def train(world, work, mined=None, scores=None, pseudo=None, start=None, encoder=ENCODER, **fields):
    config = CONFIG.model_copy(update=fields)
    given = {"bm25": world.bm25, "mined": mined, "scores": scores, "pseudo": pseudo}
    start = start or world.checkpoint
    return finetune(config, encoder, world.collection, world.tokens, start, **given, work=work), work.out

"""A fine-tuning of the small world. Used by several test files."""

from encoders import ENCODER, SUBSET, TRAINING

from pipeline.finetune.config import BatchScheduling, FinetuneConfig
from pipeline.finetune.finetune import finetune
from pipeline.finetune.validation import ValidationConfig

CONFIG = FinetuneConfig(
    **TRAINING,
    positives_considered=3,
    share_negatives=None,
    loss="contrastive",
    teacher_temperature=1.0,
    batch_order="random",
    batch_scheduling=BatchScheduling(beam_width=3, list_depth=100, pool=None),
    validation=ValidationConfig(questions=0, candidates=10, keep="last"),
    passage_tokens=40,
    temperature=1.0,
    mask_positives=True,
)


def train(
    world, work, mined=None, soft_labels=None, pseudo_labels=None, start=None, encoder=ENCODER, subset=SUBSET, **fields
):
    config = CONFIG.model_copy(update=fields)
    lists = {"bm25": world.bm25, "mined": mined, "soft_labels": soft_labels, "pseudo_labels": pseudo_labels}
    start = start or world.checkpoint
    return finetune(config, encoder, subset, world.collection, world.tokens, start, **lists, work=work), work.out

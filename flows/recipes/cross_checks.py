"""What in a recipe would fail, or pass unnoticed, hours into a run: sections that do not fit together.

Functions raise ValueError, as a validator of a pydantic model does; the recipe's reader says where it was written.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from flows.recipes.sections import Sections
from pipeline.advice import option
from pipeline.cross_encoder.lengths import SPECIAL_TOKENS

if TYPE_CHECKING:
    from pipeline.cross_encoder.soft_labels import SoftLabelsConfig
    from pipeline.finetune.config import ExamplesConfig

Limit = tuple[str, int, str, int]
"""Field, its value, the field that limits it, that one's value."""


def check(r: Sections) -> None:
    """Everything that holds of the recipe as a whole."""
    limits: list[Limit] = [("report.answers", r.report.answers, "evaluate.answers", r.evaluate.answers)]
    if not {"dev", "test"} & {*r.search.splits}:
        raise ValueError("search.splits lacks dev and test, whose questions show what a model finds")
    if r.model is None:
        limits += [*of_lists(r), *of_lengths(r)]
    elif r.rerank is not None:
        raise ValueError("model: rerank does not work with an existing model: set rerank to null")
    for name, value, limit_name, limit in limits:
        if value > limit:
            raise ValueError(f"{name} ({value}) is more than {limit_name} ({limit})")
    if r.model is None:
        read_ends(r)
        rounds(r)
        teacher(r)
        heads(r)
        vectors(r)


def of_lists(r: Sections) -> list[Limit]:
    """How far down a list a stage may look: as far as another writes it."""
    limits = [("mine.depth", r.mine.depth, "search.train_depth", r.search.train_depth)]
    first: dict[str, ExamplesConfig | SoftLabelsConfig] = {"stage1": r.stage1, "stage2": r.stage2}
    if r.teaches or r.rerank is not None:
        first |= {"cross_encoder": r.cross_encoder}
    if r.stage2.loss == "soft_labels" or r.denoise is not None:
        first |= {"soft_labels": r.soft_labels}
    for name, stage in first.items():
        if stage.negatives_from == "bm25" and stage.negative_depth is not None:
            limits.append(
                (f"{name}.negative_depth", stage.negative_depth, "bm25.negatives_depth", r.bm25.negatives_depth)
            )
    if r.rerank is not None:
        limits.append(("rerank.depth", r.rerank.depth, "search.depth", r.search.depth))
    if r.pseudo_labels is not None:
        limits.append(("pseudo_labels.depth", r.pseudo_labels.depth, "search.train_depth", r.search.train_depth))
    return limits


def of_lengths(r: Sections) -> list[Limit]:
    """How many tokens and layers the stages may ask of a model that is made from scratch."""
    if any(_given(r)):
        return []
    lengths = {
        "condenser.length": r.condenser.length,
        "cocondenser.span_max + 2": r.cocondenser.span_max + 2,
        "stage1.passage_tokens": r.stage1.passage_tokens,
        "stage2.passage_tokens": r.stage2.passage_tokens,
        "encode.passage_tokens": r.encode.passage_tokens,
        "encoder.question_tokens": r.encoder.question_tokens,
    }
    if r.cross_encoder.checkpoint is None and (r.teaches or r.rerank is not None):
        own = r.cross_encoder
        special = SPECIAL_TOKENS[r.initial.architecture]
        name = f"cross_encoder.question_tokens + passage_tokens - {4 - special}"  # a text alone has two special tokens
        lengths[name] = own.question_tokens + own.passage_tokens + special - 4
    limits = [(name, n, "initial.max_position", r.initial.max_position) for name, n in lengths.items()]
    return [*limits, ("condenser.skip_from + 1", r.condenser.skip_from + 1, "initial.layers", r.initial.layers)]


def read_ends(r: Sections) -> None:
    """Passages longer than any in fine-tuning: their vectors may be worth nothing (docs/results.md)."""
    trained = {"stage1": r.stage1} | ({"stage2": r.stage2} if r.rounds.number else {})
    for name, stage in trained.items():
        if r.encode.passage_tokens > stage.passage_tokens:
            raise ValueError(
                f"encode.passage_tokens ({r.encode.passage_tokens}) is more than {name}.passage_tokens "
                f"({stage.passage_tokens}): fine-tuning would never see the ends of the passages that are searched"
            )


def vectors(r: Sections) -> None:
    """An index whose search is not described; dimensions that product quantisation cannot cut into equal parts."""
    if r.index.kind != "flat" and r.search.approximate is None:
        raise ValueError(f"search.approximate is null, but index.kind is {r.index.kind}")
    if r.index.kind != "ivfpq" or any(_given(r)):
        return
    dimensions = {"initial.hidden_size": r.initial.hidden_size, "encoder.projection": r.encoder.projection}
    known = {name: dimension for name, dimension in dimensions.items() if dimension is not None}
    for name, dimension in known.items():
        if dimension % r.index.pq_m:
            from pipeline.dense.index_kinds import most_parts

            fits = most_parts(r.index.pq_m, *known.values())
            raise ValueError(
                f"index.pq_m ({r.index.pq_m}) does not divide {name} ({dimension}): take {option('index.pq_m', fits)}"
            )


def _given(r: Sections) -> tuple[str | Path | None, ...]:
    """Models that the recipe's start from, whose shape is not known yet; all None where it makes its own."""
    return r.initial.pretrained, r.initial.checkpoint, r.condenser.checkpoint, r.cocondenser.checkpoint


def heads(r: Sections) -> None:
    """Condenser's head, where coCondenser could not go on with it."""
    if r.condenser.skip_from != r.cocondenser.skip_from:
        raise ValueError(
            f"condenser.skip_from ({r.condenser.skip_from}) and cocondenser.skip_from "
            f"({r.cocondenser.skip_from}) differ, but one head reads them"
        )
    if r.condenser.objective != "condenser" and r.condenser.checkpoint is None and r.cocondenser.trains:
        raise ValueError(
            f"condenser.objective ({r.condenser.objective}) leaves no Condenser head for coCondenser: "
            "set cocondenser.budget to null"
        )


def rounds(r: Sections) -> None:
    """Mining and reranking, where nothing is left for them to read."""
    given = r.negatives_file is not None
    if r.rounds.miner is not None and given:
        raise ValueError("rounds.miner and negatives_file both say where the first round's negatives come from")
    if (r.rounds.miner is not None or given) and not r.rounds.number:
        raise ValueError("rounds.miner and negatives_file say what rounds.number: 0 never trains on")
    if (r.rounds.number > given or r.pseudo_labels is not None) and "train" not in r.search.splits:
        raise ValueError("search.splits lacks train, which negatives are mined for")
    if r.rerank is None:
        if r.ensemble > 1:
            raise ValueError(f"ensemble ({r.ensemble}) is of cross-encoders that rerank: set rerank")
        return
    absent = [split for split in r.rerank.splits if split not in r.search.splits]
    if absent:
        raise ValueError(f"rerank.splits: {absent[0]} is not in search.splits")
    if r.stage1.loss == "learning_to_rank" and not r.rounds.number:
        raise ValueError("rerank: stage 1's learning_to_rank leaves no run to rerank")


def teacher(r: Sections) -> None:
    """Losses and the cross-encoder's stages, where they do not go together."""
    if r.stage1.loss == "soft_labels":
        raise ValueError("stage1.loss: soft_labels need mined negatives scored by a cross-encoder: stage2.loss")
    if r.stage1.loss == "learning_to_rank" and r.rounds.number and not (r.rounds.miner or r.negatives_file):
        raise ValueError("stage1.loss: learning_to_rank finds nothing to mine: set rounds.number to 0")
    if r.stage2.loss == "learning_to_rank":
        raise ValueError("stage2.loss: learning_to_rank is for stage 1, to compare with")
    if r.stage2.loss == "soft_labels":
        if r.pseudo_labels is not None:
            raise ValueError("stage2.loss: soft_labels are not scored for pseudo_labels: set pseudo_labels to null")
        depth, scored = r.stage2.negative_depth, r.soft_labels.negative_depth
        if scored is not None and (depth is None or depth > scored):
            raise ValueError(
                f"stage2.negative_depth ({depth or 'null'}) is beyond soft_labels.negative_depth ({scored})"
            )
        if r.stage2.negatives_from != r.soft_labels.negatives_from:
            raise ValueError("stage2.negatives_from and soft_labels.negatives_from differ")
    if r.teaches and not r.rounds.number:
        raise ValueError("rounds.number: soft labels, denoise and pseudo_labels are for stage 2, which 0 leaves out")
    if r.pseudo_labels is not None and not r.search.unjudged_train_questions:
        raise ValueError("pseudo_labels needs search.unjudged_train_questions: true")
    if r.ensemble > 1 and r.cross_encoder.checkpoint is not None:
        raise ValueError("ensemble: one cross_encoder.checkpoint is one model: set ensemble to 1")
    thresholds = r.denoise is not None or r.pseudo_labels is not None
    if thresholds and r.cross_encoder.checkpoint is None and r.cross_encoder.loss != "pointwise":
        raise ValueError("cross_encoder.loss: denoise and pseudo_labels need thresholds, and so `pointwise`")

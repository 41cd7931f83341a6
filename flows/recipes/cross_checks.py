"""Checks that the sections of a recipe fit together, before a run fails after hours.

The functions raise ValueError, as pydantic's validators do. flows/recipes/recipe.py adds the place in the file.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from flows.recipes.sections import Sections
from pipeline.advice import option
from pipeline.cross_encoder.lengths import pair_special_tokens

if TYPE_CHECKING:
    from pipeline.finetune.config import ExamplesConfig
    from pipeline.finetune.soft_label_pairs import SoftLabelsConfig

Limit = tuple[str, int, str, int]
"""A field, its value, the field that limits it, and the value of that field."""


def check(recipe: Sections) -> None:
    """All checks. Raises ValueError for the first problem."""
    limits: list[Limit] = [("report.answers", recipe.report.answers, "evaluate.answers", recipe.evaluate.answers)]
    if not {"dev", "test"} & {*recipe.search.splits}:
        raise ValueError("search.splits lacks dev and test, which are evaluated")
    if recipe.model is None:
        limits += [*list_limits(recipe), *length_limits(recipe)]
    elif recipe.rerank is not None:
        raise ValueError("model: rerank does not work with an existing model: set rerank to null")
    for name, value, limit_name, limit in limits:
        if value > limit:
            raise ValueError(f"{name} ({value}) is more than {limit_name} ({limit})")
    if recipe.model is None:
        check_passage_lengths(recipe)
        check_rounds(recipe)
        check_cross_encoder(recipe)
        check_heads(recipe)
    check_vectors(recipe)
    check_generate(recipe)
    if recipe.evaluate.others and recipe.existing_start is None:
        raise ValueError(
            "evaluate.others: measures an existing model before and after its training, but this recipe trains one "
            "from scratch: set it to [], or start from a model (--model)"
        )
    if recipe.adapt.queries is not None and recipe.bm25.run is not None:
        raise ValueError("adapt: bm25.run has no index for generated queries: set adapt.queries to null")


def check_generate(recipe: Sections) -> None:
    """Questions that a language model writes have passages, but come without negatives, and are searched by BM25."""
    if not recipe.generate.is_on or recipe.model is not None:
        return
    if recipe.bm25.run is not None:
        raise ValueError("generate: bm25.run has no lists for generated questions: set it to null")
    if recipe.negatives_file is not None:
        raise ValueError("generate: negatives_file has no negatives of generated questions: set it to null")
    readers: dict[str, ExamplesConfig | SoftLabelsConfig] = {"stage1": recipe.stage1, "stage2": recipe.stage2}
    if recipe.scores_pairs:
        readers["cross_encoder"] = recipe.cross_encoder
    if recipe.labels_training_questions:
        readers["soft_labels"] = recipe.soft_labels
    for name, section in readers.items():
        if section.negatives_from == "collection":
            raise ValueError(f"generate: {name}.negatives_from: generated questions come without negatives: set bm25")


def list_limits(recipe: Sections) -> list[Limit]:
    """A stage cannot read a list of passages deeper than another stage writes it."""
    limits = [("mine.depth", recipe.mine.depth, "search.train_depth", recipe.search.train_depth)]
    readers: dict[str, ExamplesConfig | SoftLabelsConfig] = {
        "stage1": recipe.stage1,
        "stage2": recipe.stage2,
    }
    if recipe.scores_pairs:
        readers |= {"cross_encoder": recipe.cross_encoder}
    if recipe.stage2.loss == "soft_labels":
        readers |= dict([stage2_labels(recipe)])
    if recipe.denoise is not None:
        readers |= {"soft_labels": recipe.soft_labels}
    for name, stage in readers.items():
        if stage.negatives_from == "bm25" and stage.negative_depth is not None:
            limits.append(
                (f"{name}.negative_depth", stage.negative_depth, "bm25.negatives_depth", recipe.bm25.negatives_depth)
            )
    if recipe.rerank is not None:
        limits.append(("rerank.depth", recipe.rerank.depth, "search.depth", recipe.search.depth))
    if recipe.pseudo_labels is not None:
        limits.append(
            ("pseudo_labels.depth", recipe.pseudo_labels.depth, "search.train_depth", recipe.search.train_depth)
        )
    return limits


def stage2_labels(recipe: Sections) -> "tuple[str, SoftLabelsConfig]":
    """The section that stage 2's soft labels come from, with its name."""
    if recipe.fusion_labels is not None:
        return "fusion_labels", recipe.fusion_labels
    return "soft_labels", recipe.soft_labels


def length_limits(recipe: Sections) -> list[Limit]:
    """A model from scratch has a limited number of positions and layers."""
    if any(_start_models(recipe)):
        return []
    lengths = {
        "condenser.length": recipe.condenser.length,
        "cocondenser.span_max + 2": recipe.cocondenser.span_max + 2,
        "stage1.passage_tokens": recipe.stage1.passage_tokens,
        "stage2.passage_tokens": recipe.stage2.passage_tokens,
        "encode.passage_tokens": recipe.encode.passage_tokens,
        "encoder.question_tokens": recipe.encoder.question_tokens,
    }
    if recipe.cross_encoder.checkpoint is None and recipe.cross_encoder_initial.is_own and recipe.scores_pairs:
        own = recipe.cross_encoder
        special = pair_special_tokens(recipe.initial.architecture)
        fewer = 4 - special  # two texts alone have four special tokens
        name = "cross_encoder.question_tokens + passage_tokens" + (f" - {fewer}" if fewer else "")
        lengths[name] = own.question_tokens + own.passage_tokens - fewer
    limits = [(name, n, "initial.max_position", recipe.initial.max_position) for name, n in lengths.items()]
    return [
        *limits,
        ("condenser.skip_from + 1", recipe.condenser.skip_from + 1, "initial.layers", recipe.initial.layers),
    ]


def check_passage_lengths(recipe: Sections) -> None:
    """Refuses to encode longer passages than fine-tuning sees: their vectors may be useless (docs/results.md)."""
    trained = {"stage1": recipe.stage1} | ({"stage2": recipe.stage2} if recipe.rounds.number else {})
    for name, stage in trained.items():
        if recipe.encode.passage_tokens > stage.passage_tokens:
            raise ValueError(
                f"encode.passage_tokens ({recipe.encode.passage_tokens}) is more than {name}.passage_tokens "
                f"({stage.passage_tokens}): fine-tuning would never see the ends of the passages that are searched"
            )


def check_vectors(recipe: Sections) -> None:
    """Refuses an approximate index without search settings, and dimensions that do not fit together."""
    if recipe.index.kind != "flat" and recipe.search.approximate is None:
        raise ValueError(f"search.approximate is null, but index.kind is {recipe.index.kind}")
    if recipe.encoder.dimensions is not None:
        check_prefixes(recipe, recipe.encoder.dimensions)
    if any(_start_models(recipe)):
        return
    dimensions = {"initial.hidden_size": recipe.initial.hidden_size, "encoder.projection": recipe.encoder.projection}
    known = {name: dimension for name, dimension in dimensions.items() if dimension is not None}
    cut = recipe.index.dimension
    for name, dimension in known.items():
        if cut is not None and cut > dimension:
            raise ValueError(f"index.dimension ({cut}) is more than {name} ({dimension})")
    if recipe.index.kind != "ivfpq":
        return
    if cut is not None:
        known = {"index.dimension": cut}
    for name, dimension in known.items():
        if dimension % recipe.index.pq_m:
            from pipeline.dense.index_kinds import most_parts

            fits = most_parts(recipe.index.pq_m, *known.values())
            raise ValueError(
                f"index.pq_m ({recipe.index.pq_m}) does not divide {name} ({dimension}): "
                f"take {option('index.pq_m', fits)}"
            )


def check_prefixes(recipe: Sections, dimensions: tuple[int, ...]) -> None:
    """Refuses `encoder.dimensions` with nothing to train, a loss without prefixes, or other than the whole vector."""
    if recipe.model is not None:
        raise ValueError(
            "encoder.dimensions: an existing model is not trained: set it to null, and index.dimension cuts its vectors"
        )
    if recipe.stage1.loss == "learning_to_rank":
        raise ValueError(
            "encoder.dimensions: stage1.loss: learning_to_rank weighs the numbers of whole vectors: "
            "set it to contrastive, or encoder.dimensions to null"
        )
    name, whole = "encoder.projection", recipe.encoder.projection
    if whole is None:
        if any(_start_models(recipe)):
            return  # the early checks know its size
        name, whole = "initial.hidden_size", recipe.initial.hidden_size
    if dimensions[0] != whole:
        raise ValueError(f"encoder.dimensions: the first ({dimensions[0]}) must be the whole vector, {name} ({whole})")


def _start_models(recipe: Sections) -> tuple[str | Path | None, ...]:
    """Existing models, of unknown shape. All None: training starts from scratch."""
    return (
        recipe.model,
        recipe.initial.pretrained,
        recipe.initial.checkpoint,
        recipe.condenser.checkpoint,
        recipe.cocondenser.checkpoint,
    )


def check_heads(recipe: Sections) -> None:
    """coCondenser must be able to continue with Condenser's head."""
    if recipe.condenser.skip_from != recipe.cocondenser.skip_from:
        raise ValueError(
            f"condenser.skip_from ({recipe.condenser.skip_from}) and cocondenser.skip_from "
            f"({recipe.cocondenser.skip_from}) differ, but one head reads them"
        )
    if recipe.condenser.objective != "condenser" and recipe.condenser.checkpoint is None and recipe.cocondenser.trains:
        raise ValueError(
            f"condenser.objective ({recipe.condenser.objective}) leaves no Condenser head for coCondenser: "
            "set cocondenser.budget to null"
        )


def check_rounds(recipe: Sections) -> None:
    """Mining and reranking need something to read."""
    from_file = recipe.negatives_file is not None
    if recipe.rounds.miner is not None and from_file:
        raise ValueError("rounds.miner and negatives_file both say where the first round's negatives come from")
    if (recipe.rounds.miner is not None or from_file) and not recipe.rounds.number:
        raise ValueError("rounds.miner and negatives_file are unused with rounds.number: 0")
    if (recipe.rounds.number > from_file or recipe.pseudo_labels is not None) and "train" not in recipe.search.splits:
        raise ValueError("search.splits lacks train, which negatives are mined for")
    if recipe.fusion_labels is not None and "train" not in recipe.search.splits:
        raise ValueError("search.splits lacks train, whose lists fusion_labels reads")
    if recipe.rerank is None:
        if recipe.ensemble > 1:
            raise ValueError(f"ensemble ({recipe.ensemble}) needs rerank, which is null")
        return
    absent = [split for split in recipe.rerank.splits if split not in recipe.search.splits]
    if absent:
        raise ValueError(f"rerank.splits: {absent[0]} is not in search.splits")
    if recipe.stage1.loss == "learning_to_rank" and not recipe.rounds.number:
        raise ValueError("rerank: stage 1's learning_to_rank leaves no run to rerank")


def check_cross_encoder(recipe: Sections) -> None:
    """Losses and the stages of the cross-encoder must fit together."""
    if recipe.stage1.loss == "soft_labels":
        raise ValueError("stage1.loss: soft_labels need mined negatives scored by a cross-encoder: stage2.loss")
    if (
        recipe.stage1.loss == "learning_to_rank"
        and recipe.rounds.number
        and not (recipe.rounds.miner or recipe.negatives_file)
    ):
        raise ValueError("stage1.loss: learning_to_rank finds nothing to mine: set rounds.number to 0")
    if recipe.stage2.loss == "learning_to_rank":
        raise ValueError("stage2.loss: learning_to_rank is for stage 1 alone")
    if recipe.stage2.loss == "soft_labels":
        if recipe.pseudo_labels is not None:
            raise ValueError("stage2.loss: soft_labels are not scored for pseudo_labels: set pseudo_labels to null")
        name, labels = stage2_labels(recipe)
        depth, scored = recipe.stage2.negative_depth, labels.negative_depth
        if scored is not None and (depth is None or depth > scored):
            raise ValueError(f"stage2.negative_depth ({depth or 'null'}) is beyond {name}.negative_depth ({scored})")
        if recipe.stage2.negatives_from != labels.negatives_from:
            raise ValueError(f"stage2.negatives_from and {name}.negatives_from differ")
    elif recipe.fusion_labels is not None:
        raise ValueError("fusion_labels: no stage reads them: set stage2.loss to soft_labels, or fusion_labels to null")
    if (recipe.teaches or recipe.stage2.loss == "soft_labels") and not recipe.rounds.number:
        raise ValueError("rounds.number: soft labels, denoise and pseudo_labels are for stage 2, which 0 leaves out")
    if recipe.pseudo_labels is not None and not recipe.search.unjudged_train_questions:
        raise ValueError("pseudo_labels needs search.unjudged_train_questions: true")
    check_folds(recipe)
    if recipe.ensemble > 1 and recipe.cross_encoder.checkpoint is not None:
        raise ValueError("ensemble: one cross_encoder.checkpoint is one model: set ensemble to 1")
    if recipe.cross_encoder.checkpoint is not None and not recipe.cross_encoder_initial.is_own:
        raise ValueError("cross_encoder_initial is unused with cross_encoder.checkpoint, which is not trained")
    thresholds = recipe.denoise is not None or recipe.pseudo_labels is not None
    if thresholds and recipe.cross_encoder.checkpoint is None and recipe.cross_encoder.loss != "pointwise":
        raise ValueError("cross_encoder.loss: denoise and pseudo_labels need thresholds, and so `pointwise`")


def check_folds(recipe: Sections) -> None:
    """Folds need a training, and a stage that scores training questions."""
    folds = recipe.cross_encoder.folds
    if folds is None:
        return
    if recipe.cross_encoder.checkpoint is not None:
        raise ValueError("cross_encoder.folds: cross_encoder.checkpoint is not trained here: set folds to null")
    if not recipe.labels_training_questions:
        raise ValueError("cross_encoder.folds: neither soft labels nor denoise read a cross-encoder: set folds to null")
    if recipe.ensemble > 1:
        raise ValueError(f"ensemble: the {folds} cross-encoders of cross_encoder.folds rerank: set ensemble to 1")

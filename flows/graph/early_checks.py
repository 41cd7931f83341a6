"""What is bound to fail later, told once the first stages are there: not after days of pre-training."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.records import Ref
from flows.dag import Node
from flows.recipes.recipe import Recipe
from pipeline.advice import Unfit, check_fits, option, raise_together
from pipeline.cross_encoder.cross_encoder import CrossEncoderConfig, check_cross_encoder
from pipeline.cross_encoder.soft_labels import ScoresConfig
from pipeline.data.collection import passage_id_array
from pipeline.data.stored import read_table
from pipeline.dense.encode import EncodeConfig
from pipeline.dense.index_kinds import IndexConfig, check_dimension, check_passages
from pipeline.errors import InputError
from pipeline.evaluate import systems
from pipeline.evaluate.config import SPLITS, EvaluateConfig
from pipeline.evaluate.questions import read_asked
from pipeline.finetune import training_pools
from pipeline.finetune.config import FinetuneConfig
from pipeline.finetune.finetune import check_finetune, smaller
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.model_config import model_config, positions
from pipeline.pretrain.cocondenser import CocondenserConfig, check_cocondenser
from pipeline.pretrain.condenser import CondenserConfig, check_condenser
from pipeline.pretrain.inverse_cloze import IctConfig, check_ict
from pipeline.runtime.work import silent
from pipeline.tokenization.token_files import Tokens

if TYPE_CHECKING:
    from pipeline.data.judged import Judged


def training_data(ingest: Ref, wanted: list[Node]) -> None:
    """Judged training questions and negatives, for every training that is wanted."""
    from pipeline.data.judged import read_judged
    from pipeline.finetune.pools import with_barred

    @cache  # seconds for millions of passages
    def questions(split: str) -> "Judged":
        return with_barred(ingest.path, read_judged(ingest.path, split))

    problems: list[InputError] = []
    for node in wanted:
        if not isinstance(node.config, FinetuneConfig | CrossEncoderConfig | ScoresConfig):
            continue
        config, name = node.config, section(node)
        if not ingest.metrics.get("train_relevant"):
            start = node.inputs.get("start")
            before = f"; `--until {start.name}` stops before it" if start else ""
            raise InputError(f"{node.name}: the collection has no training questions with a relevant passage{before}")
        if config.negatives_from == "collection" and not (ingest.path / "negatives.parquet").exists():
            problem = f"{name}.negatives_from: the collection came without negatives"
            problems.append(Unfit(problem, bm25_negatives(node)))
        try:
            if isinstance(config, FinetuneConfig):
                kinds = 2 if node.inputs["mined"] is not None and config.mix == "twice" else 1
                fits_finetune(name, config, questions, kinds if node.inputs["pseudo"] is None else None)
            elif isinstance(config, CrossEncoderConfig) and config.checkpoint is None:
                fits_cross_encoder(name, config, questions("train"))
        except Unfit as error:
            problems.append(Unfit(f"{name}: {error.problem}", error.options))
    raise_together(problems)


def fits_finetune(name: str, config: FinetuneConfig, questions: "Callable[[str], Judged]", kinds: int | None) -> None:
    check_fits(name, config, lambda c: check_finetune(c, questions, kinds), lambda: smaller(config, questions, kinds))


def fits_cross_encoder(name: str, config: CrossEncoderConfig, judged: "Judged") -> None:
    check_fits(name, config, lambda c: training_pools.check(c, judged), lambda: [training_pools.fewer(config, judged)])


def bm25_negatives(node: Node) -> list[str]:
    """The options by which a training takes BM25's negatives, no further down than these are kept."""
    bm25, depth = node.inputs.get("bm25"), getattr(node.config, "negative_depth", 0)
    changes: dict[str, str | int] = {"negatives_from": "bm25"}
    if bm25 is not None and depth > (kept := getattr(bm25.config, "negatives_depth", depth)):
        changes["negative_depth"] = kept
    together = ("stage2", "scores") if section(node) == "scores" else (section(node),)  # which must agree
    return [option(f"{name}.{field}", value) for name in together for field, value in changes.items()]


def evaluation(ingest: Ref, wanted: list[Node]) -> None:
    """Questions to evaluate with, and other systems' answers to them."""
    import pyarrow.compute as pc

    for node in wanted:
        if not isinstance(node.config, EvaluateConfig):
            continue
        least = node.config.relevance
        asked = {split: read_asked(ingest.path, split, least) for split in SPLITS}
        if not any(len(found.query_ids) for found in asked.values()):
            of = [("split", "in", SPLITS)]
            grades = read_table(ingest.path / "qrels.parquet", columns=["relevance"], filters=of)["relevance"]
            highest = pc.max(grades).as_py() or 0
            if highest >= 1:
                raise InputError(f"evaluate.relevance: {least}, but no judgement of dev and test is above {highest}")
            last = [given.name for given in node.inputs.values() if given][-1]
            raise InputError(
                "evaluate: the collection has no dev or test question with a relevant passage or answers; "
                f"`--until {last}` stops before it"
            )
        if node.config.systems:
            query_ids = {split: found.query_ids for split, found in asked.items()}
            systems.read(node.config.systems, query_ids, passage_id_array(ingest.path), silent)


def indexes(ingest: Ref, wanted: list[Node]) -> None:
    """Passages enough to train the kind of index that is asked for."""
    for node in wanted:
        collection = node.inputs.get("collection")
        if isinstance(node.config, IndexConfig) and collection and collection.name == "ingest":
            check_passages(node.config, int(ingest.metrics["passages"] or 0))


def texts(refs: Mapping[str, Ref], encoder: EncoderConfig, wanted: list[Node]) -> None:
    """Prefixes and titles, where a bi-encoder reads passages."""
    from pipeline.modeling.inputs import check_room, read_form

    limits = passage_tokens(wanted)
    if limits:
        form = read_form(encoder, refs["tokenizer"].path, Tokens.open(refs["tokens"].path).specials)
    for field, limit in limits.items():
        check_room("encoder.passage_prefix", form.before_passage, field, limit)


def models(refs: Mapping[str, Ref], recipe: Recipe, wanted: list[Node]) -> None:
    """Tokens, the initial model and every model that is trained from it, by their shapes."""
    mlm_head(refs["initial"], wanted)
    start = first_model(refs, recipe)
    pretraining(refs, start, wanted)
    begin = recipe.cocondenser.checkpoint or start
    lengths(recipe.encoder, begin, wanted)
    dimensions(recipe.encoder, begin, wanted)
    for node in wanted:
        if isinstance(node.config, CrossEncoderConfig):
            check_cross_encoder(node.config, refs["tokens"].path, begin, refs["tokenizer"].path)


def first_model(refs: Mapping[str, Ref], recipe: Recipe) -> Path:
    """The model that pre-training begins with."""
    return recipe.condenser.checkpoint or refs["initial"].path


def pretraining(refs: Mapping[str, Ref], start: Path | None, wanted: list[Node]) -> None:
    """What pre-training needs of its text and of a model of the shape of `start`, if that is there; all at once."""
    problems: list[InputError] = []
    for node in wanted:
        read = node.inputs.get("tokens")
        if read is None or read.name not in refs:
            continue
        tokens = refs[read.name].path
        try:
            if isinstance(node.config, CondenserConfig):
                check_condenser(node.config, tokens)
            elif isinstance(node.config, CocondenserConfig):
                check_cocondenser(node.config, tokens, start)
            elif isinstance(node.config, IctConfig):
                check_ict(node.config, tokens, start)
        except InputError as error:
            problems.append(error)
    raise_together(problems)


def lengths(encoder: EncoderConfig, start: Path, wanted: list[Node]) -> None:
    """What a bi-encoder reads, against the positions of a model of the shape of `start`, from which it is trained."""
    limits = passage_tokens(wanted)
    if limits:
        limits |= {"encoder.question_tokens": encoder.question_tokens}
    for field, limit in limits.items():
        if limit > (room := positions(model_config(start))):
            raise InputError(f"{field}: {limit} tokens, but the model in {start} has {room} positions")


def dimensions(encoder: EncoderConfig, start: Path, wanted: list[Node]) -> None:
    """What indexes need of the vectors of models that are trained from one of the shape of `start`."""
    hidden = int(model_config(start)["hidden_size"])
    found: dict[IndexConfig, set[int]] = {}
    for node in wanted:
        if isinstance(node.config, IndexConfig):
            encode = node.inputs["embeddings"]
            model = encode.inputs["checkpoint"] if encode else None
            if model and model.stage != "adopt":  # whose shape is its own
                dimension = encoder.projection or hidden if model.stage == "finetune" else hidden
                found.setdefault(node.config, set()).add(dimension)
    for config, together in found.items():
        check_dimension(config, *sorted(together))


def passage_tokens(wanted: list[Node]) -> dict[str, int]:
    """{field of the recipe: tokens} of the nodes in which a bi-encoder reads passages."""
    own = [(section(node), node.config) for node in wanted if isinstance(node.config, FinetuneConfig | EncodeConfig)]
    return {f"{name}.passage_tokens": config.passage_tokens for name, config in own}


def section(node: Node) -> str:
    """The recipe's: `stage2` of stage2-2, `encode` of encode-stage1."""
    return "cross_encoder" if node.stage == "cross_encoder" else node.name.partition("-")[0]


def mlm_head(initial: Ref, wanted: list[Node]) -> None:
    """A head for masked language modelling, wherever there is pre-training."""
    for node in wanted:
        start = node.inputs.get("start")
        if not isinstance(node.config, CondenserConfig | CocondenserConfig | IctConfig) or node.config.checkpoint:
            continue
        if start and start.name == "initial" and initial.metrics.get("mlm_head") == "none":
            raise InputError(
                f"{node.name}: the initial model has no head for masked language modelling: set "
                "initial.new_mlm_head to true, or the steps of ict, condenser and cocondenser to 0 (and their epochs "
                "and tokens to null)"
            )

"""The sections and fields of a recipe."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from artifacts.schema import Name
from pipeline.adapt.config import AdaptConfig
from pipeline.bm25.bm25 import BM25Config
from pipeline.config import Config
from pipeline.cross_encoder.cross_encoder import CrossEncoderConfig
from pipeline.cross_encoder.rerank import RerankConfig
from pipeline.data.ingest import IngestConfig
from pipeline.dense.encode import EncodeConfig
from pipeline.dense.index_kinds import IndexConfig
from pipeline.dense.search import SearchConfig
from pipeline.evaluate.attention import AttentionConfig
from pipeline.evaluate.config import EvaluateConfig
from pipeline.finetune.config import FinetuneConfig, TrainSubset
from pipeline.finetune.soft_label_pairs import SoftLabelsConfig
from pipeline.generate.config import GenerateConfig
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.initial import InitialConfig
from pipeline.negatives.denoise import DenoiseConfig
from pipeline.negatives.from_file import NegativesFileConfig
from pipeline.negatives.mine import MineConfig
from pipeline.negatives.pseudo_labels import PseudoLabelsConfig
from pipeline.pretrain.cocondenser import CocondenserConfig
from pipeline.pretrain.condenser import CondenserConfig
from pipeline.pretrain.inverse_cloze import IctConfig
from pipeline.report.build import ReportConfig
from pipeline.runtime import hub
from pipeline.runtime.work import Machine
from pipeline.tokenization.tokenizer import TokenizerConfig
from pipeline.tokenization.tokens import TokensConfig
from tasks.tracking import Tracking


class Rounds(Config):
    """Rounds of mining and training."""

    number: int = Field(ge=0, le=9)
    """How often negatives are mined and stage 2 is trained. From round 2 on, the model of the last round mines.
    0: stage 1 alone. 1 in coCondenser."""
    start: Literal["pretrained", "previous"]
    """The start of each later round: the pre-trained model, or the model of the last round (ANCE's refresh)."""
    miner: Path | None
    """A fine-tuned checkpoint that mines the first round's negatives instead of stage 1 (Condenser, table 2: its
    BERT row with mined negatives). It brings its own tokenizer."""


class CrossEncoderInitial(Config):
    """Another model that cross-encoders start from, from `pretrained` or `checkpoint`. It brings its own tokenizer."""

    pretrained: str | None = Field(pattern=hub.HUB_NAME)
    """Name of a Hugging Face model of a supported type (docs/encoders.md)."""
    revision: str
    """Branch, tag or commit of `pretrained`. Only a commit pins the content."""
    checkpoint: Path | None
    """A local folder with such a model and its tokenizer."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.pretrained is not None and self.checkpoint is not None:
            raise ValueError("pretrained and checkpoint are both set: set one of them")
        return self

    @property
    def is_own(self) -> bool:
        """Whether cross-encoders start from the recipe's own pre-trained model."""
        return self.pretrained is None and self.checkpoint is None


class Sections(Config):
    """The fields of a recipe. Complete: no field has a default."""

    name: Name
    """The recipe's file without `.yaml`."""
    title: str
    """One line for the listing and the report."""
    description: str
    """What the recipe needs and builds, and how long it takes, in a few lines."""
    example_question: str | None
    """A question that this collection answers; a run shows it at its end."""
    hidden: bool
    """Whether listings leave the recipe out, for example because it is for tests."""

    model: Path | None
    """An existing bi-encoder, evaluated instead of a trained one; `tokenizer` names its tokenizer. null: train."""
    ingest: IngestConfig
    """The collection that is searched, and its questions."""
    pretraining: IngestConfig | None
    """General text for Condenser, for the embeddings of a model from scratch, and for the stages whose field `corpus`
    names it. null: all of them read the collection."""
    tokenizer: TokenizerConfig
    tokens: TokensConfig
    encoder: EncoderConfig
    """The bi-encoder in every stage: how it reads texts, and how it computes a vector from the last layer."""
    initial: InitialConfig
    """The model before any pre-training."""
    ict: IctConfig
    """The Inverse Cloze Task, for comparison. Without a budget or a checkpoint there is no such stage."""
    condenser: CondenserConfig
    cocondenser: CocondenserConfig
    bm25: BM25Config
    adapt: AdaptConfig
    """Adapts a model without questions. `model`: the adapted model answers. Else it is a row to compare with, and
    fine-tuning starts from the model as it is."""
    generate: GenerateConfig
    """Training questions that a language model writes. Without a model there is no such stage."""
    train_subset: TrainSubset
    stage1: FinetuneConfig
    """Fine-tuning on BM25 negatives."""
    stage2: FinetuneConfig
    """Fine-tuning, again from the pre-trained model, on BM25 and mined negatives."""
    rounds: Rounds
    negatives_file: NegativesFileConfig | None
    """Negatives from a file instead of the first round's mined ones."""
    cross_encoder: CrossEncoderConfig
    """Trained only if a section below, or soft labels in stage 2, need it."""
    cross_encoder_initial: CrossEncoderInitial
    """What cross-encoders start from: the recipe's own pre-trained model, or another model with its own tokenizer."""
    ensemble: int = Field(ge=1, le=9)
    """How many cross-encoders, trained with different seeds, rerank together. 1 with `cross_encoder.folds`: those of
    the folds rerank together."""
    soft_labels: SoftLabelsConfig
    """The cross-encoder's scores, for stage 2 and for denoising."""
    fusion_labels: SoftLabelsConfig | None
    """Soft labels for stage 2 by the fusion of BM25 and the model that it starts from, instead of the cross-encoder's.
    null: those of the cross-encoder."""
    denoise: DenoiseConfig | None
    """Removes mined negatives that the cross-encoder finds relevant. null: keeps all."""
    pseudo_labels: PseudoLabelsConfig | None
    """More training questions, which the cross-encoder labels. null: none."""
    rerank: RerankConfig | None
    """Reranks the last dense run by the cross-encoder. null: no reranking."""
    encode: EncodeConfig
    index: IndexConfig
    search: SearchConfig
    mine: MineConfig
    """Mines negatives from the passages that stage 1 retrieves for the training questions."""
    evaluate: EvaluateConfig
    attention: AttentionConfig
    """How widely [CLS] attends before and after fine-tuning, for the report. With 0 sections there is no such stage."""
    report: ReportConfig
    machine: Machine
    """How to run. Changes no result, and is in no cache key."""
    tracking: Tracking
    """Where trainings are logged. Changes no result, and is in no cache key."""

    def has_stage(self, section: Literal["ict", "condenser", "cocondenser"]) -> bool:
        """Whether a pre-training is a stage of the run: it trains, or has a finished checkpoint.

        coCondenser's training needs the head of Condenser.
        """
        config = getattr(self, section)
        needed = section == "condenser" and self.cocondenser.trains
        return config.checkpoint is not None or config.budget is not None or needed

    def section(self, name: str) -> Any:
        """A section that has no field above: that of a stage that only flows/dag.py knows. May be None."""
        return getattr(self, name)

    @property
    def reads_general_text(self) -> bool:
        """Whether a stage reads the text `pretraining`. A finished checkpoint needs none of its inputs."""
        if self.cocondenser.checkpoint is not None:
            return False
        corpus_aware = self.has_stage("cocondenser") and self.cocondenser.corpus == "pretraining"
        if self.condenser.checkpoint is not None:
            return corpus_aware
        cloze = self.has_stage("ict") and self.ict.checkpoint is None and self.ict.corpus == "pretraining"
        begins = self.initial.reads_passages and self.ict.checkpoint is None
        return self.has_stage("condenser") or corpus_aware or cloze or begins

    @property
    def existing_start(self) -> str | None:
        """The section, and the node, of the existing model that the trainings start from. None: from scratch."""
        if self.model is not None:
            return "model"
        given = [name for name in ("cocondenser", "condenser", "ict") if getattr(self, name).checkpoint is not None]
        existing = self.initial.checkpoint is not None or self.initial.pretrained is not None
        return next(iter(given), "initial" if existing else None)

    @property
    def starts_from_embedding_model(self) -> bool:
        """Whether fine-tuning starts from an existing model without pre-training here: likely one that embeds texts."""
        return self.existing_start == "initial" and not any(
            self.has_stage(name) for name in ("ict", "condenser", "cocondenser")
        )

    @property
    def labels_training_questions(self) -> bool:
        """Whether a cross-encoder scores the questions that it may be trained on."""
        return (self.stage2.loss == "soft_labels" and self.fusion_labels is None) or self.denoise is not None

    @property
    def teaches(self) -> bool:
        """Whether stage 2 needs a cross-encoder."""
        return self.labels_training_questions or self.pseudo_labels is not None

    @property
    def scores_pairs(self) -> bool:
        """Whether a stage needs a cross-encoder."""
        return self.teaches or self.rerank is not None

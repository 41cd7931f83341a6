"""The sections of a recipe: everything that a run computes and how."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from artifacts.schema import Name
from pipeline.bm25.bm25 import BM25Config
from pipeline.config import Config
from pipeline.cross_encoder.cross_encoder import CrossEncoderConfig
from pipeline.cross_encoder.rerank import RerankConfig
from pipeline.cross_encoder.soft_labels import SoftLabelsConfig
from pipeline.data.ingest import IngestConfig
from pipeline.dense.encode import EncodeConfig
from pipeline.dense.index_kinds import IndexConfig
from pipeline.dense.search import SearchConfig
from pipeline.evaluate.attention import AttentionConfig
from pipeline.evaluate.config import EvaluateConfig
from pipeline.finetune.config import FinetuneConfig, TrainSubset
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
from pipeline.runtime.work import Machine
from pipeline.tokenization.tokenizer import TokenizerConfig
from pipeline.tokenization.tokens import TokensConfig
from tasks.tracking import Tracking


class Rounds(Config):
    """Mining and training in turn."""

    number: int = Field(ge=0, le=9)
    """Times that negatives are mined and stage 2 is trained; from the second on, mined by the last one's model. 0:
    stage 1 alone. 1 in coCondenser."""
    start: Literal["pretrained", "previous"]
    """What each later round trains from: the pre-trained model, or the round's before (ANCE's refresh)."""
    miner: Path | None
    """A fine-tuned checkpoint that mines the first round's negatives instead of stage 1 (Condenser, table 2: its
    BERT row with mined negatives)."""


class Sections(Config):
    """The fields of a recipe. Complete: no field has a default."""

    name: Name
    """The recipe's file without `.yaml`."""
    title: str
    """One line for the listing and the report."""
    description: str
    """What it needs, what it takes and what it gives, in a few lines."""
    example_question: str | None
    """A question that this collection answers, shown at the end of a run."""
    hidden: bool
    """Left out of the listing: a recipe for tests."""

    model: Path | None
    """A finished bi-encoder, whose tokenizer `tokenizer` names: it answers and nothing is trained. null: as below."""
    ingest: IngestConfig
    """The collection that is searched, and its questions."""
    pretraining: IngestConfig | None
    """General text, read by Condenser, by the embeddings of a model from scratch, and by what else names it in its
    field `corpus`; null: these too take the collection."""
    tokenizer: TokenizerConfig
    tokens: TokensConfig
    encoder: EncoderConfig
    """The bi-encoder: how texts are read and what is made of the last layer, in every stage."""
    initial: InitialConfig
    """The model before any pre-training."""
    ict: IctConfig
    """The Inverse Cloze Task, for comparison. Left out without a budget."""
    condenser: CondenserConfig
    cocondenser: CocondenserConfig
    bm25: BM25Config
    train_subset: TrainSubset
    stage1: FinetuneConfig
    """Fine-tuning on BM25 negatives."""
    stage2: FinetuneConfig
    """Fine-tuning, again from the pre-trained model, on BM25 and mined negatives."""
    rounds: Rounds
    negatives_file: NegativesFileConfig | None
    """Negatives from a file instead of the first round's mined ones."""
    cross_encoder: CrossEncoderConfig
    """Trained only where a section below, or soft labels in stage 2, need it."""
    ensemble: int = Field(ge=1, le=9)
    """Cross-encoders that rerank together, trained from different seeds."""
    soft_labels: SoftLabelsConfig
    """Scores of the cross-encoder for stage 2 and for denoising."""
    denoise: DenoiseConfig | None
    """Mined negatives without what the cross-encoder takes for relevant; null: as mined."""
    pseudo_labels: PseudoLabelsConfig | None
    """Further training questions that the cross-encoder labels; null: none."""
    rerank: RerankConfig | None
    """The last dense run reranked by the cross-encoder; null: not."""
    encode: EncodeConfig
    index: IndexConfig
    search: SearchConfig
    mine: MineConfig
    """Negatives from what stage 1 finds for the training questions."""
    evaluate: EvaluateConfig
    attention: AttentionConfig
    """How widely [CLS] attends before and after fine-tuning, for the report; left out where its sections are 0."""
    report: ReportConfig
    machine: Machine
    """How to run; changes no result and enters no key."""
    tracking: Tracking
    """Where the trainings can be followed; as little."""

    def trains(self, section: Literal["ict", "condenser", "cocondenser"]) -> bool:
        """Whether a pre-training has something to do or to give; else what it would read passes by.

        A coCondenser that trains needs the head that Condenser makes.
        """
        own = getattr(self, section)
        needed = section == "condenser" and self.cocondenser.trains
        return own.checkpoint is not None or own.budget is not None or needed

    def section(self, name: str) -> Any:
        """A section that has no field above: of a stage that only flows/dag.py knows. None where it is null."""
        return getattr(self, name)

    @property
    def reads_general_text(self) -> bool:
        """Whether anything is made of the text `pretraining`; what is finished needs nothing that it was made from."""
        if self.cocondenser.checkpoint is not None:
            return False
        corpus_aware = self.trains("cocondenser") and self.cocondenser.corpus == "pretraining"
        if self.condenser.checkpoint is not None:
            return corpus_aware
        cloze = self.trains("ict") and self.ict.checkpoint is None and self.ict.corpus == "pretraining"
        begins = self.initial.reads_passages and self.ict.checkpoint is None
        return self.trains("condenser") or corpus_aware or cloze or begins

    @property
    def teaches(self) -> bool:
        """Whether stage 2 needs a cross-encoder."""
        return self.stage2.loss == "soft_labels" or self.denoise is not None or self.pseudo_labels is not None

"""How much text a node reads: counted by finished stages, else guessed from the sizes of the source's files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from artifacts.records import Ref
from flows.graph.plan import Step
from pipeline.data.collection import SPLITS
from pipeline.data.readers import beir
from pipeline.data.readers.folder import list_files
from pipeline.data.readers.pydocs import PydocsConfig
from pipeline.data.readers.several import SeveralConfig
from pipeline.data.readers.text_config import TextConfig
from pipeline.data.stored import read_table
from pipeline.data.text import text_files
from pipeline.data.text.token_estimate import BYTES_PER_TOKEN
from pipeline.errors import InputError
from pipeline.generate.config import GenerateConfig
from tasks.keys import sources_of
from tasks.node import Node

COMPRESSION = 2.5
"""Size of a text relative to its compressed file, markup of its format left out."""
TEXT_SHARE = {
    ".py": 0.3,
    **dict.fromkeys((".html", ".htm", ".xhtml"), 0.33),
    ".pdf": 0.4,
    # Compressed by their format.
    ".docx": 3.0,
    ".pptx": 0.15,
    ".epub": 1.5,
}
"""Text that is read, as a share of a file (own): of 590 pages of software documentation; of 3 manuals in PDF; of 38
pages of PostgreSQL's documentation as Word, PowerPoint and EPUB without pictures."""
TOKENS_PER_WORD = 1.4
FILLED = 0.65
"""Length of a passage relative to `passage_words`: most documents end before."""
PASSAGE, TITLE, QUESTION, DOCUMENT = 150.0, 10.0, 15.0, 300.0
"""Tokens, where nothing is known of the texts."""
OWN_QUESTIONS = 0.25
"""Questions of all splits for each passage, where the reader makes them out of the texts."""
OWN_SHARES = 0.1, 0.1
"""Shares of dev and test among them, unless the reader has fields for these."""


@dataclass(frozen=True)
class TextSize:
    """The texts of a collection, without special tokens."""

    passages: float
    documents: float
    tokens: float
    """Of all passages."""
    title: float
    """Tokens of a title, on average."""
    question: float
    questions: Mapping[str, int] | None
    """By split. None: unknown."""
    unjudged: int | None = None
    """Training questions without a relevant passage. None: unknown."""

    @property
    def train_questions(self) -> int | None:
        return None if self.questions is None else self.questions["train"]

    @property
    def passage(self) -> float:
        """Tokens of a passage, on average."""
        return self.tokens / self.passages

    @property
    def document(self) -> float:
        return self.tokens / self.documents


def text_size(tokens: Node, steps: dict[str, Step]) -> TextSize | None:
    """Returns the size of the texts of a node `tokens`. None if their source does not show how large they are.

    `steps`: of the plan, by node, with those of `tokens` and of its collection.
    """
    collection = tokens.inputs["collection"]
    assert collection is not None
    size, counts = collection_size(collection, steps), steps[tokens.name].ref
    if size is None or counts is None:
        return size
    return _of_tokens(counts.metrics, size)


def collection_size(collection: Node, steps: dict[str, Step]) -> TextSize | None:
    """Returns the size of the texts of a node `ingest` or `generate`, as `text_size` does."""
    ref = steps[collection.name].ref
    if ref is not None:
        return _of_ingest(ref)
    source = collection.inputs.get("collection")
    if source is None:
        return _of_sources(collection)
    size, config = collection_size(source, steps), collection.config
    assert isinstance(config, GenerateConfig)
    return size and _with_generated(size, config)


def _with_generated(size: TextSize, config: GenerateConfig) -> TextSize:
    """As if every answer gave all its questions, and every question found its passage."""
    passages = min(size.passages, config.passages or size.passages)
    own = size.questions or dict.fromkeys(SPLITS, 0)
    kept = own["train"] if config.keep_questions else 0
    written = round(passages * len(config.kinds) * config.questions)
    return replace(size, questions={**own, "train": kept + written})


def _of_tokens(metrics: dict[str, Any], size: TextSize) -> TextSize | None:
    passages, queries = int(metrics["passages"]), int(metrics["queries"])
    return _sized(
        passages=passages,
        documents=int(metrics["documents"]),
        tokens=int(metrics["passage_tokens"]),
        title=metrics["title_tokens"] / passages if passages else 0.0,
        question=metrics["query_tokens"] / queries if queries else QUESTION,
        questions=size.questions,
        unjudged=size.unjudged,
    )


def _of_ingest(ref: Ref) -> TextSize | None:
    metrics = ref.metrics
    questions = {split: int(metrics.get(f"{split}_queries") or 0) for split in SPLITS}
    return _sized(
        passages=int(metrics["passages"]),
        documents=int(metrics["documents"]),
        tokens=TOKENS_PER_WORD * int(metrics["words"]),
        questions=questions,
        unjudged=_unjudged(ref.path, questions["train"]),
    )


def _unjudged(collection: Path, questions: int) -> int | None:
    """None if the judgements cannot be read: a run reports it."""
    try:
        judged = read_table(
            collection / "qrels.parquet", columns=["query_id"], filters=[("split", "=", "train"), ("relevance", ">", 0)]
        )
    except InputError:
        return None
    return questions - len(judged["query_id"].unique())


def _of_sources(node: Node) -> TextSize | None:
    config: Any = node.config
    try:
        tokens = _text_bytes(node) / BYTES_PER_TOKEN
        questions = _questions(config)
    except (InputError, OSError):  # a run reports it
        return None
    limit = getattr(config, "limit", None)
    tokens = min(tokens, limit * DOCUMENT) if limit else tokens
    words = getattr(config, "passage_words", None)
    passages = max(1.0, tokens / (FILLED * words * TOKENS_PER_WORD if words else PASSAGE))
    if isinstance(config, TextConfig | PydocsConfig):
        questions = _generated(config, passages)
    return _sized(
        passages=passages,
        documents=max(1.0, min(passages, tokens / DOCUMENT)),
        tokens=tokens,
        questions=questions,
    )


def _sized(**fields: Any) -> TextSize | None:
    """None for a collection without text."""
    if min(fields["passages"], fields["documents"], fields["tokens"]) <= 0:
        return None
    return TextSize(**{"title": TITLE, "question": QUESTION, **fields})


def _text_bytes(node: Node) -> float:
    """The bytes of text in a node's sources; of a reader of tables those of its largest file, which is the corpus."""
    config: Any = node.config
    if isinstance(config, TextConfig):
        return sum(map(_content, list_files(config).paths.values()))
    if isinstance(config, beir.BeirConfig):
        corpus = text_files.find(config.folder, "corpus.jsonl")
        return _content(corpus) if corpus is not None else 0.0
    files = [path for path in sources_of(node.stage, config).values() if path.is_file()]
    sizes = [_content(path) for path in files]
    return sum(sizes) if isinstance(config, PydocsConfig | SeveralConfig) else max(sizes, default=0.0)


def _content(path: Path) -> float:
    packed = COMPRESSION if path.suffix in text_files.ENDINGS else 1.0
    ending = Path(text_files.plain_name(path)).suffix.lower()
    return path.stat().st_size * packed * TEXT_SHARE.get(ending, 1.0)


def _generated(config: TextConfig | PydocsConfig, passages: float) -> dict[str, int]:
    """The questions that the reader makes, by split."""
    dev, test = (config.dev_share, config.test_share) if isinstance(config, TextConfig) else OWN_SHARES
    shares = {"train": 1 - dev - test, "dev": dev, "test": test}
    return {split: int(OWN_QUESTIONS * passages * share) for split, share in shares.items()}


def _questions(config: Any) -> dict[str, int] | None:
    """The judged questions of a folder in BEIR's layout, by split; None of another reader."""
    if not isinstance(config, beir.BeirConfig):
        return None
    files = beir.qrels_files(config.folder)
    return {split: _judged_questions(files[split]) if split in files else 0 for split in SPLITS}


def _judged_questions(path: Path) -> int:
    with text_files.open_binary(path) as lines:
        return len({line.split(b"\t", 1)[0] for line in lines} - {b"query-id"})

"""Compares the exported tokenizer's inputs with those of the project's encoders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.collection import at_rows, read_queries
from pipeline.export.source import Sample, Source, prompt
from pipeline.modeling.sentence_transformers_files import side
from pipeline.runtime.work import Progress


def differing(source: Source, folder: Path, texts: Sample, progress: Progress) -> dict[str, int]:
    """Returns the sample's numbers of questions and passages, and of those that `folder`'s model reads differently.

    These are passages with a title that the project cuts.
    """
    from transformers import AutoTokenizer

    query = AutoTokenizer.from_pretrained(side(folder, "query"))
    passage = AutoTokenizer.from_pretrained(side(folder, "passage"))
    queries = read_queries(source.collection)
    before = prompt(source.encoder.question_prefix)
    questions = [before + queries[place].text for place in texts.questions]
    rows = at_rows(source.collection / "passages.parquet", texts.passages, ["title", "text"]).to_pylist()
    passages = [_passage_input(source, row["title"], row["text"]) for row in rows]
    progress(0, len(questions) + len(passages), "texts")
    return {
        "questions": len(questions),
        "questions_differing": _unequal(query, questions, source.encoder.question_tokens, texts.question_rows),
        "passages": len(passages),
        "passages_differing": _unequal(passage, passages, source.passage_tokens, texts.passage_rows),
    }


def _passage_input(source: Source, title: str, text: str) -> str | tuple[str, str]:
    """Returns a passage as input of sentence-transformers, after its prompt."""
    before = prompt(source.encoder.passage_prefix)
    return (before + title, text) if title and source.encoder.title_tokens else before + text


def _unequal(tokenizer: Any, texts: Sequence[Any], longest: int, rows: Sequence[np.ndarray]) -> int:
    token_ids = [tokenizer([text], truncation=True, max_length=longest)["input_ids"][0] for text in texts]
    return sum(ids != row.tolist() for ids, row in zip(token_ids, rows, strict=True))

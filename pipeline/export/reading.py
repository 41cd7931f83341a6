"""Whether the exported tokenizer reads texts as the project's encoders have read them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.collection import at_rows, read_queries
from pipeline.export.source import Sample, Source, prompt
from pipeline.modeling.sentence_transformers_files import side
from pipeline.runtime.work import Progress


def differing(source: Source, folder: Path, texts: Sample, progress: Progress) -> dict[str, int]:
    """Of the sample: questions and passages, and those of which the model in `folder` would read other tokens.

    These are passages whose title is longer than the project keeps of it.
    """
    from transformers import AutoTokenizer

    query = AutoTokenizer.from_pretrained(side(folder, "query"))
    passage = AutoTokenizer.from_pretrained(side(folder, "passage"))
    queries = read_queries(source.collection)
    before = prompt(source.encoder.question_prefix)
    asked = [before + queries[place].text for place in texts.questions]
    passages = at_rows(source.collection / "passages.parquet", texts.passages, ["title", "text"]).to_pylist()
    given = [_given(source, passage["title"], passage["text"]) for passage in passages]
    progress(0, len(asked) + len(given), "texts")
    return {
        "questions": len(asked),
        "questions_differing": _unequal(query, asked, source.encoder.question_tokens, texts.question_rows),
        "passages": len(given),
        "passages_differing": _unequal(passage, given, source.passage_tokens, texts.passage_rows),
    }


def _given(source: Source, title: str, text: str) -> str | tuple[str, str]:
    """A passage as it is handed to sentence-transformers, after its prompt."""
    before = prompt(source.encoder.passage_prefix)
    return (before + title, text) if title and source.encoder.title_tokens else before + text


def _unequal(tokenizer: Any, texts: Sequence[Any], longest: int, rows: Sequence[np.ndarray]) -> int:
    found = [tokenizer([text], truncation=True, max_length=longest)["input_ids"][0] for text in texts]
    return sum(ids != row.tolist() for ids, row in zip(found, rows, strict=True))

"""Sentences as rows of ids, tokenised as they are needed: a batch's tokens take no time beside its update."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.modeling.inputs import check_room
from pipeline.modeling.sentence_transformers_files import read_vector
from pipeline.sentences.model import SentenceEncoder
from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens


class Sentences:
    """How a checkpoint of stage `sentence_model` reads sentences."""

    def __init__(self, checkpoint: Path, encoder: SentenceEncoder) -> None:
        """Raises InputError where the prefix leaves no room for a sentence."""
        self._tokenizer = read_tokenizer(checkpoint)
        self.specials = special_tokens(self._tokenizer)[0]
        self._prefix, self._limit = read_vector(checkpoint).question_prefix, encoder.tokens
        before = self._tokenizer.encode(self._prefix, add_special_tokens=False).ids
        check_room("encoder.prefix", before, "encoder.tokens", self._limit)

    def rows(self, texts: Sequence[str]) -> list[np.ndarray]:
        """`[CLS] prefix sentence [SEP]` of each, int64 [at most `tokens`]; a sentence's end is cut."""
        read = self._tokenizer.encode_batch_fast([self._prefix + text for text in texts], add_special_tokens=False)
        cls, sep, room = self.specials.cls, self.specials.sep, self._limit - 2
        return [np.array([cls, *one.ids[:room], sep], np.int64) for one in read]

    def cut(self, rows: Sequence[np.ndarray]) -> int:
        """How many rows may have lost their end: those that fill the room."""
        return sum(len(row) == self._limit for row in rows)

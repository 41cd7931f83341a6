"""Tokenizes sentences batch by batch: this takes negligible time compared with the update."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.modeling.inputs import check_room
from pipeline.modeling.sentence_transformers_files import read_vector
from pipeline.sentences.model import SentenceEncoder
from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens


class Sentences:
    """Tokenizes sentences for a checkpoint of stage `sentence_model`."""

    def __init__(self, checkpoint: Path, encoder: SentenceEncoder) -> None:
        """Raises InputError if the prefix leaves no room for a sentence."""
        self._tokenizer = read_tokenizer(checkpoint)
        self.specials = special_tokens(self._tokenizer)[0]
        self._prefix, self._limit = read_vector(checkpoint).question_prefix, encoder.tokens
        before = self._tokenizer.encode(self._prefix, add_special_tokens=False).ids
        check_room("encoder.prefix", before, "encoder.tokens", self._limit)

    def rows(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Returns `[CLS] prefix sentence [SEP]` of each, int64 [at most `tokens`]; long sentences are cut."""
        encodings = self._tokenizer.encode_batch_fast([self._prefix + text for text in texts], add_special_tokens=False)
        cls, sep, room = self.specials.cls, self.specials.sep, self._limit - 2
        return [np.array([cls, *one.ids[:room], sep], np.int64) for one in encodings]

    def cut(self, rows: Sequence[np.ndarray]) -> int:
        """Returns the number of rows of maximum length, which may be cut."""
        return sum(len(row) == self._limit for row in rows)

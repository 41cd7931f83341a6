"""Encodes questions as they arrive: a question's vector has the same bytes alone and in any batch.

Shapes: Q questions, D dimension of a vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.modeling.biencoder import Encoder, check_fits, encode_rows, frozen_encoders
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import Form, Ids, question_room, question_row, read_form
from pipeline.modeling.model_files.sentence_transformers_files import side
from pipeline.notices import notice
from pipeline.tokenization.tokenizer import Tokenizer, read_tokenizer, special_tokens
from pipeline.tokenization.tokens import encode

TOGETHER = 64  # questions of a forward call: about 1,000 tokens, which stay in the cache
FILLERS = 15
"""Rows of one token added to the questions of every call. BLAS computes matrix products of few rows in another way,
with other last bits, and the last layer has one row per question. How many rows are few depends on the processor: up
to 3 on some, up to 15 on others; from 16 rows on the number has no effect (measured for 1 to 600 rows, models 16 to
768 wide)."""


@dataclass(frozen=True)
class QuestionEncoder:
    encoder: Encoder
    tokenizer: Tokenizer
    form: Form

    def rows(self, texts: Sequence[str]) -> list[np.ndarray | None]:
        """Returns each question as a row of token ids; None for a question without tokens."""
        token_ids = encode(self.tokenizer, list(texts))
        return [question_row(np.array(ids), self.form) if ids else None for ids in token_ids]

    def cut(self, text: str) -> str:
        """Returns a notice about a question that is longer than the model's input; else an empty text."""
        (ids,) = encode(self.tokenizer, [text])
        room = question_room(self.form)
        what = f"question cut, tokens read of its {len(ids):,}"
        return notice(what, room, advice="encoder.question_tokens") if len(ids) > room else ""

    def vectors(self, rows: Ids, together: int = TOGETHER) -> np.ndarray:
        """Returns vectors, float32 [Q, D], computed on the CPU. At most `together` rows share a call."""
        filler = np.array([self.form.specials.cls])
        vectors_QD = np.empty((len(rows), self.encoder.dimension), np.float32)
        for start in range(0, len(rows), together):
            piece = rows[start : start + together]
            budget = sum(map(len, piece)) + FILLERS  # all in one call
            vectors_QD[start : start + len(piece)] = encode_rows(self.encoder, [*piece, *[filler] * FILLERS], budget)[
                : len(piece)
            ]
        return vectors_QD

    def is_steady(self) -> bool:
        """Whether a question's vector has the same bytes alone and in a batch on this machine, for random questions.

        If not, `together=1` gives the same bytes.
        """
        random = np.random.default_rng(0)
        form, most = self.form, self.form.question_tokens
        lengths = random.integers(1, max(2, most - 2), size=24)
        rows = [question_row(random.integers(0, form.specials.vocab_size, n), form) for n in lengths]
        alone_QD = self.vectors(rows, together=1)
        # calls of two, three, seven and all questions (with FILLERS), compared with one question per call
        return all(np.array_equal(self.vectors(rows, together), alone_QD) for together in (2, 3, 7, len(rows)))


def question_encoder(checkpoint: Path, config: EncoderConfig, dimension: int | None = None) -> QuestionEncoder:
    """Returns the question encoder of a checkpoint, cut to the `dimension` of an index (None: all).

    Raises InputError for a folder without a loadable model.
    """
    folder = side(checkpoint, "query")
    tokenizer = read_tokenizer(folder)
    specials, _ = special_tokens(tokenizer)
    encoder = frozen_encoders(checkpoint)[0].cut_to(dimension)
    check_fits(encoder, specials, folder, "encoder.question_tokens", config.question_tokens)
    return QuestionEncoder(encoder, tokenizer, read_form(config, checkpoint, specials))

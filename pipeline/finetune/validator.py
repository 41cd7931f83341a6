"""Validation during a bi-encoder's training: MRR@10 of the candidates after each epoch, and the best weights.

Shapes: V questions, C candidates of each, E dimensions.
"""

from pathlib import Path

import numpy as np
import torch

from pipeline.finetune.encoders import Towers, encode_all
from pipeline.finetune.losses import pair_scores
from pipeline.finetune.validation import Candidates, reciprocal_ranks
from pipeline.modeling.inputs import Form, passage_rows, question_rows
from pipeline.modeling.packing import to_device
from pipeline.runtime import ranks
from pipeline.tokenization.token_files import Tokens
from pipeline.training.best_weights import BestWeights, Row

MEASURE = "RR@10"


class Validator:
    """Validates after each epoch. Rows and best weights are in `folder`, next to the checkpoints (best_weights.py)."""

    def __init__(
        self,
        towers: Towers,
        candidates: Candidates,
        data: Tokens,
        form: Form,
        passage_tokens: int,
        budget: int,
        folder: Path,
    ) -> None:
        self._towers, self._budget = towers, budget
        self._questions = question_rows(data, candidates.queries_V, form)
        unique, self._place_VC = np.unique(candidates.passages_VC, return_inverse=True)
        self._passages = passage_rows(data, unique, form, passage_tokens)
        self._best = BestWeights(towers.trained, MEASURE, folder)

    @property
    def rows(self) -> list[Row]:
        return self._best.rows

    def after(self, epoch: int, step: int) -> None:
        """Measures the weights after `epoch` epochs and `step` updates; saves them if they are the best so far."""
        self._best.add(epoch, step, self.measure())

    def last(self, epoch: int, step: int, keep: str) -> dict[str, float]:
        """Measures the last epoch; for `best`, loads the best epoch's weights. Returns the kept epoch's figures."""
        self.after(epoch, step)
        kept = self.rows[-1]
        if keep == "best":
            kept = self._best.row()
            if ranks.rank() == 0:  # which writes the checkpoint
                self._best.put_back()
        return {f"dev_{MEASURE}": kept[MEASURE], "dev_epoch": kept["epoch"]}

    def measure(self) -> float:
        """Returns the MRR@10 of the candidates, the same on each rank."""
        return float(self.reciprocal_ranks().mean())

    def reciprocal_ranks(self) -> torch.Tensor:
        """Returns RR@10 of each question, [V], the same on each rank."""
        questions_VE = encode_all(self._towers.encoders[0], self._questions, self._budget)
        passages_PE = encode_all(self._towers.encoders[1], self._passages, self._budget)
        scores = []
        with torch.inference_mode():
            for question_E, place_C in zip(questions_VE, self._place_VC, strict=True):
                own_CE = passages_PE[to_device(place_C, passages_PE.device.type)]
                if self._towers.scorer is not None:
                    scores.append(pair_scores(question_E[None], own_CE, self._towers.scorer)[0])
                else:
                    scores.append(own_CE @ question_E)
            return reciprocal_ranks(torch.stack(scores))

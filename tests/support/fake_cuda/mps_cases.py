"""What runs on a fake Mac's GPU (MPS): an update of each kind, encoding, scoring and the training loop, at small sizes.

They show that no operation mixes devices, and which types the device computes; MPS has no float64.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import updates
from encoders import OPTIMISER
from machines import make_machine

from fake_cuda.recorder import Recorder
from pipeline.cross_encoder.pairs import PairRows, score_rows
from pipeline.evaluate.attention_entropy import entropy_rows
from pipeline.finetune.encoders import Towers
from pipeline.modeling.attention import by_products
from pipeline.modeling.biencoder import Encoder, encode_rows
from pipeline.runtime.work import silent
from pipeline.training import loop

Outcome = dict[str, Any]
Case = Callable[[Recorder], Outcome]

BUDGET = 40
"""Tokens of a chunk: an update has several."""
DROPOUT = 0.1
SHAPE = {**updates.SMALL, "num_hidden_layers": 2}


@contextmanager
def recorded(recorder: Recorder, result: Outcome) -> Iterator[None]:
    """Runs the block within the recorder; adds how often the device's random state was seeded.

    A CPU build of torch has no attention of MPS: its steps are computed one by one.
    """
    with (
        mock.patch.object(torch.mps, "manual_seed") as seeded,
        mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", by_products),
        recorder,
    ):
        yield
    result["seeded"] = seeded.call_count


def on_device(build: Callable[[], Any]) -> Any:
    with torch.device("mps"):
        return build()


def machine(graphs: str) -> Any:
    return make_machine(device="mps", token_budget=BUDGET, gradient_cache=graphs)


def encoder(pooling: str = "cls", normalise: bool = False, projection: int | None = None) -> Encoder:
    one = on_device(partial(updates.encoder, "bert", SHAPE, DROPOUT, pooling, normalise, projection))
    updates.with_gradients(one.modules())
    return one


def classifier() -> Any:
    return updates.with_gradients(on_device(partial(updates.classifier, "bert", SHAPE, DROPOUT)))


def language_model(head_layers: int) -> Any:
    return updates.with_gradients(on_device(partial(updates.language_model, "bert", SHAPE, DROPOUT, head_layers)))


def pretraining(name: str, head_layers: int, graphs: str = "never") -> Case:
    def case(recorder: Recorder) -> Outcome:
        module, result = language_model(head_layers), {}
        with recorded(recorder, result):
            parts = updates.pretraining_update(module, name, machine(graphs), "mps", 5, longest=12, skip_from=1)
            loop.together([*parts.values()], "mps")
        return result

    return case


def finetuning(loss: str, graphs: str = "never", **shape: Any) -> Case:
    def case(recorder: Recorder) -> Outcome:
        one, result = encoder(**shape), {}
        scorer = on_device(partial(torch.nn.Linear, 2 * one.dimension, 1)) if loss == "learning_to_rank" else None
        with recorded(recorder, result):
            updates.finetuning_update(Towers((one, one), scorer), loss, machine(graphs), "mps", 3, 2, longest=12)
        return result

    return case


def cross_encoding(recorder: Recorder) -> Outcome:
    model, result = classifier(), {}
    with recorded(recorder, result):
        updates.cross_encoder_update(model, "listwise", machine("always"), "mps", 3, 2, longest=12)
    return result


def in_use(recorder: Recorder) -> Outcome:
    """Encoding, scoring and the attention analysis."""
    one, model, result = encoder("mean", projection=32), classifier().eval(), {}
    one.model.eval()
    ids = updates.rows(6, 8, 12, SHAPE["vocab_size"])
    with recorded(recorder, result):
        encode_rows(one, ids, BUDGET)
        score_rows(model, PairRows(ids, np.full(6, 3)), BUDGET)
        entropy_rows(one.model, ids, BUDGET, lambda rows: None)
    return result


def training_loop(recorder: Recorder) -> Outcome:
    module, result = language_model(0), {}

    def step(i: int, batch: None) -> dict[str, Any]:
        return updates.pretraining_update(module, "mlm", machine("never"), "mps", 4, longest=12, skip_from=1)

    with tempfile.TemporaryDirectory() as folder, recorded(recorder, result):
        history = loop.train(module, step, 2, OPTIMISER, 1, Path(folder), 60, silent, "mps")
    return result | {"updates": len(history)}


MPS_CASES: dict[str, Case] = {
    "mps pretraining condenser": pretraining("condenser", 2),
    "mps pretraining cocondenser cache": pretraining("cocondenser", 2, "always"),
    "mps pretraining retromae": pretraining("retromae", 1),
    "mps finetuning mean projection cache": finetuning("contrastive", "always", pooling="mean", projection=32),
    "mps finetuning soft labels": finetuning("soft_labels", normalise=True),
    "mps finetuning learning to rank": finetuning("learning_to_rank"),
    "mps cross-encoder": cross_encoding,
    "mps encoding, scoring, attention": in_use,
    "mps loop": training_loop,
}

"""What runs on the fake device: every step function, encoding, scoring, search, attention analysis and the loop.

All models have the size of BERT base (12 layers of 768 dimensions, 30,522 tokens). Where kernels and bytes are not
compared with a bound, a model has 3 of the 12 equal layers, which saves most of the time. The training loop and the GPU
before Ampere, whose path does not depend on the model, have one layer of 64 dimensions. Chunks have 2,000 to 6,000
tokens, in few numbers: a fake kernel takes the same time at any size.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import safetensors.torch
import torch
import updates
from encoders import OPTIMISER
from machines import make_machine
from torch._subclasses.fake_tensor import unset_fake_temporarily
from transformers.initialization import TORCH_INIT_FUNCTIONS

from fake_cuda.recorder import Recorder
from pipeline.cross_encoder.pairs import PairRows, score_rows
from pipeline.dense.exact_gpu import GpuVectors
from pipeline.evaluate.attention_entropy import entropy_rows
from pipeline.finetune.encoders import Towers
from pipeline.modeling.biencoder import Encoder, encode_rows, vectors
from pipeline.modeling.inputs import pack
from pipeline.modeling.transformer import backbone
from pipeline.runtime import ranks
from pipeline.runtime.precision import autocast
from pipeline.runtime.work import silent
from pipeline.sentences.kinds import LABELS
from pipeline.training import gradients, loop

Outcome = dict[str, Any]
Case = Callable[[Recorder], Outcome]
"""Runs something within the recorder; returns what the recorder does not know."""

BUDGET = 3000
"""Tokens of a chunk: most updates have two of them."""
ONE_CHUNK = 100_000
ONE_LAYER = {**updates.SMALL, "num_hidden_layers": 1}
ARCHITECTURES = ("bert", "roberta")
OTHERS = ("electra", "distilbert", "mpnet", "modernbert")
"""XLM-RoBERTa and CamemBERT run RoBERTa's code."""
ALL, FEW = 12, 3
"""Layers of a model."""


def base(layers: int) -> dict[str, int]:
    """Returns the configuration of a model of BERT base's size with so many layers."""
    return {**updates.BASE, "num_hidden_layers": layers}


def on_device(build: Callable[[], Any]) -> Any:
    # Its random numbers are drawn until they are in a range, which a device without numbers cannot tell.
    drawn = mock.patch.dict(TORCH_INIT_FUNCTIONS, trunc_normal_=lambda tensor, **_: tensor)
    with torch.device("cuda"), drawn:
        return build()


@cache
def language_model(architecture: str, head_layers: int, dropout: float, layers: int) -> Any:
    module = on_device(partial(updates.language_model, architecture, base(layers), dropout, head_layers))
    return updates.with_gradients(module)


@cache
def encoder(architecture: str, number: int = 0, layers: int = FEW) -> Encoder:
    """`number`: distinguishes the two encoders of an untied model."""
    one = on_device(partial(updates.encoder, architecture, base(layers), 0.1))
    updates.with_gradients(one.model)
    return one


@cache
def linear(inputs: int, outputs: int, bias: bool = False) -> Any:
    return updates.with_gradients(on_device(partial(torch.nn.Linear, inputs, outputs, bias=bias)))


@cache
def classifier(architecture: str, layers: int = FEW) -> Any:
    return updates.with_gradients(on_device(partial(updates.classifier, architecture, base(layers), 0.1)))


def machine(graphs: str = "never", budget: int = BUDGET, chunk: int | None = None) -> Any:
    return make_machine(device="cuda", token_budget=budget, gradient_cache=graphs, gradient_cache_chunk=chunk)


def pretraining(
    architecture: str,
    name: str,
    dropout: float = 0.1,
    sequences: int = 64,
    graphs: str = "never",
    layers: int = FEW,
    **settings: Any,
) -> Case:
    head_layers = {"mlm": 0, "retromae": 1, "ict": 0}.get(name, 2)

    def case(recorder: Recorder) -> Outcome:
        module = language_model(architecture, head_layers, dropout, layers)
        if name == "ict":
            module = torch.nn.ModuleDict({**module, "projection": linear(768, 128)})
        recorder.hold(module)
        held = recorder.live
        with recorder:
            of_graphs = machine(graphs, **settings)
            parts = updates.pretraining_update(module, name, of_graphs, "cuda", sequences, skip_from=layers // 2)
            loop.together([*parts.values()], "cuda")
        return {"tokens": parts["tokens"], "held": held}

    return case


def before_ampere(recorder: Recorder) -> Outcome:
    """Attention by length groups, as on the CPU: the older GPU has no kernel for sequences of any length."""
    module = small_model()
    with mock.patch.object(torch.cuda, "get_device_capability", return_value=(7, 5)), recorder:
        parts = updates.pretraining_update(module, "mlm", machine(), "cuda", 24, longest=16, skip_from=0)
    return {"tokens": parts["tokens"], "padding": parts["padding"]}


def finetuning(
    architecture: str,
    loss: str = "contrastive",
    questions: int = 8,
    own: int = 8,
    tied: bool = True,
    pooling: str = "cls",
    normalise: bool = False,
    projection: int | None = None,
    layers: int = FEW,
    **settings: Any,
) -> Case:
    def case(recorder: Recorder) -> Outcome:
        projected = linear(768, projection) if projection else None
        first, second = (
            Encoder(encoder(architecture, number, layers).model, pooling, normalise, projected)
            for number in (0, 0 if tied else 1)
        )
        scorer = linear(2 * 768, 1, bias=True) if loss == "learning_to_rank" else None
        towers = Towers((first, first if tied else second), scorer)
        recorder.hold(towers.trained)
        if projected:
            recorder.watch("projection", projected.weight)
        with recorder:
            parts = updates.finetuning_update(towers, loss, machine(**settings), "cuda", questions, own)
            loop.together([*parts.values()], "cuda")
        return {"tokens": parts["tokens"]}

    return case


def cross_encoding(architecture: str, loss: str, layers: int = FEW, **settings: Any) -> Case:
    def case(recorder: Recorder) -> Outcome:
        model = classifier(architecture, layers)
        watch_head(recorder, model)
        with recorder:
            parts = updates.cross_encoder_update(model, loss, machine(**settings), "cuda", 8, 8)
            loop.together([*parts.values()], "cuda")
        return {"tokens": parts["tokens"]}

    return case


def watch_head(recorder: Recorder, model: Any) -> None:
    """Watches the two products of a cross-encoder after its last layer."""
    match model.config.model_type:
        case "bert":
            pooler, classifier = model.bert.pooler.dense, model.classifier
        case "distilbert":
            pooler, classifier = model.pre_classifier, model.classifier
        case "modernbert":
            pooler, classifier = model.head.dense, model.classifier
        case _:
            pooler, classifier = model.classifier.dense, model.classifier.out_proj
    recorder.watch("pooler", pooler.weight)
    recorder.watch("classifier", classifier.weight)


def sentences(architecture: str, kind: str) -> Case:
    def case(recorder: Recorder) -> Outcome:
        one = encoder(architecture)
        towers = Towers((one, one), linear(3 * 768, LABELS, bias=True) if kind == "labelled" else None)
        with recorder:
            parts = updates.sentences_update(towers, kind, machine(), "cuda", 20)
            loop.together([*parts.values()], "cuda")
        return {"tokens": parts["tokens"]}

    return case


@contextmanager
def in_use(*modules: torch.nn.Module) -> Iterator[None]:
    """Without dropout."""
    for module in modules:
        module.eval()
    yield
    for module in modules:
        module.train()


def encoding(architecture: str, pooling: str, projection: int | None = None, layers: int = FEW) -> Case:
    def case(recorder: Recorder) -> Outcome:
        projected = linear(768, projection) if projection else None
        one = Encoder(encoder(architecture, layers=layers).model, pooling, False, projected)
        if projected:
            recorder.watch("projection", projected.weight)
        ids = updates.rows(64, 40, 128, updates.BASE["vocab_size"])
        with in_use(one.model), recorder:
            shape = encode_rows(one, ids, BUDGET).shape
        return {"shape": shape, "tokens": sum(map(len, ids))}

    return case


def scoring(architecture: str) -> Case:
    def case(recorder: Recorder) -> Outcome:
        model = classifier(architecture)
        watch_head(recorder, model)
        ids = updates.rows(64, 40, 128, updates.BASE["vocab_size"])
        with in_use(model), recorder:
            shape = score_rows(model, PairRows(ids, np.full(64, 6)), BUDGET).shape
        return {"shape": shape, "tokens": sum(map(len, ids))}

    return case


def search(recorder: Recorder) -> Outcome:
    rng = np.random.default_rng(0)
    questions_QD, passages_BD = (rng.standard_normal((number, 768)).astype(np.float32) for number in (32, 5000))
    # Not by `load`, which compares numbers: a fake device holds none.
    on_gpu = GpuVectors(passages_BD, torch.empty(passages_BD.shape, dtype=torch.float16, device="cuda"))
    with recorder:
        rows_QC, worst_Q = on_gpu._candidates(
            torch.from_numpy(questions_QD).pin_memory().to("cuda", non_blocking=True), 100, None
        )
    return {"shape": rows_QC.shape, "places": worst_Q.shape}


def attention(architecture: str) -> Case:
    def case(recorder: Recorder) -> Outcome:
        model = encoder(architecture).model
        ids = updates.rows(8, 40, 44, updates.BASE["vocab_size"])
        with in_use(model), recorder:
            shape = entropy_rows(model, ids, BUDGET, lambda rows: None).shape
        return {"shape": shape}

    return case


@cache
def small_model() -> Any:
    return on_device(partial(updates.language_model, "bert", ONE_LAYER, 0.1, 0))


def train(recorder: Recorder, steps: int, folder: Path, minutes: float) -> list[dict[str, float]]:
    """Trains for `steps` updates; the loss of the second one is infinite."""
    module = small_model()

    def step(i: int, batch: None) -> dict[str, Any]:
        parts = updates.pretraining_update(module, "mlm", machine(), "cuda", 8, skip_from=0)
        return parts | ({"mlm": float("inf")} if i == 1 else {})

    with recorder:
        return loop.train(module, step, steps, OPTIMISER, 1, folder, minutes, silent, "cuda")


def training_loop(recorder: Recorder) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return {"updates": len(train(recorder, UPDATES, Path(folder), 60))}


def resuming(recorder: Recorder) -> Outcome:
    """Two checkpoints, after each of the first two of three updates; then a second training from the newer one."""

    def load_file(path: Path) -> dict[str, torch.Tensor]:
        with unset_fake_temporarily():
            return own(path)

    own = safetensors.torch.load_file
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(safetensors.torch, "load_file", load_file):
        first = train(recorder, 3, Path(folder), 0)
        saved = sorted(path.name for path in Path(folder).iterdir())
        second = train(recorder, 5, Path(folder), 60)
    return {"updates": len(first), "saved": saved, "resumed_updates": len(second)}


def two_ranks(recorder: Recorder) -> Outcome:
    """Three updates of a rank of two. Returns how many sums start within the first update's last pass, and in all."""
    starts: list[int] = []
    early: list[int] = []
    add = gradients.add_gradients

    def start(x: torch.Tensor) -> ranks.Wait:
        starts.append(x.mul_(2).numel())
        return lambda: None

    def counted(*arguments: Any, last: bool) -> None:
        before = len(starts)
        add(*arguments, last=last)
        early.append(len(starts) - before)

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(ranks, "world", return_value=2),
        mock.patch.object(ranks, "start_sum", start),
        mock.patch.object(gradients, "BUCKET", 10_000),
        mock.patch("pipeline.pretrain.step.add_gradients", counted),
    ):
        done = train(recorder, 3, Path(folder), 60)
    gradients.use_gradient_sum(None)
    return {"updates": len(done), "early": early, "sums": len(starts)}


def faults(recorder: Recorder) -> Outcome:
    """What no update may do, so that the tests show that it is seen."""
    x = on_device(partial(torch.ones, 4))
    with recorder:
        torch.zeros(4).to("cuda")
        torch.zeros(4).to("cuda", non_blocking=True)  # not from pinned memory
        x.cpu()
        x.sum().item()
        bool(x[0] > 0)
        x[torch.arange(2)]
    return {}


def pretraining_graph(recorder: Recorder) -> Outcome:
    """Bytes per token of the graph that coCondenser keeps of a chunk: the difference of a large and a small chunk."""
    module: Any = language_model("bert", 2, 0.1, ALL)
    kept = []
    for sequences in (16, 16, 48):  # the first one allocates the copies of the weights
        batch = updates.pretraining_batch(module, machine(budget=100_000), "cuda", sequences)
        with recorder:
            before = recorder.live
            with autocast("cuda"):
                states = backbone(module["lm"], batch.chunks[0], 6, lambda *key: None)
            kept.append((recorder.live - before, batch.tokens))
        del states
    return {"bytes_per_token": per_token(kept[1:])}


def finetuning_graph(recorder: Recorder) -> Outcome:
    """As `pretraining_graph`, for the vectors of a bi-encoder."""
    kept = []
    for number in (16, 16, 48):
        ids = sorted(updates.rows(number, 40, 128, updates.BASE["vocab_size"]), key=len)
        packed = pack(ids, "cuda")
        with recorder:
            before = recorder.live
            encoded = vectors(encoder("bert", layers=ALL), packed)
            kept.append((recorder.live - before, packed.every.size))
        del encoded
    return {"bytes_per_token": per_token(kept[1:])}


def per_token(kept: list[tuple[int, int]]) -> float:
    """Returns the slope of (bytes, tokens) of two chunks: without what each chunk has once, such as cast weights."""
    (small, few), (large, many) = kept
    return (large - small) / (many - few)


UPDATES = loop.CUDA_INTERVAL + 3
"""Of the training loop without a checkpoint."""


def all_cases() -> dict[str, Case]:
    """Returns the cases by name: the work, its variant, the architecture."""
    cases: dict[str, Case] = {}
    for architecture in ARCHITECTURES:
        budget, layers = (BUDGET, ALL) if architecture == "bert" else (ONE_CHUNK, FEW)
        for name in ("condenser", "mlm"):
            cases[f"pretraining {name} {architecture}"] = pretraining(architecture, name, budget=budget, layers=layers)
        # Its decoder loops over lengths, so it has fewer sequences.
        cases[f"pretraining retromae {architecture}"] = pretraining(
            architecture, "retromae", sequences=24, layers=layers
        )
        cases[f"pretraining cocondenser cache {architecture}"] = pretraining(
            architecture, "cocondenser", graphs="always", layers=layers
        )
        cases[f"finetuning contrastive {architecture}"] = finetuning(architecture, budget=budget, layers=layers)
        cases[f"finetuning mean projection {architecture}"] = finetuning(
            architecture, pooling="mean", projection=256, budget=ONE_CHUNK
        )
        cases[f"cross-encoder listwise {architecture}"] = cross_encoding(
            architecture, "listwise", budget=budget, layers=layers
        )
        cases[f"encoding cls {architecture}"] = encoding(architecture, "cls", layers=layers)
        cases[f"scoring {architecture}"] = scoring(architecture)
        cases[f"attention {architecture}"] = attention(architecture)
    for architecture in OTHERS:
        cases[f"pretraining cocondenser cache {architecture}"] = pretraining(
            architecture, "cocondenser", graphs="always"
        )
        cases[f"pretraining retromae {architecture}"] = pretraining(architecture, "retromae", sequences=24)
        cases[f"encoding cls {architecture}"] = encoding(architecture, "cls")
        cases[f"scoring {architecture}"] = scoring(architecture)
    # From here on the code does not depend on the architecture.
    for graphs, name in (("never", "graphs"), ("always", "cache")):
        case = pretraining("bert", "cocondenser", dropout=0.0, graphs=graphs)
        cases[f"pretraining cocondenser {name} without dropout bert"] = case
    cases["pretraining cocondenser graphs bert"] = pretraining("bert", "cocondenser", layers=ALL)
    cases["pretraining mlm before Ampere bert"] = before_ampere
    cases["pretraining ict bert"] = pretraining("bert", "ict", graphs="always")
    cases["pretraining contrastive only bert"] = pretraining("bert", "contrastive_only", budget=ONE_CHUNK)
    for loss in ("soft_labels", "learning_to_rank"):
        cases[f"finetuning {loss.replace('_', ' ')} bert"] = finetuning("bert", loss, budget=ONE_CHUNK)
    cases["finetuning untied bert"] = finetuning("bert", questions=32, own=2, tied=False, budget=ONE_CHUNK)
    cases["finetuning normalised bert"] = finetuning("bert", normalise=True, budget=ONE_CHUNK)
    cases["finetuning cache bert"] = finetuning("bert", graphs="always", layers=ALL)
    cases["finetuning untied cache chunks bert"] = finetuning("bert", tied=False, graphs="always", chunk=64)
    cases["cross-encoder pointwise cache bert"] = cross_encoding("bert", "pointwise", graphs="always")
    cases["encoding mean projection bert"] = encoding("bert", "mean", 256)
    for kind in ("scored", "labelled", "triplets"):
        cases[f"sentences {kind} bert"] = sentences("bert", kind)
    cases["search"] = search
    cases["faults"] = faults
    cases["loop"] = training_loop
    cases["loop resumed"] = resuming
    cases["loop of two ranks"] = two_ranks
    cases["graph of pretraining bert"] = pretraining_graph
    cases["graph of finetuning bert"] = finetuning_graph
    return cases


CASES = all_cases()

"""Objectives on packed chunks against plain dense computations, one sequence at a time."""

from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import small
import torch
from machines import make_machine
from pretrained import pretrain
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

from pipeline.errors import InputError
from pipeline.modeling import transformer
from pipeline.pretrain import masking
from pipeline.pretrain.condenser import CondenserConfig
from pipeline.pretrain.objectives import objective, retromae
from pipeline.tokenization.token_files import Ragged, Specials
from pipeline.training.loop import seed_dropout

SPECIALS = Specials(vocab_size=60, pad=0, unk=1, cls=2, sep=3, mask=4)
LENGTHS = np.array([9, 4, 17, 4, 30, 9, 12])


@pytest.fixture(params=["bert", "roberta"])
def case(request):
    """(language model, a layer, batch of one chunk), in evaluation mode."""
    torch.manual_seed(0)
    shape = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 32, "max_position_embeddings": 40, "pad_token_id": 0}  # fmt: skip
    kinds = {"bert": (BertConfig, BertForMaskedLM), "roberta": (RobertaConfig, RobertaForMaskedLM)}
    make_config, make_lm = kinds[request.param]
    lm = make_lm(make_config(**shape)).eval()
    rng = np.random.default_rng(0)
    texts = Ragged(rng.integers(5, 60, 900).astype(np.uint16), np.array([0, 900]), rng.random(900) < 0.7, None)
    begin_S = np.array([0, 800, 40, 60, 100, 300, 400])
    batch = masking.masked_batch(
        texts, begin_S, LENGTHS, np.arange(7), 0.3, 1, 2, SPECIALS, make_machine(), "cpu"
    )  # fmt: skip
    return SimpleNamespace(lm=lm, head=transformer.new_head(lm, 1).eval(), batch=batch, chunk=batch.chunks[0])


def run(case, name: str) -> tuple[float, ...]:
    seed = partial(seed_dropout, 7, 8, 9)
    states = transformer.backbone(case.lm, case.chunk, 1, seed)
    losses = objective(name).losses(case.lm, case.head, states, case.chunk, case.batch, seed)
    sum(losses).backward()
    return tuple(float(loss.detach()) for loss in losses)


def sequences(chunk):
    """(corrupted ids, true ids, which are masked) of each sequence."""
    true_T = chunk.ids_T.index_copy(0, chunk.masked.at_R, chunk.label_M)
    masked_T = torch.zeros(len(true_T), dtype=torch.bool).index_fill(0, chunk.masked.at_R, True)
    edges = chunk.every.edges.tolist()
    return [tuple(x[a:b] for x in (chunk.ids_T, true_T, masked_T)) for a, b in pairwise(edges)]


def test_mlm_equals_that_of_hugging_face(case):
    (loss,) = run(case, "mlm")
    losses = []
    for ids, true, masked in sequences(case.chunk):
        labels = torch.where(masked, true, -100)
        losses.append(F.cross_entropy(case.lm(ids[None]).logits[0], labels, reduction="sum"))
    assert loss == pytest.approx(float(sum(losses).detach()) / case.batch.masked, rel=1e-5)


def test_retromae_equals_a_decoder_of_single_rows(case):
    """Each row separately, with loops, as in the paper's equations (section 3.3)."""
    _, decoder = run(case, "retromae")
    lm, layer = case.lm, case.head[0]
    attention, heads = layer.attention.self, layer.attention.self.num_attention_heads
    seed_dropout(7, 8, 9, transformer.HEAD, 0)
    groups = case.chunk.every.groups
    masks = [m for n, length in groups for m in retromae.visible(torch.full((n,), length), length)[:, 0]]
    total, count = 0.0, 0
    for (ids, true, _), seen_LL in zip(sequences(case.chunk), masks, strict=True):
        h = lm.base_model(ids[None]).last_hidden_state[0, 0]
        embeddings = lm.base_model.embeddings
        e_LD = embeddings(input_ids=true[None])[0]
        start = 1 if lm.config.model_type == "roberta" else 0
        p_LD = embeddings.position_embeddings.weight[start : start + len(true)]
        input_LD = torch.cat([h[None], e_LD[1:]])
        for i in range(1, len(true)):
            query_input = h + p_LD[i]
            visible = [j for j in range(len(true)) if seen_LL[i, j]]
            assert 0 in visible
            assert i not in visible
            seen_VD = input_LD[visible]
            query, keys, values = attention.query(query_input), attention.key(seen_VD), attention.value(seen_VD)
            size = len(query) // heads
            context = []
            for x in range(heads):
                part = slice(x * size, (x + 1) * size)
                weights = (keys[:, part] @ query[part] / size**0.5).softmax(0)
                context.append(weights @ values[:, part])
            attended = layer.attention.output(torch.cat(context), query_input)
            hidden = layer.output(layer.intermediate(attended), attended)
            logits = (lm.cls if hasattr(lm, "cls") else lm.lm_head)(hidden)
            total += float(F.cross_entropy(logits, true[i]).detach())
            count += 1
    assert count == case.batch.tokens - case.batch.sequences
    assert decoder == pytest.approx(total / count, rel=1e-4)


def test_the_decoder_sees_half_of_the_others():
    seen = retromae.visible(torch.full((50,), 40), 40)[:, 0]
    assert float(seen[:, 1:, 1:].float().mean()) == pytest.approx(0.5 * 38 / 39, abs=0.01)
    assert not torch.equal(seen[0, 1], seen[0, 2])


@pytest.mark.parametrize(("name", "layers", "losses"), [("mlm", 0, ["mlm"]), ("retromae", 1, ["mlm", "decoder"])])
def test_an_objective_trains_in_the_stage(tmp_path, name, layers, losses):
    tokens, start = small.make(tmp_path)
    config = CondenserConfig(**{**small.CONDENSER, "objective": name, "head_layers": layers, "budget": "60 steps"})
    machine = make_machine(token_budget=150).model_dump(mode="json")

    def train(config, checkpoint, out):
        return pretrain(config, (tokens, start), tmp_path / out, checkpoint, machine)

    metrics = train(config, start, "out")
    import pandas

    history = pandas.read_parquet(tmp_path / "out" / "history.parquet")
    for loss in losses:
        assert history[loss][-6:].mean() < history[loss][:6].mean() - 0.1
        assert f"{loss}_last" in metrics
    assert (tmp_path / "out" / "head.safetensors").exists() == (layers > 0)
    if layers:
        assert {key.split(".")[0] for key in load_file(tmp_path / "out" / "head.safetensors")} == {"0"}
        other = config.model_copy(update={"objective": "condenser", "continued": True, "budget": "1 steps"})
        with pytest.raises(InputError, match=r"head\.safetensors: a head trained for retromae, but one for condenser"):
            train(other, tmp_path / "out", "other")

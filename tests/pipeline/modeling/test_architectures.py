"""Each architecture on packed tokens computes what Hugging Face's own padded forward pass does."""

import json
from pathlib import Path
from typing import Any

import crossed
import numpy as np
import pytest
import torch
import updates
from encoders import ENCODER
from machines import make_machine
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM

from pipeline.cross_encoder.pairs import PairRows, logits, pack_pairs
from pipeline.errors import InputError
from pipeline.evaluate.attention_entropy import entropy_rows
from pipeline.export.graph import write_graph
from pipeline.export.model import write_model
from pipeline.export.onnx_files import checked
from pipeline.modeling import attention
from pipeline.modeling.architectures.registry import ARCHITECTURES, architecture
from pipeline.modeling.biencoder import Encoder, encode_rows, frozen_encoders, load_encoders, vectors
from pipeline.modeling.checkpoint import (
    load_backbone_for_mlm,
    load_classifier,
    load_encoder,
    new_classifier,
    save_checkpoint,
    save_classifier,
    with_new_mlm_head,
)
from pipeline.modeling.inputs import pack
from pipeline.modeling.model_files.model_config import TYPES, has_token_types, model_config, slower
from pipeline.modeling.model_files.sentence_transformers_files import Dense, Vector
from pipeline.modeling.packed_layers import attention_layouts
from pipeline.modeling.transformer import backbone, last_states, prediction_losses
from pipeline.pretrain import start
from pipeline.runtime import precision
from pipeline.tokenization.tokenizer import read_tokenizer
from pipeline.tokenization.wordpiece import SPECIALS
from pipeline.training import loop

LENGTHS = [3, 9, 9, 14, 30]
SHAPE = {**updates.SMALL, "initializer_range": 0.2}
EMBEDDED = {"electra": {"embedding_size": 24}}
"""Other sizes of an architecture's own fields."""
PAD = 1
PADDED = ("albert", "deberta-v2", "longformer", "nomic_bert")
"""Types without packed layers."""


@pytest.fixture(params=TYPES)
def packed_type(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return str(request.param)


@pytest.fixture(params=(*TYPES, *PADDED))
def name(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return str(request.param)


def shape(name: str) -> dict[str, Any]:
    return SHAPE | EMBEDDED.get(name, {})


def rows() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(5, SHAPE["vocab_size"], length) for length in LENGTHS]


def padded_batch(ids: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Returns (ids, mask), each [B, L]."""
    as_tensors = [torch.from_numpy(row) for row in ids]
    ids_BL = nn.utils.rnn.pad_sequence(as_tensors, batch_first=True, padding_value=PAD)
    mask_BL = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in as_tensors], batch_first=True)
    return ids_BL, mask_BL


def assert_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    largest = max(float(x.abs().max()) for x in theirs.values())
    for name, x in theirs.items():
        assert float((ours[name] - x).abs().max()) <= max(1e-4 * float(x.abs().max()), 1e-6 * largest), name


def assert_prediction_losses(lm: Any) -> None:
    """Losses at the masked tokens and all gradients equal those of Hugging Face's padded pass."""
    (chunk,) = updates.pretraining_batch({"lm": lm}, make_machine(token_budget=10_000), "cpu", 6, 40).chunks
    ids = [row.numpy() for row in chunk.ids_T.tensor_split(chunk.every.edges[1:-1].tolist())]
    ids_BL, mask_BL = padded_batch(ids)
    at_masked = lm(input_ids=ids_BL, attention_mask=mask_BL).logits[mask_BL.bool()][chunk.masked.at_R]
    theirs_M = F.cross_entropy(at_masked, chunk.label_M, reduction="none")
    ours_M = prediction_losses(lm, backbone(lm, chunk, 1, lambda *_: None).late_MD, chunk.label_M)
    torch.testing.assert_close(ours_M, theirs_M, rtol=1e-5, atol=1e-5)
    theirs_M.mean().backward()
    theirs = taken_gradients(lm)
    ours_M.mean().backward()
    assert_gradients(taken_gradients(lm), theirs)


def taken_gradients(module: nn.Module) -> dict[str, Tensor]:
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad(set_to_none=True)
    return gradients


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_sequences_that_share_a_padded_call_have_the_gradients_of_those_that_do_not(
    packed_type: str, dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ModernBERT's window is 8 here: padding sees a key although no key is near its own place."""
    monkeypatch.setattr(precision, "low_precision", lambda device: dtype)
    monkeypatch.setattr(attention, "FEW_SCORES", 0)  # by two products, as larger groups
    lm: Any = AutoModelForMaskedLM.from_config(updates.configuration(packed_type, shape(packed_type), 0.0)).train()
    gradients = {}
    for bucket in (False, True):
        packed = pack(
            [row[:length] for row, length in zip([rows()[-1]] * 4, (4, 20, 29, 30), strict=True)], "cpu", bucket=bucket
        )
        assert any(packed.every.pads) is bucket
        upstream = torch.randn(packed.every.size, SHAPE["hidden_size"], generator=torch.Generator().manual_seed(0))
        with precision.autocast("cpu"):
            states = last_states(lm.base_model, packed, packed.every)
        (states * upstream).sum().backward()
        gradients[bucket] = taken_gradients(lm)
    if dtype is None:
        assert_gradients(gradients[True], gradients[False])
        return
    largest = max(float(x.norm()) for x in gradients[False].values())
    for name, x in gradients[False].items():
        assert (gradients[True][name] - x).norm() < 0.02 * largest, name


def test_each_type_has_an_architecture() -> None:
    assert sorted(ARCHITECTURES) == sorted(TYPES)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_and_their_gradients(name: str, pooling: str) -> None:
    encoder: Any = updates.encoder(name, shape(name), 0.0, pooling)
    packed = pack(rows(), "cpu")
    ids_BL, mask_BL = padded_batch(rows())
    states_BLD = encoder.model(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state
    kept_BL1 = mask_BL[:, :, None].float()
    theirs_BD = states_BLD[:, 0] if pooling == "cls" else (states_BLD * kept_BL1).sum(1) / kept_BL1.sum(1)
    ours_BD = vectors(Encoder(encoder.model, pooling), packed)
    torch.testing.assert_close(ours_BD, theirs_BD, rtol=1e-5, atol=1e-5)
    weight_BD = torch.randn_like(theirs_BD)
    (theirs_BD * weight_BD).sum().backward()
    theirs = taken_gradients(encoder.model)
    (ours_BD * weight_BD).sum().backward()
    assert_gradients(taken_gradients(encoder.model), theirs)


def test_states_masked_language_modelling_loss_and_its_gradients(packed_type: str) -> None:
    module: Any = updates.language_model(packed_type, shape(packed_type), 0.0, 0)
    lm = module["lm"]
    (chunk,) = updates.pretraining_batch(module, make_machine(token_budget=10_000), "cpu", 6, 40).chunks
    ids = [row.numpy() for row in chunk.ids_T.tensor_split(chunk.every.edges[1:-1].tolist())]
    ids_BL, mask_BL = padded_batch(ids)
    output = lm(input_ids=ids_BL, attention_mask=mask_BL, output_hidden_states=True)
    hidden = [state[mask_BL.bool()] for state in output.hidden_states]
    theirs_M = F.cross_entropy(output.logits[mask_BL.bool()][chunk.masked.at_R], chunk.label_M, reduction="none")
    for skip_from in range(len(hidden) - 1):
        ours = backbone(lm, chunk, skip_from, lambda *_: None)
        torch.testing.assert_close(ours.early_TD, hidden[skip_from], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.cls_BD, hidden[-1][chunk.cls.at_R], rtol=1e-5, atol=1e-5)
    ours_M = prediction_losses(lm, ours.late_MD, chunk.label_M)
    torch.testing.assert_close(ours_M, theirs_M, rtol=1e-5, atol=1e-5)
    theirs_M.mean().backward()
    theirs = taken_gradients(lm)
    ours_M.mean().backward()
    assert_gradients(taken_gradients(lm), theirs)


def test_logits_of_pairs(name: str) -> None:
    model: Any = updates.classifier(name, shape(name), 0.0).eval()
    pairs = PairRows(rows(), np.array([length // 2 for length in LENGTHS]))
    ids_BL, mask_BL = padded_batch(rows())
    types = {}
    if has_token_types(model.config):
        place_BL = torch.arange(ids_BL.shape[1])[None]
        types = {"token_type_ids": (place_BL >= torch.from_numpy(pairs.second_N)[:, None]).long()}
    theirs_B = model(input_ids=ids_BL, attention_mask=mask_BL, **types).logits[:, 0]
    ours_B = logits(model, pack_pairs(model, pairs, np.arange(len(LENGTHS)), "cpu"))
    torch.testing.assert_close(ours_B, theirs_B, rtol=1e-5, atol=1e-5)
    mean = float(ours_B.detach().mean())
    torch.nn.init.constant_(architecture(model).last_bias(model), 3.0)
    raised_B = logits(model, pack_pairs(model, pairs, np.arange(len(LENGTHS)), "cpu"))
    assert float(raised_B.detach().mean()) - mean > 2.5


def test_a_classifier_of_modernbert_may_read_the_mean_of_all_tokens() -> None:
    model: Any = updates.classifier("modernbert", SHAPE, 0.0).eval()
    model.config.classifier_pooling = "mean"
    ids_BL, mask_BL = padded_batch(rows())
    theirs_B = model(input_ids=ids_BL, attention_mask=mask_BL).logits[:, 0]
    pairs = PairRows(rows(), np.array([length // 2 for length in LENGTHS]))
    ours_B = logits(model, pack_pairs(model, pairs, np.arange(len(LENGTHS)), "cpu"))
    torch.testing.assert_close(ours_B, theirs_B, rtol=1e-5, atol=1e-5)


def test_modernbert_reads_long_texts_with_its_own_window() -> None:
    """Texts longer than other models' 512 positions; the distance that a token sees is the default, 64."""
    encoder: Any = updates.encoder("modernbert", SHAPE | {"local_attention": 128}, 0.0)
    rng = np.random.default_rng(0)
    ids = [rng.integers(5, SHAPE["vocab_size"], length) for length in (64, 66, 700)]
    theirs = [encoder.model(input_ids=torch.from_numpy(row)[None]).last_hidden_state[0, 0] for row in ids]
    ours = encode_rows(Encoder(encoder.model.eval(), "cls"), ids, 500)
    np.testing.assert_allclose(ours, torch.stack(theirs).detach().numpy(), rtol=1e-5, atol=1e-5)


BIASES = {
    "norm_bias": True,
    "attention_bias": True,
    "mlp_bias": True,
    "decoder_bias": False,
    "hidden_activation": "silu",
}


def test_modernbert_with_other_biases_and_another_activation() -> None:
    module: Any = updates.language_model("modernbert", SHAPE | BIASES, 0.0, 0)
    lm = module["lm"]
    for bias in (x for key, x in lm.named_parameters() if key.endswith("bias")):
        torch.nn.init.normal_(bias)
    assert_prediction_losses(lm)


@pytest.mark.parametrize("name", PADDED)
def test_masked_language_modelling_of_a_padded_model(name: str) -> None:
    torch.manual_seed(0)
    module: Any = updates.language_model(name, shape(name), 0.0, 0)
    assert_prediction_losses(module["lm"])


@pytest.mark.parametrize("own", [0.0, 0.2])
def test_a_recipes_dropout_replaces_the_models_own(packed_type: str, own: float) -> None:
    model: Any = updates.encoder(packed_type, shape(packed_type), own).model
    parts = architecture(model)
    loop.set_dropout(model, 0.5)
    for one in (parts.layer(layer) for layer in parts.layers(model)):
        assert one.dropout == 0.5
        assert one.attended.dropout.p == (0.0 if packed_type == "distilbert" else 0.5)
    loop.set_dropout(model, 0.0)
    assert all(parts.layer(layer).dropout == 0.0 for layer in parts.layers(model))
    assert not any(module.p for module in model.modules() if isinstance(module, nn.Dropout))


def test_entropy_of_attention(name: str) -> None:
    model: Any = updates.encoder(name, shape(name), 0.0).model.eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for row, entropy_LH in zip(rows(), entropy_rows(model, rows(), 20, lambda _: None), strict=True):
            attentions = model(input_ids=torch.from_numpy(row)[None], output_attentions=True).attentions
            weight_LHn = torch.stack(attentions)[:, 0, :, 0].double()
            np.testing.assert_allclose(entropy_LH, torch.special.entr(weight_LHn).sum(-1), atol=2e-5)


def test_modernbert_on_a_gpu_masks_only_local_rows_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has windows only for all rows: the last layer's rows get masks, all sequences together."""
    model: Any = updates.encoder("modernbert", SHAPE, 0.0).model
    last, local = model.layers[-1], model.layers[1]
    packed = pack(rows(), "cpu")
    monkeypatch.setattr("pipeline.modeling.packed_layers.has_kernel", lambda device: True)
    (of_all,) = attention_layouts(model, [local], packed.every, packed).values()
    assert (of_all.masks, of_all.window) == (None, 8)
    (of_first,) = attention_layouts(model, [last], packed.first, packed).values()
    assert of_first.window is None
    assert [mask.shape for mask in of_first.masks] == [(len(LENGTHS), 1, 1, max(LENGTHS))]
    assert of_first.masks[0].sum((1, 2, 3)).tolist() == [min(length, 9) for length in LENGTHS]


def test_mpnet_on_a_gpu_computes_all_sequences_together(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = updates.language_model("mpnet", SHAPE, 0.0, 0)
    (chunk,) = updates.pretraining_batch(module, make_machine(token_budget=10_000), "cpu", 6, 40).chunks
    expected = backbone(module["lm"], chunk, 1, lambda *_: None)
    monkeypatch.setattr("pipeline.modeling.packed_layers.has_kernel", lambda device: True)
    for name, states in backbone(module["lm"], chunk, 1, lambda *_: None)._asdict().items():
        torch.testing.assert_close(states, getattr(expected, name), rtol=1e-5, atol=1e-5)


OBJECTIVES = [(name, objective) for name in TYPES for objective in ("condenser", "cocondenser", "retromae", "mlm")]
OBJECTIVES += [(name, objective) for name in PADDED for objective in ("mlm", "contrastive_only")]


@pytest.mark.parametrize(("model_type", "objective"), OBJECTIVES)
def test_pre_training_with_dropout_does_not_depend_on_the_gradient_cache(model_type: str, objective: str) -> None:
    """The second pass of the cache drops the same numbers; both give gradients to every parameter of the head."""
    torch.manual_seed(0)
    head_layers = 0 if model_type in PADDED or objective == "mlm" else 1
    module = updates.with_gradients(updates.language_model(model_type, shape(model_type), 0.1, head_layers))
    results = []
    for cache in ("never", "always"):
        for parameter in module.parameters():
            parameter.grad.zero_()
        machine = make_machine(gradient_cache=cache, token_budget=150)
        parts = updates.pretraining_update(module, objective, machine, "cpu", 8, longest=40, skip_from=1)
        results.append(({key: float(x) for key, x in parts.items()}, updates.gradients(module)))
    (losses, gradients), (cached_losses, cached_gradients) = results
    assert losses == cached_losses
    assert all(np.isfinite(x) for x in losses.values())
    assert all(torch.equal(gradients[key], cached_gradients[key]) for key in gradients)
    assert gradients[next(name for name in gradients if name.startswith("lm."))].any()
    assert all(gradients[key].any() for key in gradients if key.startswith("head.") and "key" not in key)


def saved(model_type: str, folder: Path, **fields: Any) -> Path:
    """Writes a model for masked language modelling, of random weights."""
    torch.manual_seed(0)
    config = updates.configuration(model_type, SHAPE | fields, 0.0)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    return folder


REFUSED = [
    ("fnet", "a fnet model is not supported: padding changes its vectors"),
    ("bart", "config.json: model_type 'bart' has a decoder; only encoders"),
    ("mobilebert", "the prediction head of a mobilebert model is not supported"),
]


@pytest.mark.parametrize(("model_type", "message"), REFUSED)
def test_what_a_padded_pass_would_change_is_refused(model_type: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_backbone_for_mlm(saved(model_type, tmp_path))


def test_a_padded_model_is_reported_as_slower_and_pre_trains_without_a_head(tmp_path: Path) -> None:
    folder = saved("deberta-v2", tmp_path)
    assert slower(model_config(folder)).startswith("model_type 'deberta-v2': texts are padded, which is slower")
    assert start.check_model("condenser", folder, 0, 30, "mlm")["hidden_size"] == SHAPE["hidden_size"]
    with pytest.raises(InputError, match=r"^condenser\.objective: condenser needs packed layers"):
        start.check_model("condenser", folder, 0, 30, "condenser")


def test_an_activation_that_transformers_lacks_is_refused_by_its_field(tmp_path: Path) -> None:
    folder = saved("deberta-v2", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "foo"}))
    with pytest.raises(InputError, match=r"config\.json: hidden_act 'foo' is not supported"):
        model_config(folder)


def test_a_padded_model_with_more_weights_than_layers_is_refused(tmp_path: Path) -> None:
    """Also without its head's names: a model of three layers is not used as one of two."""
    folder = saved("deberta-v2", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    with pytest.raises(InputError, match=r"the model has an unknown weight deberta\.encoder\.layer\.2"):
        load_encoder(folder)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    crossed.wordpiece(folder, SHAPE["vocab_size"] - len(SPECIALS))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    return folder


def test_checkpoints_open_elsewhere_with_equal_weights(name: str, tokenizer: Path, tmp_path: Path) -> None:
    lm = updates.language_model(name, shape(name), 0.0, 0)["lm"]
    save_checkpoint(tmp_path / "lm", lm, tokenizer)
    own = lm.state_dict()
    for loaded in (AutoModelForMaskedLM.from_pretrained(tmp_path / "lm"), load_backbone_for_mlm(tmp_path / "lm")):
        assert loaded.state_dict().keys() == own.keys()
        assert all(torch.equal(x, own[key]) for key, x in loaded.state_dict().items())
    encoder = load_encoder(tmp_path / "lm")
    assert all(torch.equal(x, lm.base_model.state_dict()[key]) for key, x in encoder.state_dict().items())
    assert not any("pooler" in key for key in encoder.state_dict())
    with_head = with_new_mlm_head(encoder, seed=3)
    assert torch.equal(with_head.get_input_embeddings().weight, encoder.get_input_embeddings().weight)
    classifier = new_classifier(tmp_path / "lm", seed=3)
    save_classifier(tmp_path / "pairs", classifier, tokenizer)
    reloaded = load_classifier(tmp_path / "pairs").state_dict()
    assert all(torch.equal(x, reloaded[key]) for key, x in classifier.state_dict().items())
    backbone_of_pairs = classifier.base_model.state_dict()
    assert all(torch.equal(x, backbone_of_pairs[key]) for key, x in encoder.state_dict().items())


@pytest.mark.slow
def test_sentence_transformers_and_onnx_give_the_same_vectors(name: str, tokenizer: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    pooling = "mean" if name in ("mpnet", "distilbert", "camembert") else "cls"
    dense = Dense(torch.randn(8, SHAPE["hidden_size"]), torch.randn(8), "Tanh" if pooling == "cls" else "GELU")
    vector = Vector(pooling, True, dense)
    save_checkpoint(tmp_path / "out", updates.encoder(name, shape(name), 0.0).model, tokenizer, vector=vector)
    texts = ["w3 w7 w1", "w9", " ".join(f"w{i}" for i in range(40))]
    ids = [np.array(read_tokenizer(tokenizer).encode(text).ids) for text in texts]
    encoder = load_encoders(tmp_path / "out")[0]
    ours = encode_rows(encoder, ids, 50)
    write_model(tmp_path / "out", tmp_path / "exported", ENCODER, passage_tokens=60)
    for folder in ("out", "exported"):
        theirs = SentenceTransformer(str(tmp_path / folder), device="cpu").encode(texts)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    frozen = encode_rows(frozen_encoders(tmp_path / "out")[0], ids, 50)
    assert frozen.tobytes() == ours.tobytes()
    if name == "longformer":
        with pytest.raises(InputError, match=r"^onnx: PyTorch cannot export a longformer model$"):
            write_graph(encoder, tmp_path / "model.onnx")
        return
    write_graph(encoder, tmp_path / "model.onnx")
    assert checked(tmp_path / "model.onnx", ids, ours) < 1e-5

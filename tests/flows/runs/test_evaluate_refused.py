"""Folders without a known bi-encoder are refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from ready import PROMPTS, TWO, plain, sentence, write_json

from artifacts.store import Store
from flows.runs.find_model import find_model
from pipeline.errors import InputError
from pipeline.sentences.model import SentenceModelConfig, missing


def sparse(folder: Path) -> Path:
    return sentence(folder, ("MLMTransformer", "SpladePooling"))


def two_maps(folder: Path) -> Path:
    return sentence(folder, ("Transformer", "Pooling", "Dense", "Dense"))


def with_max(folder: Path) -> Path:
    return sentence(folder, pooling={"pooling_mode_max_tokens": True})


def last_token(folder: Path) -> Path:
    return sentence(folder, pooling={"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True})


def without_prompt(folder: Path) -> Path:
    return sentence(folder, pooling={"include_prompt": False}, prompts=PROMPTS)


def map_of(**changed: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = sentence(folder, ("Transformer", "Pooling", "Dense")) / "2_Dense" / "config.json"
        write_json(path, {**json.loads(path.read_text()), **changed})
        return folder

    return make


def no_model(folder: Path) -> Path:
    folder.mkdir()
    return folder


def config_of(**changed: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = plain(folder) / "config.json"
        write_json(path, {**json.loads(path.read_text()), **changed})
        return folder

    return make


def without(name: str, instead: str | None = None) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = plain(folder) / name
        path.rename(folder / instead) if instead else path.unlink()
        return folder

    return make


def cased(folder: Path) -> Path:
    path = sentence(folder, texts={"do_lower_case": True}) / "tokenizer.json"
    write_json(path, {**json.loads(path.read_text()), "normalizer": None})
    return folder


def own_module(folder: Path) -> Path:
    path = sentence(folder) / "modules.json"
    modules = json.loads(path.read_text())
    modules[0]["type"] = "custom_st.Transformer"
    write_json(path, modules)
    return folder


def pooling_in(place: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = sentence(folder) / "modules.json"
        modules = json.loads(path.read_text())
        modules[1]["path"] = place
        write_json(path, modules)
        return folder

    return make


def adapter(folder: Path) -> Path:
    write_json(plain(folder) / "adapter_config.json", {"peft_type": "LORA"})
    return folder


def own_tokenizer(folder: Path) -> Path:
    path = plain(folder) / "tokenizer_config.json"
    write_json(path, {**json.loads(path.read_text()), "auto_map": {"AutoTokenizer": ["own.Own", None]}})
    return folder


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (no_model, "config.json: missing; a checkpoint is a Hugging Face model folder"),
        (sparse, "modules.json: a sparse encoder, whose vectors have one dimension per word"),
        (lambda f: sentence(f, model_type="SparseEncoder"), "{}: a sparse encoder"),
        (lambda f: sentence(f, ("Transformer",)), "modules.json: the modules Transformer are not supported"),
        (lambda f: sentence(f, ("Router",)), "modules.json: a module Router is not supported"),
        (two_maps, "the modules Transformer, Pooling, Dense, Dense are not supported"),
        (map_of(in_features=7), "2_Dense: in_features 7, but the model has"),
        (map_of(module_input_name="token_embeddings"), "2_Dense: module_input_name 'token_embeddings' is not"),
        (
            map_of(activation_function="torch.nn.Softmax"),
            "2_Dense: the activation Softmax is not supported: only Identity, Tanh",
        ),
        (with_max, "pooling by pooling_mode_max_tokens and pooling_mode_mean_tokens is not supported"),
        (last_token, "pooling by pooling_mode_lasttoken"),
        (without_prompt, "pooling without the prompt (include_prompt: false)"),
        (lambda f: sentence(f, TWO, similarity_fn_name="euclidean"), "similarity_fn_name 'euclidean'"),
        (lambda f: sentence(f, similarity_fn_name="manhattan"), "similarity_fn_name 'manhattan'"),
        (config_of(model_type="gpt2"), "config.json: model_type 'gpt2' is a decoder; only encoders are supported"),
        (
            config_of(model_type="own"),
            "config.json: model_type 'own' is no text encoder of transformers; only",
        ),
        (config_of(model_type=[]), "config.json: not the configuration of a Hugging Face model"),
        (
            config_of(model_type="roberta", pad_token_id=3),
            "its pad_token_id is 3, the tokenizer's padding token has id 0",
        ),
        (
            config_of(model_type="modernbert", rope_scaling={"factor": 2.0}),
            "config.json: rope_scaling is not supported",
        ),
        (
            config_of(model_type="modernbert", rope_parameters={"full_attention": {"rope_type": "yarn"}}),
            "rope_type 'yarn' is not supported: only 'default'",
        ),
        (config_of(local_attention=0), "config.json: local_attention must be a positive integer: 0"),
        (
            config_of(model_type="modernbert", rope_parameters={"rope_type": "default"}),
            "rope_parameters must have a dictionary for each kind of attention",
        ),
        (lambda f: plain(f, vocab_size=7), "config.json: vocab_size is 7, but the tokenizer has"),
        (config_of(num_hidden_layers=3), "config.json: num_hidden_layers is 3, but the weights have 2 layers"),
        (config_of(max_position_embeddings=64), "max_position_embeddings is 64, but the weights have 128 positions"),
        (config_of(hidden_size=48), "config.json: hidden_size is 48, but the weights have 24 dimensions"),
        (config_of(is_decoder=True), "config.json: is_decoder is set, but only encoders are supported"),
        (config_of(num_attention_heads=7), "config.json: num_attention_heads (7) must divide hidden_size"),
        (config_of(intermediate_size=0), "config.json: intermediate_size must be a positive integer: 0"),
        (config_of(hidden_act="softplus"), "config.json: hidden_act 'softplus' is not supported: only gelu, "),
        (config_of(model_type="distilbert", activation=7), "config.json: activation 7 is not supported: only gelu, "),
        (config_of(hidden_dropout_prob="x"), "hidden_dropout_prob must be a number from 0 to below 1: 'x'"),
        (config_of(layer_norm_eps=None), "layer_norm_eps must be a positive number: None"),
        (config_of(type_vocab_size=0), "type_vocab_size must be a positive integer: 0"),
        (config_of(pad_token_id=10**6), "pad_token_id must be an integer from 0 to "),
        (
            config_of(auto_map={"AutoModel": "modeling.Own"}),
            "config.json: auto_map names code of the model's own, which is never run",
        ),
        (own_module, "modules.json: a module custom_st.Transformer is not supported"),
        (own_tokenizer, "tokenizer_config.json: auto_map names code of the tokenizer's own, which is never run"),
        (config_of(architectures=5), "config.json: architectures must be a list: 5"),
        (lambda f: sentence(f, truncate_dim=4), "config_sentence_transformers.json: truncate_dim is not supported"),
        (lambda f: sentence(f, texts={"transformer_task": "fill-mask"}), "transformer_task 'fill-mask' is not"),
        (config_of(position_embedding_type="relative_key"), "position_embedding_type 'relative_key'"),
        (config_of(architectures=["BertForSequenceClassification"]), "{}: a cross-encoder, which scores pairs"),
        (without("model.safetensors", "pytorch_model.bin"), "no model.safetensors; transformers' save_pretrained"),
        (without("tokenizer.json"), "no tokenizer: tokenizer.json, vocab.txt, vocab.json are all"),
        (lambda f: sentence(f, prompts=["a"]), "config_sentence_transformers.json: prompts must be"),
        (
            lambda f: sentence(f, texts={"max_seq_length": math.inf}),
            "sentence_bert_config.json: max_seq_length must be",
        ),
        *(
            (
                lambda f, length=length: sentence(f, texts={"max_seq_length": length}),
                f"sentence_bert_config.json: max_seq_length must be a number of tokens, at least 4: {length}",
            )
            for length in (-1, 0)
        ),
        (
            lambda f: sentence(f, texts={"do_lower_case": "no"}),
            "sentence_bert_config.json: do_lower_case must be true or false: 'no'",
        ),
        *(
            (
                lambda f, name=name: sentence(f, pooling={name: 999}),
                f"1_Pooling/config.json: {name} is 999, but the model has 24 dimensions",
            )
            for name in ("word_embedding_dimension", "embedding_dimension")
        ),
        (
            lambda f: sentence(f, pooling={"pooling_mode_mean_tokens": "yes"}),
            "1_Pooling/config.json: pooling_mode_mean_tokens must be true or false: 'yes'",
        ),
        (
            lambda f: sentence(f, pooling={"include_prompt": 0}),
            "1_Pooling/config.json: include_prompt must be true or false: 0",
        ),
        (map_of(bias="no"), "2_Dense/config.json: bias must be true or false: 'no'"),
        *(
            (pooling_in(path), f"modules.json: the path '{path}' leads out of the model's folder")
            for path in ("../../x", "/x", "..")
        ),
        (
            config_of(quantization_config={"quant_method": "gptq"}),
            "config.json: quantization_config: quantised weights are not supported",
        ),
        (adapter, "adapter_config.json: an adapter (PEFT) is not supported: merge it into the model"),
        (cased, "do_lower_case with a tokenizer that keeps upper case"),
    ],
)
def test_a_folder_without_a_known_bi_encoder_is_one_line(store: Store, tmp_path: Path, make, line: str) -> None:
    folder = make(tmp_path / "model")
    with pytest.raises(InputError) as error:
        find_model(store, str(folder))
    assert line.format(folder) in str(error.value)
    assert "\n" not in str(error.value)
    config = SentenceModelConfig(checkpoint=folder, pretrained=None, revision="main", tokenizer=None)
    assert missing(config) == [f"models: {error.value}"]  # of the sentence tasks

"""Cross-encoders of the tests: a configuration, a start whose tokenizer makes pairs, and ready folders."""

import json
import shutil
from pathlib import Path

import torch
from encoders import TRAINING
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, RobertaConfig, RobertaModel

from pipeline.cross_encoder.cross_encoder import CrossEncoderConfig, lengths
from pipeline.cross_encoder.lengths import write_lengths
from pipeline.modeling.checkpoint import new_classifier, save_checkpoint, save_classifier
from pipeline.tokenization.wordpiece import SPECIALS, Normal, build_tokenizer

CONFIG = CrossEncoderConfig(
    **TRAINING,
    checkpoint=None,
    loss="listwise",
    positives_considered=None,
    question_tokens=10,
    title_tokens=4,
    passage_tokens=52,
)


def wordpiece(folder: Path, words: int) -> None:
    """The tokenizer of the tests' world, as the tokenizer stage writes one."""
    vocabulary = [*SPECIALS, *(f"w{i}" for i in range(words))]
    tokenizer = build_tokenizer(vocabulary, Normal(lowercase=True, split_identifiers=False, drop_rules=False))
    tokenizer.save(str(folder / "tokenizer.json"))


def make_start(checkpoint: Path, folder: Path, words: int = 300) -> Path:
    """The world's checkpoint with a tokenizer that knows how pairs are written."""
    shutil.copytree(checkpoint, folder)
    wordpiece(folder, words)
    return folder


def make_cross_encoder(start: Path, folder: Path, seed: int = 0, config: CrossEncoderConfig = CONFIG) -> Path:
    """An untrained cross-encoder, as its stage writes one."""
    save_classifier(folder, new_classifier(start, seed), start)
    write_lengths(lengths(config), folder)
    return folder


def make_roberta(folder: Path, texts: list[str], positions: int = 128) -> Path:
    """A small RoBERTa checkpoint with a byte-level BPE tokenizer of its own."""
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    specials = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    source = folder / "source"
    source.mkdir(parents=True)
    bpe.save(str(source / "tokenizer.json"))
    names = {f"{role}_token": name for role, name in zip(("cls", "pad", "sep", "unk"), specials[:4], strict=True)}
    description = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    (source / "tokenizer_config.json").write_text(json.dumps({**description, **names}))
    torch.manual_seed(2)
    config = RobertaConfig(
        vocab_size=bpe.get_vocab_size(),
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=positions + 2,
        pad_token_id=1,
        type_vocab_size=1,
        initializer_range=0.3,
    )
    save_checkpoint(folder / "start", RobertaModel(config, add_pooling_layer=False).eval(), source)
    return folder / "start"


def make_existing(folder: Path, words: list[str], seed: int = 0, positions: int = 64) -> Path:
    """An untrained cross-encoder of BERT's architecture with its own tokenizer, as sentence-transformers stores one."""
    vocabulary = [*SPECIALS, *words]
    source = folder.with_name(f"{folder.name} start")
    source.mkdir()
    normal = Normal(lowercase=True, split_identifiers=False, drop_rules=False)
    build_tokenizer(vocabulary, normal).save(str(source / "tokenizer.json"))
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
    (source / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=positions,
        initializer_range=0.5,
        num_labels=1,
    )
    save_classifier(folder, BertForSequenceClassification(config).eval(), source)
    return folder

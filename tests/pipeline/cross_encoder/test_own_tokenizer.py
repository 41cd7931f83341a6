"""Cross-encoders of another architecture and tokenizer than the bi-encoder: they read texts."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from crossed import CONFIG, make_cross_encoder, make_roberta
from encoders import SUBSET
from sentence_transformers import CrossEncoder

from flows.recipes.recipe import resolve
from pipeline.cross_encoder.cross_encoder import check_model, cross_encoder
from pipeline.cross_encoder.rerank import RerankConfig, rerank
from pipeline.cross_encoder.soft_labels import soft_labels
from pipeline.data.runs import SCHEMA
from pipeline.errors import InputError
from pipeline.finetune.soft_label_pairs import SoftLabelsConfig
from pipeline.modeling.initial import initial
from pipeline.runtime.planned import Planned
from pipeline.tokenization.tokenizer import tokenizer
from pipeline.tokenization.tokens import TokensConfig, tokens

LENGTHS = {"question_tokens": 40, "title_tokens": 8, "passage_tokens": 200}
"""Nothing is cut. Byte-level BPE has more tokens in a text of the world than its words."""


@pytest.fixture(scope="module")
def roberta(world, tmp_path_factory) -> Path:
    """A checkpoint of RoBERTa; `world.checkpoint` is of BERT, with a vocabulary of words."""
    texts = pq.read_table(world.collection / "passages.parquet")["text"].to_pylist()
    return make_roberta(tmp_path_factory.mktemp("roberta"), texts, positions=300)


@pytest.fixture
def own(world, roberta, work) -> tuple[Path, Path, Path]:
    """The artifacts of the nodes tokenizer-cross-initial, tokens-cross-initial and cross-initial."""
    folders = tuple(work(name) for name in ("tokenizer", "tokens", "initial"))
    recipe = resolve("tiny", [f"tokenizer.path={roberta}", f"initial.checkpoint={roberta}"])
    tokenizer(recipe.tokenizer, world.collection, folders[0])
    tokens(TokensConfig(max_tokens=None), world.collection, folders[0].out, folders[1])
    initial(recipe.initial, folders[0].out, folders[1].out, folders[2])
    return tuple(one.out for one in folders)


def train(world, own_tokens: Path, start: Path, work, **fields) -> Path:
    config = CONFIG.model_copy(update={**LENGTHS, **fields})
    cross_encoder(config, SUBSET, world.collection, own_tokens, start, world.bm25, None, work)
    return work.out


def scores_of_texts(folder: Path, world, pairs: list[tuple[str, str]]) -> np.ndarray:
    """sentence-transformers' scores of (query id, passage id)."""
    questions = {q["query_id"]: q["text"] for q in pq.read_table(world.collection / "queries.parquet").to_pylist()}
    rows = pq.read_table(world.collection / "passages.parquet").to_pylist()
    passages = {row["passage_id"]: f"{row['title']} {row['text']}".strip() for row in rows}
    texts = [(questions[q], passages[p]) for q, p in pairs]
    return CrossEncoder(str(folder), device="cpu").predict(texts, show_progress_bar=False)


def test_a_teacher_of_another_architecture_is_trained_and_scores_texts(world, own, work, inline):
    _, own_tokens, start = own
    out = train(world, own_tokens, start, work("trained"), epochs=1)
    labels = work("labels")
    config = SoftLabelsConfig(negatives_from="bm25", negative_depth=3)
    metrics = soft_labels(config, world.collection, own_tokens, world.bm25, None, labels, cross_encoder=out)
    found = pq.read_table(labels.out / "scores.parquet").to_pydict()
    pairs = [*zip(found["query_id"], found["passage_id"], strict=True)]
    np.testing.assert_allclose(found["score"], scores_of_texts(out, world, pairs), atol=2e-5)
    assert np.ptp(found["score"]) > 0.01
    assert not metrics["passages_cut"] + metrics["questions_cut"]


def test_a_finished_reranker_of_another_architecture_orders_by_its_scores_of_texts(world, own, roberta, work, inline):
    own_tokenizer, own_tokens, _ = own
    ready = make_cross_encoder(roberta, work("ready").out / "folder", seed=4)
    (ready / "pairs.json").unlink()
    taken = train(world, own_tokens, own_tokenizer, work("taken"), checkpoint=ready)
    reranked = work("reranked")
    config = RerankConfig(splits=["dev"], depth=8)
    rerank(config, world.collection, own_tokens, world.bm25, reranked, cross_encoder_1=taken)
    found = pq.read_table(reranked.out / "run.parquet", schema=SCHEMA).to_pydict()
    pairs = [*zip(found["query_id"], found["passage_id"], strict=True)]
    np.testing.assert_allclose(found["score"], scores_of_texts(ready, world, pairs), atol=2e-5)


def test_a_finished_cross_encoder_of_too_few_positions_is_refused_once_its_tokens_are_there(world, own, roberta, work):
    own_tokenizer, own_tokens, _ = own
    ready = make_cross_encoder(roberta, work("ready").out / "folder")

    def planned(name: str, config: object = None, path: Path | None = None, **inputs: Planned) -> Planned:
        return Planned(name, name, name, config, {}, inputs, path, {})

    def check(passage_tokens: int, tokens_path: Path | None) -> None:
        texts = planned("tokens", None, tokens_path, tokenizer=planned("tokenizer", None, own_tokenizer))
        config = CONFIG.model_copy(update={**LENGTHS, "checkpoint": ready, "passage_tokens": passage_tokens})
        check_model(planned("cross_encoder", config, None, tokens=texts))

    check(999, None)
    check(258, own_tokens)
    with pytest.raises(InputError, match=r"cross_encoder: pairs of 308 tokens, but the model in .* has 300 positions"):
        check(268, own_tokens)

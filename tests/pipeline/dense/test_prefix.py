"""`index.dimension`: the first numbers of passages' and questions' vectors."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from encoders import ENCODER, FORM, SPECIALS
from indexes import EFFORT, FLAT, KINDS, write_embeddings, write_passages
from vectors import data
from world import write_model

from pipeline.dense.encode import EncodeConfig, encode
from pipeline.dense.index import index
from pipeline.dense.index_files import open_index
from pipeline.dense.prefix import prefixes
from pipeline.dense.question_encoder import QuestionEncoder, question_encoder
from pipeline.dense.search import SearchConfig, search, top_k
from pipeline.errors import InputError
from pipeline.modeling.biencoder import Encoder, Projection, encode_rows, load_encoders
from pipeline.modeling.inputs import question_rows
from pipeline.tokenization.token_files import Tokens

CUT = FLAT.model_copy(update={"dimension": 6})
UNIT = ENCODER.model_copy(update={"normalise": True})
ENCODE = EncodeConfig(passage_tokens=40, shard_passages=32)
SEARCH = SearchConfig(splits=["test"], unjudged_train_questions=False, depth=20, train_depth=10, approximate=EFFORT)


@pytest.fixture
def given(tmp_path):
    """(vectors, collection, embeddings), of 12 dimensions."""
    _, vectors_ND = data(n=300, dimension=12)
    folders = write_passages(tmp_path / "passages", 300), write_embeddings(tmp_path / "embeddings", vectors_ND, 100)
    return vectors_ND, *folders


@pytest.mark.parametrize("normalise", [False, True])
def test_an_index_holds_the_first_numbers_of_each_vector(given, work, inline, normalise):
    vectors_ND, collection, embeddings = given
    done = work()
    metrics = index(CUT, collection, embeddings, done, normalise=normalise)
    opened, expected_ND = open_index(done.out), vectors_ND[:, :6]
    if normalise:
        expected_ND = expected_ND / np.linalg.norm(expected_ND, axis=1, keepdims=True)
    np.testing.assert_array_equal(opened.vectors_ND, expected_ND.astype(np.float16).astype(np.float32))
    assert (metrics["dimension"], opened.dimension) == (6, 6)
    assert opened.longest == pytest.approx(np.linalg.norm(opened.vectors_ND, axis=1).max(), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_index_is_cut(given, work, inline, kind):
    config = CUT.model_copy(update={"kind": kind, "nlist": 2, "pq_m": 3})
    vectors_ND, collection, embeddings = given
    if kind == "ivfpq":
        vectors_ND = data(n=11000, dimension=12)[1]
        folder = collection.parent
        collection = write_passages(folder / "many", 11000)
        embeddings = write_embeddings(folder / "vectors", vectors_ND, 6000)
    done = work()
    index(config, collection, embeddings, done)
    opened = open_index(done.out)
    np.testing.assert_array_equal(opened.vectors_ND, vectors_ND[:, :6])
    assert top_k(vectors_ND[:2, :6], opened, 3, EFFORT)[0].shape == (2, 3)


def test_the_whole_dimension_gives_the_bytes_of_an_uncut_index(given, work, inline):
    _, collection, embeddings = given
    plain, whole = work("plain"), work("whole")
    index(FLAT, collection, embeddings, plain)
    index(FLAT.model_copy(update={"dimension": 12}), collection, embeddings, whole, normalise=True)
    for path in plain.out.iterdir():
        assert path.read_bytes() == (whole.out / path.name).read_bytes(), path.name


def test_more_dimensions_than_the_vectors_have_are_refused(given, work, inline):
    _, collection, embeddings = given
    with pytest.raises(InputError, match=r"index\.dimension: 13 is more than the vectors' dimension, 12"):
        index(FLAT.model_copy(update={"dimension": 13}), collection, embeddings, work())
    config = CUT.model_copy(update={"kind": "ivfpq", "pq_m": 4})  # divides 12, but not 6
    with pytest.raises(InputError, match=r"index\.pq_m: 4 does not divide the vectors' dimension, 6"):
        index(config, collection, embeddings, work("pq"))


def test_a_zero_vector_stays_zero():
    assert not prefixes(np.zeros((1, 4), np.float16), 2, normalise=True).any()


@pytest.fixture
def checkpoint(tmp_path):
    write_model(tmp_path / "model", tmp_path / "tokenizer")
    return tmp_path / "model"


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(("bias", "activation"), [(None, ""), (False, "Identity"), (True, "Tanh")])
def test_an_encoder_is_cut_to_its_first_numbers(checkpoint, normalise, bias, activation):
    torch.manual_seed(4)
    projection = None if bias is None else Projection(16, 10, bias, activation)
    raw = Encoder(load_encoders(checkpoint)[0].model, "cls", False, projection)
    rows = [np.array([2, *range(5, 5 + n), 3]) for n in range(1, 9)]
    expected_NE = encode_rows(raw, rows, 512)[:, :6]
    if normalise:
        expected_NE /= np.linalg.norm(expected_NE, axis=1, keepdims=True)
    cut = Encoder(raw.model, "cls", normalise, projection).cut_to(6)
    assert cut.dimension == 6
    np.testing.assert_allclose(encode_rows(cut, rows, 512), expected_NE, atol=1e-6)
    as_dense = cut.projection.dense  # as an export writes it
    pooled_NE = encode_rows(Encoder(raw.model, "cls"), rows, 512)
    mapped_NE = torch.from_numpy(pooled_NE) @ as_dense.weight_ED.T + (0 if as_dense.bias_E is None else as_dense.bias_E)
    vector_NE = getattr(torch.nn, as_dense.activation)()(mapped_NE).detach()
    if normalise:
        vector_NE = torch.nn.functional.normalize(vector_NE)
    np.testing.assert_allclose(vector_NE, expected_NE, atol=1e-6)


def test_no_cut_is_the_encoder_itself(checkpoint):
    encoder = load_encoders(checkpoint)[0]
    assert encoder.cut_to(None) is encoder.cut_to(16) is encoder.cut_to(99) is encoder


def test_a_cut_question_has_the_same_bytes_alone_and_in_a_batch(checkpoint):
    encoder = load_encoders(checkpoint)[0]
    for normalise in (False, True):
        cut = Encoder(encoder.model.eval(), "cls", normalise).cut_to(6)
        assert QuestionEncoder(cut, None, FORM).is_steady()


def test_questions_of_a_search_are_cut_as_the_passages(world, work, inline, tmp_path):
    """The lists are those of the cut, normalised vectors, computed here in float64."""
    embeddings, indexed, done = work("embeddings"), work("index"), work("search")
    checkpoint = unit_checkpoint(world, tmp_path / "unit")
    encode(ENCODE, UNIT, world.collection, world.tokens, checkpoint, embeddings)
    index(CUT, world.collection, embeddings.out, indexed, normalise=True)
    search(SEARCH, UNIT, world.collection, world.tokens, checkpoint, indexed.out, done)
    run = pq.read_table(done.out / "run.parquet").to_pandas()
    opened = open_index(indexed.out)
    assert SPECIALS.vocab_size == Tokens.open(world.tokens).specials.vocab_size
    for place, query_id in ((25, "q25"), (26, "q26")):
        first = run[run.query_id == query_id]
        if first.empty:
            continue  # a dev question
        whole_1E = encode_rows(
            load_encoders(checkpoint)[0], question_rows(Tokens.open(world.tokens), [place], FORM), 512
        )
        prefix_D = whole_1E[0, :6].astype(np.float64)
        score_N = opened.vectors_ND.astype(np.float64) @ (prefix_D / np.linalg.norm(prefix_D))
        best_K = np.argsort(-score_N, kind="stable")[:20]
        assert first["passage_id"].tolist() == [f"d{row // 2}-{row % 2}" for row in best_K]
        np.testing.assert_allclose(first["score"], score_N[best_K], rtol=1e-5)
    served = question_encoder(checkpoint, UNIT, opened.dimension)
    vectors_QD = served.vectors([row for row in served.rows(["w1 w2", "w3"]) if row is not None])
    np.testing.assert_allclose(np.linalg.norm(vectors_QD, axis=1), 1, rtol=1e-6)
    assert vectors_QD.shape == (2, 6)


def unit_checkpoint(world, folder):
    from pipeline.modeling.checkpoint import save_checkpoint
    from pipeline.modeling.model_files.sentence_transformers_files import Vector

    save_checkpoint(folder, load_encoders(world.checkpoint)[0].model, world.checkpoint, vector=Vector("cls", True))
    return folder

import json
import os
import shutil
from multiprocessing import Barrier

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
from encoders import ENCODER, FORM
from indexes import EFFORT, FLAT
from safetensors.torch import load_file, save_file

from pipeline.dense.encode import EncodeConfig, encode
from pipeline.dense.exact import exact_top_k
from pipeline.dense.index import index
from pipeline.dense.index_files import open_index, read_flat
from pipeline.dense.search import SHARD, SearchConfig, check_model, search, top_k
from pipeline.errors import InputError
from pipeline.modeling.biencoder import encode_rows, load_encoders
from pipeline.modeling.inputs import question_rows
from pipeline.tokenization.token_files import Tokens

ENCODE = EncodeConfig(passage_tokens=40, shard_passages=32)
SEARCH = SearchConfig(
    splits=["test", "train"], unjudged_train_questions=False, depth=20, train_depth=10, approximate=EFFORT
)


@pytest.fixture
def built(world, work, inline):
    """(embeddings, index) folders."""
    embeddings, indexed = work("embeddings", workers=2), work("index")
    encode(ENCODE, ENCODER, world.collection, world.tokens, world.checkpoint, embeddings)
    index(FLAT, world.collection, embeddings.out, indexed)
    return embeddings.out, indexed.out


def test_index_is_a_faiss_index_of_all_passages_in_order(world, built):
    embeddings, indexed = built
    shards = np.concatenate([np.load(path) for path in sorted(embeddings.glob("shard-*.npy"))])
    loaded = faiss.read_index(str(indexed / "index"))
    assert type(loaded) is faiss.IndexFlatIP
    np.testing.assert_array_equal(loaded.reconstruct_n(0, 120), shards.astype(np.float32))
    np.testing.assert_array_equal(read_flat(indexed / "index"), shards.astype(np.float32))
    ids = pq.read_table(world.collection / "passages.parquet")["passage_id"].to_pylist()
    assert (indexed / "docid").read_text().splitlines() == ids
    expected = bytes_written_by_faiss(shards.astype(np.float32), indexed)
    assert (indexed / "index").read_bytes() == expected


def bytes_written_by_faiss(vectors, folder):
    plain = faiss.IndexFlatIP(vectors.shape[1])
    plain.add(vectors)
    faiss.write_index(plain, str(folder.parent / "plain"))
    return (folder.parent / "plain").read_bytes()


def test_run_holds_the_best_passages_of_each_question(world, built, work, inline):
    _, indexed = built
    done = work("search")
    metrics = search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, indexed, done)
    run = pq.read_table(done.out / "run.parquet").to_pandas()
    assert metrics.pop("questions_per_second") > 0
    cut = {"questions_cut": 0, "questions_cut_share": 0, "questions_unread_share": 0}
    assert metrics == cut | {"questions": 24 + 18, "passages": 120}
    assert run.groupby("split").size().to_dict() == {"test": 18 * 20, "train": 24 * 10}
    encoder = load_encoders(world.checkpoint)[0]
    questions = encode_rows(encoder, question_rows(Tokens.open(world.tokens), [0], FORM), 512)
    rows, scores = top_k(questions, open_index(indexed), 10)
    first = run[run.query_id == "q0"]
    assert first["passage_id"].tolist() == [f"d{row // 2}-{row % 2}" for row in rows[0]]
    np.testing.assert_allclose(first["score"], scores[0], rtol=1e-6)
    assert first["rank"].tolist() == list(range(1, 11))
    assert len((done.out / "run.trec").read_text().splitlines()) == 18 * 20  # no training questions


def test_search_is_deterministic(world, built, work, inline):
    one, two = work("one"), work("two")
    for each in (one, two):
        search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, built[1], each)
    for name in ("run.parquet", "run.trec"):
        assert (one.out / name).read_bytes() == (two.out / name).read_bytes()


def test_all_workers_search(world, built, work, inline, monkeypatch, tmp_path):
    monkeypatch.setitem(SHARD, "cpu", 8)
    plain, spread, both = work("plain", workers=1), work("spread", workers=2), Barrier(2)
    search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, built[1], plain)

    def recorded(*arguments, **named):
        if not (marker := tmp_path / str(os.getpid())).exists():
            marker.touch()
            both.wait(60)
        return exact_top_k(*arguments, **named)

    monkeypatch.setattr("pipeline.dense.search.exact_top_k", recorded)
    search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, built[1], spread)
    pids = {path.name for path in tmp_path.iterdir() if path.name.isdigit()}
    assert len(pids - {str(os.getpid())}) == 2
    assert (plain.out / "run.parquet").read_bytes() == (spread.out / "run.parquet").read_bytes()


def test_an_approximate_index_reports_its_recall(world, built, work, inline):
    """Recall on the test questions is 1: the graph's candidates are exactly the 20 best passages of each."""
    indexed, done = work("hnsw"), work("search")
    index(FLAT.model_copy(update={"kind": "hnsw"}), world.collection, built[0], indexed)
    metrics = search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, indexed.out, done)
    assert metrics.pop("questions_per_second") > 0
    assert metrics.pop("searched_exactly") == 0
    cut = {"questions_cut": 0, "questions_cut_share": 0, "questions_unread_share": 0}
    assert metrics == cut | {"questions": 24 + 18, "passages": 120, "recall": 1, "recall_10": 1}
    assert len(pq.read_table(done.out / "run.parquet")) == 18 * 20 + 24 * 10


@pytest.mark.parametrize("untied", [False, True])
def test_another_models_index_is_refused(world, built, work, inline, tmp_path, untied):
    """The other model has the same dimension. Only its weights distinguish it."""
    other = tmp_path / "other"
    shutil.copytree(world.checkpoint, other / "passage" if untied else other)
    if untied:
        shutil.copytree(world.checkpoint, other / "query")
    else:
        weights = load_file(other / "model.safetensors")
        name = min(weights)
        save_file(weights | {name: weights[name] + 1}, other / "model.safetensors")
    check_model(open_index(built[1]), world.checkpoint)
    with pytest.raises(InputError, match=r"built with another model than .*other, which encodes the questions"):
        check_model(open_index(built[1]), other)
    with pytest.raises(InputError, match="another model"):
        search(SEARCH, ENCODER, world.collection, world.tokens, other, built[1], work("refused"))


def test_a_damaged_index_is_not_searched(world, built, work, inline):
    path = built[1] / "index"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(InputError, match=str(path)):
        search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, built[1], work("refused"))


def test_incomplete_embeddings_are_refused(world, built, work, tmp_path):
    shutil.copytree(built[0], tmp_path / "short")
    metadata = json.loads((built[0] / "embeddings.json").read_text())
    (tmp_path / "short" / "embeddings.json").write_text(json.dumps(metadata | {"shards": metadata["shards"][:-1]}))
    remaining = 120 - metadata["shards"][-1]["rows"]
    with pytest.raises(InputError, match=f"{remaining} vectors for 120 passages"):
        index(FLAT, world.collection, tmp_path / "short", work("other"))


@pytest.mark.slow
def test_pyserini_reads_the_index_and_finds_the_same(world, built, faiss_searcher):
    questions = encode_rows(
        load_encoders(world.checkpoint)[0], question_rows(Tokens.open(world.tokens), range(5), FORM), 512
    )
    searcher = faiss_searcher(str(built[1]), None)
    rows, scores = top_k(questions, open_index(built[1]), 10)
    for q, question in enumerate(questions):
        hits = searcher.search(question[None], k=10)
        assert [hit.docid for hit in hits] == [f"d{row // 2}-{row % 2}" for row in rows[q]]
        np.testing.assert_allclose([hit.score for hit in hits], scores[q], rtol=1e-5)


@pytest.mark.slow
def test_child_process_writes_the_same_run(world, work, request):
    """All stages in real child processes, compared with the same stages in this process."""
    embeddings, indexed, child, here = (work(name) for name in ("embeddings", "index", "child", "here"))
    encode(ENCODE, ENCODER, world.collection, world.tokens, world.checkpoint, embeddings)
    index(FLAT, world.collection, embeddings.out, indexed)
    inputs = (world.collection, world.tokens, world.checkpoint, indexed.out)
    search(SEARCH, ENCODER, *inputs, child)
    request.getfixturevalue("inline")
    search(SEARCH, ENCODER, *inputs, here)
    for name in ("run.parquet", "run.trec"):
        assert (child.out / name).read_bytes() == (here.out / name).read_bytes()

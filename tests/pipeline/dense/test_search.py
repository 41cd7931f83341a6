import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
from encoders import ENCODER, FORM

from pipeline.biencoder import encode_rows, load_encoders
from pipeline.encode import EncodeConfig, encode
from pipeline.errors import InputError
from pipeline.index import IndexConfig, index, read_vectors
from pipeline.inputs import question_rows
from pipeline.ragged import Tokens
from pipeline.rescore import best, error_bound, rescore
from pipeline.search import SearchConfig, _candidates, encode_text, exact_top_k, run, search, top_k


def data(n=5000, q=40, dimension=24, seed=0):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, dimension)).astype(np.float16).astype(np.float32)
    return rng.normal(size=(q, dimension)).astype(np.float32), vectors


def reference(questions, vectors, k):
    """Plain: every score in float64 by NumPy, rounded, sorted by score and row."""
    scores = (vectors.astype(np.float64) @ questions.astype(np.float64).T).T.astype(np.float32)
    rows = np.lexsort((np.broadcast_to(np.arange(len(vectors)), scores.shape), -scores), axis=1)[:, :k]
    return rows, np.take_along_axis(scores, rows, 1)


def test_lists_are_the_exact_ones():
    questions, vectors = data()
    for k in (1, 7, 100):
        rows, scores = exact_top_k(questions, vectors, k, "cpu")
        expected_rows, expected_scores = reference(questions, vectors, k)
        np.testing.assert_array_equal(rows, expected_rows)
        np.testing.assert_array_equal(scores, expected_scores)


def test_threads_batches_and_blocks_do_not_change_a_byte():
    questions, vectors = data(seed=3)
    vectors[2000:2100] = vectors[100]  # far more equal passages than spare candidates
    vectors[4000:4050] = vectors[100]
    questions[:5] = vectors[100] * 3
    whole = exact_top_k(questions, vectors, 50, "cpu")
    np.testing.assert_array_equal(whole[0][0][:50], [100, *range(2000, 2049)])
    for threads in (1, 2):
        faiss.omp_set_num_threads(threads)
        for block in (24 * 999, 1 << 25):
            for batch in (1, 7, 40):
                parts = [exact_top_k(questions[i : i + batch], vectors, 50, "cpu", block) for i in range(0, 40, batch)]
                np.testing.assert_array_equal(np.concatenate([p[0] for p in parts]), whole[0])
                np.testing.assert_array_equal(np.concatenate([p[1] for p in parts]), whole[1])
    faiss.omp_set_num_threads(1)


def test_torch_finds_the_same(monkeypatch):
    """The search of GPUs, run on the CPU."""
    questions, vectors = data(seed=4)
    expected = exact_top_k(questions, vectors, 20, "cpu")
    import pipeline.search

    torch_search = pipeline.search._torch
    monkeypatch.setattr(pipeline.search, "_faiss", lambda *a: torch_search(*a))
    found = exact_top_k(questions, vectors, 20, "cpu", block=24 * 700)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_rounding_stays_within_its_bound():
    questions, vectors = data(dimension=768, n=2000)
    rows, inexact, longest = _candidates(questions, vectors, 2000, "cpu", 1 << 25)
    for q, question in enumerate(questions):
        difference = np.abs(rescore(question, rows[q], vectors) - inexact[q].astype(np.float64)).max()
        assert difference < error_bound(question, longest)


def test_ties_follow_passage_order():
    rows, scores = best(np.array([9, 3, 5, 1]), np.array([1, 2, 1, 1], dtype=np.float32), 3)
    assert rows.tolist() == [3, 1, 5]
    assert scores.tolist() == [2, 1, 1]


def test_more_asked_than_there_is():
    questions, vectors = data(n=6)
    rows, scores = exact_top_k(questions, vectors, 100, "cpu")
    assert rows.shape == scores.shape == (40, 6)


ENCODE = EncodeConfig(passage_tokens=40, shard_passages=32)
SEARCH = SearchConfig(splits=["test", "train"], unjudged=False, depth=20, train_depth=10)


@pytest.fixture
def built(world, work, inline):
    """(embeddings, index) folders."""
    embeddings, indexed = work("embeddings", workers=2), work("index")
    encode(ENCODE, ENCODER, world.tokens, world.checkpoint, embeddings)
    index(IndexConfig(kind="flat"), world.collection, embeddings.out, indexed)
    return embeddings.out, indexed.out


def test_index_is_a_faiss_index_of_all_passages_in_order(world, built):
    embeddings, indexed = built
    shards = np.concatenate([np.load(path) for path in sorted(embeddings.glob("shard-*.npy"))])
    loaded = faiss.read_index(str(indexed / "index"))
    assert type(loaded) is faiss.IndexFlatIP
    np.testing.assert_array_equal(loaded.reconstruct_n(0, 120), shards.astype(np.float32))
    np.testing.assert_array_equal(read_vectors(indexed / "index"), shards.astype(np.float32))
    ids = pq.read_table(world.collection / "passages.parquet")["passage_id"].to_pylist()
    assert (indexed / "docid").read_text().splitlines() == ids
    ours = work_written_by_faiss(shards.astype(np.float32), indexed)
    assert (indexed / "index").read_bytes() == ours


def work_written_by_faiss(vectors, folder):
    plain = faiss.IndexFlatIP(vectors.shape[1])
    plain.add(vectors)
    faiss.write_index(plain, str(folder.parent / "plain"))
    return (folder.parent / "plain").read_bytes()


def test_run_holds_the_best_passages_of_each_question(world, built, work, inline):
    _, indexed = built
    done = work("search")
    metrics = search(SEARCH, ENCODER, world.collection, world.tokens, world.checkpoint, indexed, done)
    found = pq.read_table(done.out / "run.parquet").to_pandas()
    assert metrics == {"questions": 24 + 18, "passages": 120}
    assert found.groupby("split").size().to_dict() == {"test": 18 * 20, "train": 24 * 10}
    encoder = load_encoders(world.checkpoint)[0]
    questions = encode_rows(encoder, question_rows(Tokens.open(world.tokens), [0], FORM), 512)
    rows, scores = top_k(questions, indexed, 10)
    first = found[found.query_id == "q0"]
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


def test_text_is_encoded_as_the_collections_questions_are(world):
    text = pq.read_table(world.collection / "queries.parquet")["text"].to_pylist()[3]
    encoder = load_encoders(world.checkpoint)[0]
    expected = encode_rows(encoder, question_rows(Tokens.open(world.tokens), [3], FORM), 512)
    np.testing.assert_allclose(encode_text(world.checkpoint, [text], ENCODER), expected, atol=1e-6)
    with pytest.raises(InputError, match="nothing left"):
        encode_text(world.checkpoint, ["   "], ENCODER)


def test_special_tokens_in_a_typed_question_are_text(world):
    unknown = [1, 1, 1]  # of `[`, `MASK` and `]`, as the tokens stage has it
    row = np.array([2, 5 + 7, *unknown, 5 + 9, 3])
    expected = encode_rows(load_encoders(world.checkpoint)[0], [row], 512)
    np.testing.assert_allclose(encode_text(world.checkpoint, ["w7 [MASK] w9"], ENCODER), expected, atol=1e-6)


def test_another_models_index_is_refused(built):
    with pytest.raises(InputError, match="different models"):
        top_k(np.zeros((1, 99), np.float32), built[1], 5)


@pytest.mark.parametrize("damage", [b"", b"garbage" * 20, "cut"])
def test_damaged_index_is_an_input_error(built, tmp_path, damage):
    path = tmp_path / "broken.index"
    path.write_bytes((built[1] / "index").read_bytes()[:-7] if damage == "cut" else damage)
    with pytest.raises(InputError, match="index"):
        read_vectors(path)
    with pytest.raises(InputError, match="index"):
        read_vectors(tmp_path / "absent")


def test_index_refuses_other_embeddings(world, built, work, tmp_path):
    import json
    import shutil

    shutil.copytree(built[0], tmp_path / "short")
    shape = json.loads((built[0] / "embeddings.json").read_text())
    (tmp_path / "short" / "embeddings.json").write_text(json.dumps(shape | {"shards": shape["shards"][:-1]}))
    left = 120 - shape["shards"][-1]["rows"]
    with pytest.raises(InputError, match=f"{left} vectors for 120 passages"):
        index(IndexConfig(kind="flat"), world.collection, tmp_path / "short", work("other"))


@pytest.mark.slow
def test_pyserini_reads_the_index_and_finds_the_same(world, built):
    from pipeline import java

    java.start()
    from pyserini.search.faiss import FaissSearcher

    questions = encode_rows(
        load_encoders(world.checkpoint)[0], question_rows(Tokens.open(world.tokens), range(5), FORM), 512
    )
    searcher = FaissSearcher(str(built[1]), None)
    rows, scores = top_k(questions, built[1], 10)
    for q, question in enumerate(questions):
        hits = searcher.search(question[None], k=10)
        assert [hit.docid for hit in hits] == [f"d{row // 2}-{row % 2}" for row in rows[q]]
        np.testing.assert_allclose([hit.score for hit in hits], scores[q], rtol=1e-5)


@pytest.mark.slow
def test_child_process_writes_the_same_run(world, work):
    """The whole way through real child processes, against the same in this process."""
    embeddings, indexed, child, here = (work(name) for name in ("embeddings", "index", "child", "here"))
    encode(ENCODE, ENCODER, world.tokens, world.checkpoint, embeddings)
    index(IndexConfig(kind="flat"), world.collection, embeddings.out, indexed)
    inputs = (world.collection, world.tokens, world.checkpoint, indexed.out)
    search(SEARCH, ENCODER, *inputs, child)
    names = dict(
        zip(("collection", "tokens", "checkpoint", "index", "out"), map(str, (*inputs, here.out)), strict=True)
    )
    run(
        progress=here.progress,
        device="cpu",
        config=SEARCH.model_dump(mode="json"),
        encoder=ENCODER.model_dump(),
        token_budget=512,
        **names,
    )
    for name in ("run.parquet", "run.trec"):
        assert (child.out / name).read_bytes() == (here.out / name).read_bytes()

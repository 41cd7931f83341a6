"""Every kind of index: its files, its lists, and what is refused."""

import json
import re
import shutil

import faiss
import numpy as np
import pytest
from indexes import EFFORT, FLAT, KINDS, write_embeddings, write_passages
from vectors import data, reference

from pipeline.dense import index as index_stage
from pipeline.dense.approximate import approximate_top_k, recall
from pipeline.dense.exact import exact_top_k
from pipeline.dense.index import index
from pipeline.dense.index_files import open_index, read_flat
from pipeline.dense.rescore import rescore
from pipeline.dense.search import top_k
from pipeline.errors import InputError
from pipeline.export.files import index_files

N, D, K = 10_300, 16, 20
LEAST = {"hnsw": 0.9, "ivf": 0.4, "ivfpq": 0.4, "int8": 0.99, "binary": 0.2}
"""Recall of the exact list's first 20, so that a search which finds by chance alone fails."""


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """(questions, passages, collection, embeddings)."""
    questions, vectors = data(n=N, q=30, dimension=D, seed=9)
    folder = tmp_path_factory.mktemp("given")
    return questions, vectors, write_passages(folder / "passages", N), write_embeddings(folder / "e", vectors, 3000)


@pytest.fixture
def make(given, work, inline):
    """make("hnsw", name, **fields of IndexConfig): (folder, metrics)."""

    def build(kind, name="index", embeddings=given[3], **changes):
        done = work(name)
        return done.out, index(FLAT.model_copy(update={"kind": kind, **changes}), given[2], embeddings, done)

    return build


@pytest.fixture(scope="module")
def built(given, tmp_path_factory):
    """An index of each kind."""
    from machines import make_machine

    from pipeline.runtime.work import Work, silent

    folders = {}
    for kind in KINDS:
        folder, rest = tmp_path_factory.mktemp(kind), tmp_path_factory.mktemp("work")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pipeline.runtime.launch.launch", in_this_process)
            work = Work(folder, rest, make_machine(), silent)
            index(FLAT.model_copy(update={"kind": kind}), given[2], given[3], work)
        folders[kind] = folder
    return folders


def in_this_process(function, arguments, machine, progress, checkpoints):
    return index_stage.build_index(progress=progress, device="cpu", **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_folder_holds(given, built, kind):
    folder, vectors = built[kind], given[1]
    names = {"index", "docid", "index.json"} | ({"vectors.npy"} if kind != "flat" else set())
    assert {path.name for path in folder.iterdir()} == names
    said = json.loads((folder / "index.json").read_text())
    assert (said["kind"], said["passages"], said["dimension"], said["model"]) == (kind, N, D, "a model")
    assert said["longest"] == pytest.approx(np.linalg.norm(vectors, axis=1).max(), rel=1e-7)
    assert (folder / "docid").read_text().splitlines() == [f"p{n}" for n in range(N)]
    opened = open_index(folder)
    np.testing.assert_array_equal(opened.vectors_ND.astype(np.float32), vectors)
    loaded = faiss.read_index(str(folder / "index"))
    assert (loaded.ntotal, loaded.d) == (N, D)


def test_a_flat_index_is_what_faiss_writes(given, built, tmp_path):
    plain = faiss.IndexFlatIP(D)
    plain.add(given[1])
    faiss.write_index(plain, str(tmp_path / "plain"))
    assert (built["flat"] / "index").read_bytes() == (tmp_path / "plain").read_bytes()
    np.testing.assert_array_equal(read_flat(built["flat"] / "index"), given[1])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_inputs_equal_bytes(built, make, kind):
    again, metrics = make(kind)
    for path in built[kind].iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    assert metrics["kind"] == kind
    assert metrics["build_seconds"] >= 0
    assert metrics["megabytes"] == pytest.approx(sum(p.stat().st_size for p in again.iterdir()) / 1e6, abs=1e-3)


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq", "int8", "binary"])
def test_a_build_that_was_killed_ends_with_the_same_bytes(built, make, work, monkeypatch, kind):
    """Blocks of 3,000; a checkpoint after each; killed in the third."""
    monkeypatch.setattr(index_stage, "BLOCK", 3000)
    whole, _ = make(kind, "whole")
    arguments = {
        "config": FLAT.model_copy(update={"kind": kind}).model_dump(),
        "vectors": str(whole / "vectors.npy"),
        "checkpoint_seconds": 0,
    }
    killed = work("killed")
    files = {"out": str(killed.out / "index"), "checkpoint": str(killed.checkpoints / "index")}

    def stop(done, total, unit):
        if done == 9000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index_stage.build_index(progress=stop, device="cpu", **arguments, **files)
    assert faiss.read_index(files["checkpoint"]).ntotal == 6000
    index_stage.build_index(progress=killed.progress, device="cpu", **arguments, **files)
    assert (killed.out / "index").read_bytes() == (whole / "index").read_bytes()


@pytest.mark.parametrize(
    "damage", ["cut", "changed", "empty", "of no digest", "of another's digest", "of a damaged digest"]
)
def test_a_damaged_checkpoint_is_not_gone_on_from(built, work, monkeypatch, damage):
    """FAISS reads a file with a changed vector without a word."""
    monkeypatch.setattr(index_stage, "BLOCK", 3000)
    arguments = {
        "config": FLAT.model_copy(update={"kind": "int8"}).model_dump(),
        "vectors": str(built["int8"] / "vectors.npy"),
        "checkpoint_seconds": 0,
    }
    killed = work()
    checkpoint, digest = killed.checkpoints / "index", killed.checkpoints / "index.sha256"
    files = {"out": str(killed.out / "index"), "checkpoint": str(checkpoint)}
    index_stage.build_index(progress=killed.progress, device="cpu", **arguments, **files)
    content = checkpoint.read_bytes()
    assert faiss.read_index(str(checkpoint)).ntotal == 9000
    if damage == "of no digest":
        digest.unlink()
    elif damage == "of another's digest":
        digest.write_text("0" * 64)
    elif damage == "of a damaged digest":
        digest.write_bytes(b"\xff")
    else:
        changed = {"cut": content[:-7], "changed": content[:-999] + b"\x15" + content[-998:], "empty": b""}
        checkpoint.write_bytes(changed[damage])
    blocks: list[int] = []
    index_stage.build_index(progress=lambda done, total, unit: blocks.append(done), device="cpu", **arguments, **files)
    assert blocks == [3000, 6000, 9000, N]
    assert (killed.out / "index").read_bytes() == (built["int8"] / "index").read_bytes()


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq"])
def test_the_seed_counts(built, make, kind):
    other, _ = make(kind, seed=6)
    assert (other / "index").read_bytes() != (built[kind] / "index").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_rescored_and_sorted(given, built, kind):
    questions, vectors, *_ = given
    rows, scores = top_k(questions, open_index(built[kind]), K, EFFORT)
    np.testing.assert_array_equal(scores, rescore(questions, rows, vectors))
    order = np.lexsort((rows, -scores), axis=1)
    np.testing.assert_array_equal(order, np.broadcast_to(np.arange(K), order.shape))
    assert all(len({*row}) == K for row in rows.tolist())
    found = recall(rows, reference(questions, vectors, K)[0], (K,)).mean()
    assert found >= LEAST.get(kind, 1)
    if kind != "int8":
        assert (found == 1) == (kind == "flat"), found


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_batches_do_not_change_a_byte(given, built, kind):
    questions, opened = given[0], open_index(built[kind])
    allowed = np.random.default_rng(3).random(N) < 0.4
    before = faiss.omp_get_max_threads()
    try:
        for mask in (None, allowed):
            whole = top_k(questions, opened, K, EFFORT, mask)
            for threads in (1, 3):
                faiss.omp_set_num_threads(threads)
                for batch in (1, 7, 25):
                    parts = [top_k(questions[i : i + batch], opened, K, EFFORT, mask) for i in range(0, 30, batch)]
                    for one, several in zip(whole, zip(*parts, strict=True), strict=True):
                        np.testing.assert_array_equal(np.concatenate(several), one)
    finally:
        faiss.omp_set_num_threads(before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.9, 0.05, 0.001, 0])
def test_a_filter_never_shortens_a_list(given, built, kind, share):
    """Exact in a flat index, and wherever too few candidates pass."""
    questions, vectors, *_ = given
    allowed = np.random.default_rng(4).random(N) < share
    rows_A, opened = np.flatnonzero(allowed), open_index(built[kind])
    rows, scores = top_k(questions, opened, K, EFFORT, allowed)
    assert rows.shape == (30, min(K, len(rows_A)))
    assert allowed[rows].all()
    every = reference(questions, vectors, N)[0]
    exactly = np.array([row[allowed[row]][:K] for row in every])
    if kind == "flat" or share < 0.01:
        np.testing.assert_array_equal(rows, exactly)
    instead = approximate_top_k(questions, opened, K, EFFORT, allowed)[1] if kind != "flat" else 0
    assert (instead > 0) == (kind != "flat" and 0 < share < 0.9)
    np.testing.assert_array_equal(scores, rescore(questions, rows, vectors))


def test_too_few_candidates_in_the_lists_are_completed(given, built):
    """One list of about 40 passages cannot hold 400."""
    questions, vectors, *_ = given
    effort = EFFORT.model_copy(update={"nprobe": 1, "candidates": 1})
    (rows, _), instead = approximate_top_k(questions, open_index(built["ivf"]), 400, effort)
    assert instead == 30
    np.testing.assert_array_equal(rows, reference(questions, vectors, 400)[0])


def test_more_hits_requested_than_there_are(given, built):
    for kind in KINDS:
        rows, _ = top_k(given[0][:2], open_index(built[kind]), 2 * N, EFFORT)
        assert [sorted(row) for row in rows.tolist()] == [[*range(N)]] * 2


def test_without_effort_a_search_is_exact(given, built):
    questions, vectors, *_ = given
    for kind in KINDS:
        np.testing.assert_array_equal(
            top_k(questions, open_index(built[kind]), K)[0], reference(questions, vectors, K)[0]
        )


def test_questions_of_another_dimension_or_not_finite_are_refused(built):
    for kind in KINDS:
        opened = open_index(built[kind])
        with pytest.raises(InputError, match="dimension 16, but the encoder's have 99"):
            top_k(np.zeros((1, 99), np.float32), opened, 5, EFFORT)
        with pytest.raises(InputError, match="not finite"):
            top_k(np.full((1, D), np.nan, np.float32), opened, 5, EFFORT)


FILES = [(kind, name) for kind in KINDS for name in ("index", "vectors.npy", "docid", "index.json")]
FILES.remove(("flat", "vectors.npy"))  # its vectors are in `index`


@pytest.mark.parametrize(("kind", "name"), FILES)
@pytest.mark.parametrize("damage", ["absent", "cut"])
def test_damage_is_an_input_error(built, tmp_path, kind, name, damage):
    folder = shutil.copytree(built[kind], tmp_path / "copy")
    path = folder / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        path.unlink()
    with pytest.raises(InputError, match=str(path)) as told:
        open_index(folder)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq", "int8", "binary"])
def test_what_faiss_cannot_read_is_an_input_error(given, built, tmp_path, kind):
    folder = shutil.copytree(built[kind], tmp_path / "copy")
    path = folder / "index"
    path.write_bytes(b"garbage." + path.read_bytes()[8:])
    with pytest.raises(InputError, match="damaged"):
        top_k(given[0], open_index(folder), 5, EFFORT)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("absent", "shard-00001.npy: no such shard"),
        ("cut", "shard-00001.npy: damaged"),
        ("changed", "shard-00001.npy: damaged"),
        ("swapped", "shard-00001.npy: damaged"),
        ("unlisted", "7300 vectors for 10300 passages"),
        ("no list", r"embeddings.json: cannot be read \("),
    ],
)
@pytest.mark.parametrize("kind", ["flat", "int8"])
def test_damaged_embeddings_are_refused(given, make, tmp_path, kind, damage, said):
    folder = shutil.copytree(given[3], tmp_path / "copy")
    shard, described = folder / "shard-00001.npy", json.loads((folder / "embeddings.json").read_text())
    content = shard.read_bytes()
    if damage == "absent":
        shard.unlink()
    elif damage == "swapped":
        shard.write_bytes((folder / "shard-00002.npy").read_bytes())
    elif damage == "unlisted":
        del described["shards"][1]
        (folder / "embeddings.json").write_text(json.dumps(described))
    elif damage == "no list":
        (folder / "embeddings.json").write_text("{")
    else:
        shard.write_bytes(content[:-9] if damage == "cut" else content[:-1] + b"\x00")
    with pytest.raises(InputError, match=said):
        make(kind, embeddings=folder)


def test_too_few_passages_to_train_on(given, make):
    with pytest.raises(
        InputError, match=r"index\.nlist: 300 needs 12,000 passages to train on, but the collection has 10,300"
    ):
        make("ivf", nlist=300)


def test_too_few_passages_for_product_quantisation(make, tmp_path):
    few = write_embeddings(tmp_path / "few", np.ones((10_000, D)), 3000)
    with pytest.raises(InputError, match=r"index\.kind: ivfpq needs 10,240 passages to train on, .* has 10,000"):
        make("ivfpq", embeddings=few)


def test_bytes_that_do_not_divide_the_dimension(make):
    with pytest.raises(InputError, match=r"index\.pq_m: 5 does not divide the vectors' dimension, 16"):
        make("ivfpq", pq_m=5)


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "int8", "binary"])
def test_a_collection_of_few_passages(work, inline, tmp_path, kind):
    questions, vectors = data(n=45, q=3, dimension=D)
    done = work()
    collection = write_passages(tmp_path / "passages", 45)
    index(FLAT.model_copy(update={"kind": kind}), collection, write_embeddings(tmp_path / "e", vectors, 20), done)
    rows, _ = top_k(questions, open_index(done.out), 45, EFFORT)
    np.testing.assert_array_equal(rows, reference(questions, vectors, 45)[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_child_process_builds_the_same(given, built, work, kind):
    done = work(threads=2)
    index(FLAT.model_copy(update={"kind": kind}), given[2], given[3], done)
    for path in built[kind].iterdir():
        assert path.read_bytes() == (done.out / path.name).read_bytes(), path.name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_pyserini_reads_the_index_and_finds_the_same(given, built, kind, faiss_searcher):
    """What FAISS itself finds there, not rescored: the exact lists where the kind is flat, else most of them."""
    questions, vectors, *_ = given
    searcher = faiss_searcher(str(built[kind]), None)
    assert searcher.num_docs == N
    every = exact_top_k(questions, vectors, K, 100.0)[0]
    hits = [[int(hit.docid[1:]) for hit in searcher.search(q[None], k=K)] for q in questions]
    found = np.mean([np.isin(row, list_of) for row, list_of in zip(every, hits, strict=True)])
    assert found >= {"flat": 1, "hnsw": 0.7, "ivf": 0.4, "ivfpq": 0.2, "int8": 0.9, "binary": 0.1}[kind]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"files": {"gone": {"bytes": 1, "sha256": "0" * 64}}}, "gone: no such file"),
        (
            {"files": {"../index": {"bytes": 1, "sha256": "0" * 64}}},
            "names '../index', which is not a file in its folder",
        ),
        ({"files": {"/etc/passwd": {"bytes": 1, "sha256": "0" * 64}}}, "names '/etc/passwd', which is not a file"),
        ({"files": {"a\0b": {"bytes": 1, "sha256": "0" * 64}}}, "cannot be read"),
        ({"files": {"a" * 300: {"bytes": 1, "sha256": "0" * 64}}}, "cannot be read"),
        ({"files": {".": {"bytes": 1, "sha256": "0" * 64}}}, "which is not a file in its folder"),
        ({"files": ["index"]}, "cannot be read"),
        ({"files": {"index": 45}}, "cannot be read"),
        ({"passages": "many"}, "cannot be read"),
        ({"dimension": None}, "cannot be read"),
        ({"longest": float("nan")}, "cannot be read"),
        ({"kind": "nosuch"}, "vectors.npy: not a readable array"),
    ],
)
def test_a_description_that_fits_no_folder(built, tmp_path, changed, said):
    folder = shutil.copytree(built["flat"], tmp_path / "copy")
    path = folder / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(InputError, match=re.escape(said)) as told:
        open_index(folder)
    assert "\n" not in str(told.value)
    if "kind" not in changed:
        with pytest.raises(InputError, match=re.escape(said)):
            index_files(folder)

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
"""Lowest accepted recall of the exact list's first 20. A search that finds passages only by chance fails."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """(questions, passages, collection, embeddings)."""
    questions, vectors = data(n=N, q=30, dimension=D, seed=9)
    folder = tmp_path_factory.mktemp("given")
    return questions, vectors, write_passages(folder / "passages", N), write_embeddings(folder / "e", vectors, 3000)


@pytest.fixture
def make(inputs, work, inline):
    """make("hnsw", name, **fields of IndexConfig): (folder, metrics)."""

    def build(kind, name="index", embeddings=inputs[3], **changes):
        done = work(name)
        return done.out, index(FLAT.model_copy(update={"kind": kind, **changes}), inputs[2], embeddings, done)

    return build


@pytest.fixture(scope="module")
def built(inputs, tmp_path_factory):
    """An index of each kind."""
    from machines import make_machine

    from pipeline.runtime.work import Work, silent

    folders = {}
    for kind in KINDS:
        folder, rest = tmp_path_factory.mktemp(kind), tmp_path_factory.mktemp("work")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pipeline.runtime.launch.launch", in_this_process)
            work = Work(folder, rest, make_machine(), silent)
            index(FLAT.model_copy(update={"kind": kind}), inputs[2], inputs[3], work)
        folders[kind] = folder
    return folders


def in_this_process(function, arguments, machine, progress, checkpoints):
    return index_stage.build_index(progress=progress, device="cpu", **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_description_of_an_index(inputs, built, kind):
    folder, vectors = built[kind], inputs[1]
    names = {"index", "docid", "index.json"} | ({"vectors.npy"} if kind != "flat" else set())
    assert {path.name for path in folder.iterdir()} == names
    description = json.loads((folder / "index.json").read_text())
    assert (description["kind"], description["passages"], description["dimension"], description["model"]) == (
        kind,
        N,
        D,
        "a model",
    )
    assert description["longest"] == pytest.approx(np.linalg.norm(vectors, axis=1).max(), rel=1e-7)
    assert (folder / "docid").read_text().splitlines() == [f"p{n}" for n in range(N)]
    opened = open_index(folder)
    np.testing.assert_array_equal(opened.vectors_ND.astype(np.float32), vectors)
    loaded = faiss.read_index(str(folder / "index"))
    assert (loaded.ntotal, loaded.d) == (N, D)


def test_a_flat_index_is_what_faiss_writes(inputs, built, tmp_path):
    plain = faiss.IndexFlatIP(D)
    plain.add(inputs[1])
    faiss.write_index(plain, str(tmp_path / "plain"))
    assert (built["flat"] / "index").read_bytes() == (tmp_path / "plain").read_bytes()
    np.testing.assert_array_equal(read_flat(built["flat"] / "index"), inputs[1])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_inputs_give_equal_bytes(built, make, kind):
    again, metrics = make(kind)
    for path in built[kind].iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    assert metrics["kind"] == kind
    assert metrics["build_seconds"] >= 0
    assert metrics["megabytes"] == pytest.approx(sum(p.stat().st_size for p in again.iterdir()) / 1e6, abs=1e-3)


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq", "int8", "binary"])
def test_a_killed_build_resumes_and_gives_the_same_bytes(built, make, work, monkeypatch, kind):
    """Blocks of 3,000 passages, with a checkpoint after each. The build is killed in the third block."""
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
def test_a_build_does_not_resume_from_a_damaged_checkpoint(built, work, monkeypatch, damage):
    """FAISS reads a file with a changed vector without an error."""
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
def test_the_seed_changes_the_index(built, make, kind):
    other, _ = make(kind, seed=6)
    assert (other / "index").read_bytes() != (built[kind] / "index").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_rescored_and_sorted(inputs, built, kind):
    questions, vectors, *_ = inputs
    rows, scores = top_k(questions, open_index(built[kind]), K, EFFORT)
    np.testing.assert_array_equal(scores, rescore(questions, rows, vectors))
    order = np.lexsort((rows, -scores), axis=1)
    np.testing.assert_array_equal(order, np.broadcast_to(np.arange(K), order.shape))
    assert all(len({*row}) == K for row in rows.tolist())
    mean_recall = recall(rows, reference(questions, vectors, K)[0], (K,)).mean()
    assert mean_recall >= LEAST.get(kind, 1)
    if kind != "int8":
        assert (mean_recall == 1) == (kind == "flat"), mean_recall


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_batches_do_not_change_a_byte(inputs, built, kind):
    questions, opened = inputs[0], open_index(built[kind])
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
def test_a_filter_never_shortens_a_list(inputs, built, kind, share):
    """The list is exact in a flat index, and in the others if too few candidates pass the filter."""
    questions, vectors, *_ = inputs
    allowed = np.random.default_rng(4).random(N) < share
    rows_A, opened = np.flatnonzero(allowed), open_index(built[kind])
    rows, scores = top_k(questions, opened, K, EFFORT, allowed)
    assert rows.shape == (30, min(K, len(rows_A)))
    assert allowed[rows].all()
    all_rows = reference(questions, vectors, N)[0]
    expected = np.array([row[allowed[row]][:K] for row in all_rows])
    if kind == "flat" or share < 0.01:
        np.testing.assert_array_equal(rows, expected)
    searched_exactly = approximate_top_k(questions, opened, K, EFFORT, allowed)[1] if kind != "flat" else 0
    assert (searched_exactly > 0) == (kind != "flat" and 0 < share < 0.9)
    np.testing.assert_array_equal(scores, rescore(questions, rows, vectors))


def test_too_few_candidates_in_the_lists_are_completed(inputs, built):
    """One list of about 40 passages cannot hold 400."""
    questions, vectors, *_ = inputs
    effort = EFFORT.model_copy(update={"nprobe": 1, "candidates": 1})
    (rows, _), searched_exactly = approximate_top_k(questions, open_index(built["ivf"]), 400, effort)
    assert searched_exactly == 30
    np.testing.assert_array_equal(rows, reference(questions, vectors, 400)[0])


def test_a_list_holds_all_passages_if_more_are_requested(inputs, built):
    for kind in KINDS:
        rows, _ = top_k(inputs[0][:2], open_index(built[kind]), 2 * N, EFFORT)
        assert [sorted(row) for row in rows.tolist()] == [[*range(N)]] * 2


def test_without_effort_a_search_is_exact(inputs, built):
    questions, vectors, *_ = inputs
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
def test_a_missing_or_cut_file_is_an_input_error(built, tmp_path, kind, name, damage):
    folder = shutil.copytree(built[kind], tmp_path / "copy")
    path = folder / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        path.unlink()
    with pytest.raises(InputError, match=str(path)) as raised:
        open_index(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq", "int8", "binary"])
def test_an_index_that_faiss_cannot_read_is_an_input_error(inputs, built, tmp_path, kind):
    folder = shutil.copytree(built[kind], tmp_path / "copy")
    path = folder / "index"
    path.write_bytes(b"garbage." + path.read_bytes()[8:])
    with pytest.raises(InputError, match="damaged"):
        top_k(inputs[0], open_index(folder), 5, EFFORT)


@pytest.mark.parametrize(
    ("damage", "message"),
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
def test_damaged_embeddings_are_refused(inputs, make, tmp_path, kind, damage, message):
    folder = shutil.copytree(inputs[3], tmp_path / "copy")
    shard, description = folder / "shard-00001.npy", json.loads((folder / "embeddings.json").read_text())
    content = shard.read_bytes()
    if damage == "absent":
        shard.unlink()
    elif damage == "swapped":
        shard.write_bytes((folder / "shard-00002.npy").read_bytes())
    elif damage == "unlisted":
        del description["shards"][1]
        (folder / "embeddings.json").write_text(json.dumps(description))
    elif damage == "no list":
        (folder / "embeddings.json").write_text("{")
    else:
        shard.write_bytes(content[:-9] if damage == "cut" else content[:-1] + b"\x00")
    with pytest.raises(InputError, match=message):
        make(kind, embeddings=folder)


def test_too_few_passages_to_train_on_are_refused(inputs, make):
    with pytest.raises(
        InputError, match=r"index\.nlist: 300 needs 12,000 passages to train on, but the collection has 10,300"
    ):
        make("ivf", nlist=300)


def test_too_few_passages_for_product_quantisation_are_refused(make, tmp_path):
    few = write_embeddings(tmp_path / "few", np.ones((10_000, D)), 3000)
    with pytest.raises(InputError, match=r"index\.kind: ivfpq needs 10,240 passages to train on, .* has 10,000"):
        make("ivfpq", embeddings=few)


def test_a_number_of_bytes_that_does_not_divide_the_dimension_is_refused(make):
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
def test_child_process_builds_the_same(inputs, built, work, kind):
    done = work(threads=2)
    index(FLAT.model_copy(update={"kind": kind}), inputs[2], inputs[3], done)
    for path in built[kind].iterdir():
        assert path.read_bytes() == (done.out / path.name).read_bytes(), path.name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_pyserini_reads_the_index_and_finds_the_same(inputs, built, kind, faiss_searcher):
    """Without rescoring, FAISS finds the exact lists in a flat index and most of their passages in the others."""
    questions, vectors, *_ = inputs
    searcher = faiss_searcher(str(built[kind]), None)
    assert searcher.num_docs == N
    exact_rows = exact_top_k(questions, vectors, K, 100.0)[0]
    hits = [[int(hit.docid[1:]) for hit in searcher.search(q[None], k=K)] for q in questions]
    mean_share = np.mean([np.isin(row, found_rows) for row, found_rows in zip(exact_rows, hits, strict=True)])
    assert mean_share >= {"flat": 1, "hnsw": 0.7, "ivf": 0.4, "ivfpq": 0.2, "int8": 0.9, "binary": 0.1}[kind]


@pytest.mark.parametrize(
    ("changed", "message"),
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
def test_an_invalid_description_is_refused(built, tmp_path, changed, message):
    folder = shutil.copytree(built["flat"], tmp_path / "copy")
    path = folder / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        open_index(folder)
    assert "\n" not in str(raised.value)
    if "kind" not in changed:
        with pytest.raises(InputError, match=re.escape(message)):
            index_files(folder)

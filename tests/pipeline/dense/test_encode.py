import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from encoders import ENCODER, FORM
from hiding import forks, hide
from safetensors.numpy import load_file, save_file

from pipeline.data.stored import read_table
from pipeline.dense import shard_reuse
from pipeline.dense.encode import EncodeConfig, encode
from pipeline.errors import InputError
from pipeline.modeling.adopt import AdoptConfig, adopt
from pipeline.modeling.biencoder import encode_rows, load_encoders
from pipeline.modeling.inputs import passage_rows, unread
from pipeline.notices import METRIC, read_notices
from pipeline.tokenization.token_files import Ragged, Tokens

CONFIG = EncodeConfig(passage_tokens=40, shard_passages=32)


def read(folder):
    return [np.load(path) for path in sorted(folder.glob("shard-*.npy"))]


def test_shards_hold_all_passages_in_order(world, work, inline):
    done = work()
    metrics = encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, done)
    shards = read(done.out)
    metadata = json.loads((done.out / "embeddings.json").read_text())
    assert (metadata["dim"], metadata["pooling"]) == (16, "cls")
    assert [shard["rows"] for shard in metadata["shards"]] == [len(shard) for shard in shards]
    assert len(shards) > 3
    assert max(len(shard) for shard in shards) <= 32
    assert shards[0].dtype == np.float16
    expected = encode_rows(
        load_encoders(world.checkpoint)[1], passage_rows(Tokens.open(world.tokens), range(120), FORM, 40), 1
    )
    np.testing.assert_allclose(np.concatenate(shards), expected, atol=2e-3)
    cut_NN = unread(Tokens.open(world.tokens), FORM, 40)
    lines = read_notices(metrics)
    assert len(lines) == sum((cut_N > 0).any() for cut_N in cut_NN) > 0
    ids = read_table(world.collection / "passages.parquet", ["passage_id"])["passage_id"].to_pylist()
    for line in lines:
        first = [ids[row] for row in np.flatnonzero(cut_NN[not line.startswith("titles")])[:3]]
        assert f"(first: {', '.join(first)})" in line
    metrics.pop(METRIC, None)
    lost = {name: int((cut_N > 0).sum()) for name, cut_N in zip(("titles", "passages"), cut_NN, strict=True)}
    assert {name: metrics.pop(f"{name}_cut") for name in lost} == lost
    for name, cut in lost.items():
        assert metrics.pop(f"{name}_cut_share") == cut / 120
        assert (metrics.pop(f"{name}_unread_share") > 0) == (cut > 0)
    assert metrics == {"passages": 120, "dimension": 16, "shards": len(shards), "shards_reused": 0}
    assert sorted(path.name for path in done.out.iterdir()) == [
        "embeddings.json",
        *(f"shard-0000{i}.npy" for i in range(len(shards))),
    ]


def test_workers_do_not_change_a_byte(world, work, inline):
    reports = []
    one, three = work("one"), work("three", workers=3, progress=lambda *a: reports.append(a))
    for each in (one, three):
        encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, each)
    for path in one.out.iterdir():
        assert path.read_bytes() == (three.out / path.name).read_bytes()
    assert reports[-1][:3] == (120, 120, "passages")


def test_ranks_that_replace_forks_do_not_change_a_byte(world, work, monkeypatch):
    """Where a process must not fork."""
    forked, ranked = work("forked", workers=2), work("ranked", workers=2)
    encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, forked)
    hide(monkeypatch)
    encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, ranked)
    for path in forked.out.iterdir():
        assert path.read_bytes() == (ranked.out / path.name).read_bytes()


@forks
def test_workers_may_end_between_two_checks_of_them(monkeypatch):
    """Each fork ends right after the first check whether it is alive."""
    import multiprocessing

    from pipeline.runtime.shards import fork as run_forks

    check = multiprocessing.process.BaseProcess.is_alive

    def ends_after_check(fork):
        alive = check(fork)
        fork.join()
        return alive

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "is_alive", ends_after_check)
    reports = []
    run_forks(lambda number, tick: tick(1), [5, 6, 7], 2, 1, 4, "passages", lambda *a: reports.append(a))
    assert reports[-1] == (4, 4, "passages")


def test_finished_shards_are_kept(world, work, inline):
    first, second = work("first"), work("second")
    encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, first)
    kept = second.checkpoints / "shards"
    kept.mkdir()
    shards = read(first.out)
    marked = np.full_like(shards[1], 7)
    np.save(kept / "shard-00001.npy", marked)
    (kept / "shard-00002.part").write_bytes(b"cut off")
    encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, second)
    np.testing.assert_array_equal(read(second.out)[1], marked)
    for i in (0, *range(2, len(shards))):
        assert (first.out / f"shard-0000{i}.npy").read_bytes() == (second.out / f"shard-0000{i}.npy").read_bytes()


def with_documents(tokens: Path, target: Path, documents: list[int]) -> Path:
    """Only the tokens of `documents`, in that order. -1 is the second document with its words reversed."""
    source = Tokens.open(tokens)
    shutil.copytree(tokens, target)
    for name, texts in (("passages", source.passages), ("titles", source.titles)):
        ids = [texts[abs(2 * d) + part][:: -1 if d < 0 else 1] for d in documents for part in range(2)]
        np.save(target / name / "tokens.npy", np.concatenate(ids))
        np.save(target / name / "offsets.npy", np.cumsum([0, *map(len, ids)]))
    np.save(target / "doc_offsets.npy", np.arange(0, 2 * len(documents) + 1, 2))
    return target


SMALL = EncodeConfig(passage_tokens=40, shard_passages=12)
EVERY = list(range(60))
EDITS = {
    "insert": [*EVERY[:21], -1, *EVERY[21:]],
    "change": [*EVERY[:21], -1, *EVERY[22:]],
    "remove": [*EVERY[:21], *EVERY[22:]],
}


@pytest.mark.parametrize("edit", EDITS)
def test_only_the_changed_shards_of_a_changed_collection_are_encoded(edit, world, work, inline, tmp_path):
    before, fresh, after = work("before"), work("fresh"), work("after")
    encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, before)
    tokens = with_documents(world.tokens, tmp_path / "tokens", EDITS[edit])
    encode(SMALL, ENCODER, world.collection, tokens, world.checkpoint, fresh)
    reports = []
    again = replace(after, earlier=[tmp_path / "absent", before.out], progress=lambda *a: reports.append(a))
    metrics = encode(SMALL, ENCODER, world.collection, tokens, world.checkpoint, again)
    assert metrics["shards"] > 25
    assert metrics["shards"] - 4 <= metrics["shards_reused"] < metrics["shards"]
    assert reports[0][0] > 0.8 * metrics["passages"]  # already finished when the encoding starts
    names = sorted(path.name for path in fresh.out.iterdir())
    assert sorted(path.name for path in after.out.iterdir()) == names
    for name in names:
        assert (after.out / name).read_bytes() == (fresh.out / name).read_bytes()


def without_titles(tokens: Path, target: Path, rows: range) -> Path:
    """The tokens with empty titles of the passages `rows`."""
    titles = Tokens.open(tokens).titles
    shutil.copytree(tokens, target)
    ids = [titles[row][: 0 if row in rows else None] for row in range(len(titles))]
    np.save(target / "titles" / "tokens.npy", np.concatenate(ids))
    np.save(target / "titles" / "offsets.npy", np.cumsum([0, *map(len, ids)]))
    return target


def test_whole_texts_reuse_the_shards_without_a_removed_title(world, work, inline, tmp_path):
    """`encode-whole` after `encode-stage2`: the same model; questions were cut out of some passages' titles."""
    stage2, fresh, whole = work("stage2"), work("fresh"), work("whole")
    evaluated = without_titles(world.tokens, tmp_path / "tokens", range(20, 24))
    encode(SMALL, ENCODER, world.collection, evaluated, world.checkpoint, stage2)
    encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, fresh)
    metrics = encode(
        SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, replace(whole, earlier=[stage2.out])
    )
    assert metrics["shards"] - 4 <= metrics["shards_reused"] < metrics["shards"]
    for path in fresh.out.iterdir():
        assert (whole.out / path.name).read_bytes() == path.read_bytes()


def test_undamaged_shards_are_reused_and_not_encoded_again(world, work, inline):
    before, after = work("before"), work("after")
    encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, before)
    metadata = json.loads((before.out / "embeddings.json").read_text())
    shards = read(before.out)
    marked = np.full_like(shards[1], 7)
    for number in (1, 2):
        np.save(before.out / f"shard-0000{number}.npy", np.full_like(shards[number], 7))
    metadata["shards"][1]["sha256"] = hashlib.sha256((before.out / "shard-00001.npy").read_bytes()).hexdigest()
    (before.out / "embeddings.json").write_text(json.dumps(metadata))
    (before.out / "shard-00003.npy").unlink()
    metrics = encode(
        SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, replace(after, earlier=[before.out])
    )
    assert metrics["shards_reused"] == metrics["shards"] - 2
    np.testing.assert_array_equal(read(after.out)[1], marked)
    np.testing.assert_array_equal(read(after.out)[2], shards[2])
    np.testing.assert_array_equal(read(after.out)[3], shards[3])


def test_a_resumed_run_copies_no_shard_again(world, work, inline):
    before, after = work("before"), work("after")
    encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, before)
    first = encode(
        SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, replace(after, earlier=[before.out])
    )
    inodes = {path.name: path.stat().st_ino for path in (after.checkpoints / "shards").iterdir()}
    shutil.rmtree(after.out)
    after.out.mkdir()
    assert (
        encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, replace(after, earlier=[before.out]))
        == first
    )
    assert {path.name: path.stat().st_ino for path in (after.checkpoints / "shards").iterdir()} == inodes


def test_another_model_or_another_form_reuses_no_shard(world, work, inline, tmp_path):
    before = work("before")
    encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, before)
    longer = SMALL.model_copy(update={"passage_tokens": 41})
    untitled = ENCODER.model_copy(update={"title_tokens": 0})
    other = tmp_path / "other"
    shutil.copytree(world.checkpoint, other)
    weights = load_file(other / "model.safetensors")
    weights["encoder.layer.1.output.LayerNorm.bias"] += 1
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    for i, (config, form, checkpoint) in enumerate(
        [(longer, ENCODER, world.checkpoint), (SMALL, untitled, world.checkpoint), (SMALL, ENCODER, other)]
    ):
        again = replace(work(f"again{i}"), earlier=[before.out])
        assert encode(config, form, world.collection, world.tokens, checkpoint, again)["shards_reused"] == 0


def test_shards_of_another_precision_are_not_reused(world, work, inline):
    """Neither those of an earlier artifact nor those of an interrupted build: equal keys have equal bytes."""
    before, low = work("before"), work("low", precision="bfloat16")
    encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, before)
    again = replace(low, earlier=[before.out], checkpoints=before.checkpoints)
    assert encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, again)["shards_reused"] == 0
    assert {folder.name for folder in before.checkpoints.iterdir() if folder.is_dir()} == {"shards", "shards-bfloat16"}
    keys = [json.loads((one.out / "embeddings.json").read_text())["shards"] for one in (before, low)]
    assert {shard["key"] for shard in keys[0]}.isdisjoint(shard["key"] for shard in keys[1])


def test_an_adopted_model_reuses_its_earlier_shards(world, work, inline):
    """Otherwise an update would encode everything again."""
    adopted, before, after = work("ready"), work("before"), work("after")
    adopt(AdoptConfig(checkpoint=world.checkpoint, pooling="mean", normalise=True), world.checkpoint, adopted)
    encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, before)
    metrics = encode(SMALL, ENCODER, world.collection, world.tokens, adopted.out, replace(after, earlier=[before.out]))
    assert metrics["shards_reused"] == metrics["shards"]


def test_vectors_beyond_float16_are_an_error(world, work, inline, tmp_path):
    shutil.copytree(world.checkpoint, tmp_path / "bad")
    weights = load_file(tmp_path / "bad" / "model.safetensors")
    weights["encoder.layer.1.output.LayerNorm.bias"] = np.full(16, 1e6, dtype=np.float32)
    save_file(weights, tmp_path / "bad" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="diverged"):
        encode(CONFIG, ENCODER, world.collection, world.tokens, tmp_path / "bad", work())


@pytest.mark.gpu
def test_a_gpu_gives_the_same_vectors_as_a_cpu(world, work):
    vectors = []
    for device in ("cpu", "cuda"):
        done = work(device, device=device)
        encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, done)
        vectors.append(np.concatenate(read(done.out)).astype(float))
    cpu, gpu = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in vectors)
    assert (cpu * gpu).sum(axis=1).min() > 0.99  # bfloat16


@pytest.mark.slow
def test_encoding_resumes_after_kill_9(world, work):
    """A run that is killed midway and started again gives the same bytes and does not repeat finished shards."""
    whole, killed = work("whole"), work("killed", workers=2)
    settings = EncodeConfig(passage_tokens=40, shard_passages=2)
    encode(settings, ENCODER, world.collection, world.tokens, world.checkpoint, whole)
    program = (
        "from pathlib import Path; from pipeline.dense.encode import *; from pipeline.runtime.work import *;"
        "from pipeline.modeling.encoder_config import EncoderConfig;"
        f"settings, encoder = {settings.model_dump()}, {ENCODER.model_dump()};"
        f"collection = Path({str(world.collection)!r});"
        f"tokens, checkpoint = Path({str(world.tokens)!r}), Path({str(world.checkpoint)!r});"
        "encode(EncodeConfig(**settings), EncoderConfig(**encoder), collection, tokens, checkpoint,"
        f" Work(Path({str(killed.out)!r}), Path({str(killed.checkpoints)!r}),"
        f" Machine(**{killed.machine.model_dump()}), silent))"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    shards = killed.checkpoints / "shards"
    while len(list(shards.glob("*.npy"))) < 5:
        assert process.poll() is None
        time.sleep(0.005)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive, "a worker outlives the kill"
    kept = {path.name: path.stat().st_mtime_ns for path in shards.glob("*.npy")}
    assert 5 <= len(kept) < 60
    encode(settings, ENCODER, world.collection, world.tokens, world.checkpoint, killed)
    for path in whole.out.iterdir():
        assert path.read_bytes() == (killed.out / path.name).read_bytes()
    for name, modified in kept.items():
        assert os.stat(killed.out / name).st_mtime_ns == modified


def test_nodes_that_wait_for_a_training_do_not_encode(world, work, monkeypatch):
    torchruns = []

    class Launched(Exception):
        pass

    def launch(function, arguments, machine, progress, checkpoints, kept=0):
        torchruns.append(machine.torchrun)
        raise Launched

    monkeypatch.setattr("pipeline.runtime.launch.launch", launch)
    with pytest.raises(Launched):
        encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, work(torchrun=["--nnodes=2"]))
    assert torchruns == [[]]


def test_a_kill_while_shards_are_assembled_loses_no_shard(world, work, inline, monkeypatch):
    done = work()

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.dense.shard_reuse.sha256", killed)
        patch.setattr(
            "pipeline.dense.shard_reuse.shard_keys", lambda tokens, spans, checkpoint, settings: [""] * len(spans)
        )
        with pytest.raises(KeyboardInterrupt):
            encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, done)
    shutil.rmtree(done.out)
    done.out.mkdir()
    monkeypatch.setattr("pipeline.modeling.biencoder.encode_rows", lambda *arguments: pytest.fail("encoded again"))
    assert encode(CONFIG, ENCODER, world.collection, world.tokens, world.checkpoint, done)["passages"] == 120


def test_shards_do_not_depend_on_the_settings_of_questions(world, work, inline):
    before, after = work("before"), work("after")
    encode(SMALL, ENCODER, world.collection, world.tokens, world.checkpoint, before)
    other = ENCODER.model_copy(update={"question_tokens": ENCODER.question_tokens + 1})
    metrics = encode(
        SMALL, other, world.collection, world.tokens, world.checkpoint, replace(after, earlier=[before.out])
    )
    assert metrics["shards_reused"] == metrics["shards"]


@pytest.mark.slow
def test_cutting_a_large_collection_needs_little_memory():
    """The positions of 400,000 passages as Python integers would take 32 MB."""
    offsets = np.arange(400_001, dtype=np.int64)
    texts = Ragged(np.zeros(400_000, np.uint16), offsets, np.zeros(0, bool), None)
    tokens = Tokens(texts, texts, texts, np.zeros(1, np.int64), FORM.specials)
    tracemalloc.start()
    assert len(shard_reuse.cuts(tokens, 1000)) >= 400
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12e6
